"""Control ids, ordinary ids against the reference, missing files, and texts made to be slow."""

import base64
import json
import os
import random
import shutil
import subprocess
import threading
import time
import unittest

from pod import BINARY, MODEL, ROOT, TIME_FACTOR, Pod, PodCase

SEED = int(os.environ.get("POD_SEED", time.time_ns() % 1_000_000))
NUM_RANKS = 2048
CONTROL_IDS = range(2048, 2304)
MILLION = 1_000_000


def rank_bytes():
    """id -> bytes, read from the vocabulary file."""
    lines = (MODEL / "tiktoken.model").read_text().splitlines()
    return {int(rank): base64.b64decode(word) for word, rank in (line.split() for line in lines)}


class Ids(PodCase):
    def detokenize(self, ids):
        return self.ok("/detokenize", {"tokens": ids})["prompt"]

    def test_reference_texts_have_the_reference_ids(self):
        golden = json.loads((ROOT / "tests" / "golden" / "k3-tiny" / "golden.json").read_text())["encode"]
        self.assertGreater(len(golden), 10)
        for case in golden:
            self.assertEqual(self.tokenize(case["text"]), case["ids"], case["text"])
            self.assertEqual(self.detokenize(case["ids"]), case["text"])

    def test_every_control_id_has_one_text_which_as_text_is_no_control_id(self):
        texts = [self.detokenize([i]) for i in CONTROL_IDS]
        self.assertEqual(len(set(texts)), 256)
        self.assertTrue({"[BOS]", "[EOS]", "<|end_of_msg|>", "<|open|>", "<|close|>", "<|sep|>", "[PAD]"} <= set(texts))
        for text in texts:
            ids = self.tokenize(text)
            self.assertTrue(ids and max(ids) < NUM_RANKS, text)
            self.assertEqual(self.detokenize(ids), text)

    def test_ten_thousand_ordinary_ids_decode_as_in_the_file(self):
        words = rank_bytes()
        self.assertEqual(sorted(words), list(range(NUM_RANKS)))
        rng = random.Random(SEED)
        for _ in range(20):
            ids = [rng.randrange(NUM_RANKS) for _ in range(500)]
            expected = b"".join(words[i] for i in ids).decode(errors="replace")
            self.assertEqual(self.detokenize(ids), expected, f"seed {SEED}")

    def test_random_text_comes_back(self):
        rng = random.Random(SEED)
        alphabet = "ab Z9'\n\t.é日語🎉\u0301½١ \u200d<|>_\u3007\U0002070e\r"
        for _ in range(200):
            text = "".join(rng.choice(alphabet) for _ in range(rng.randint(1, 40)))
            self.assertEqual(self.detokenize(self.tokenize(text)), text, f"seed {SEED}")


class MissingFiles(unittest.TestCase):
    def test_a_missing_tokenizer_file_is_named_before_weights_load(self):
        for name in ["tiktoken.model", "tokenizer_config.json", "chat_format.json"]:
            with Pod() as pod:
                folder = pod.dir / "model"
                shutil.copytree(MODEL, folder, copy_function=os.symlink)
                (folder / name).unlink()
                pod.file.write_text(pod.file.read_text().replace(str(MODEL), str(folder)))
                done = subprocess.run([str(BINARY), "station", "--pod", str(pod.file)], capture_output=True, text=True,
                                      timeout=5 * TIME_FACTOR)
                self.assertEqual(done.returncode, 1)
                self.assertIn(name, done.stderr)
                self.assertNotIn("loaded", done.stderr)


class Gaps:
    """A stream that is read by a thread of its own; the longest time between two of its events."""

    def __init__(self, pod):
        self.stream = pod.stream("Tell me a story about a fox.", max_tokens=7000, ignore_eos=True)
        self.is_started, self.is_over = threading.Event(), threading.Event()
        self.longest, self.num_events = 0, 0
        self.thread = threading.Thread(target=self.read)
        self.thread.start()
        assert self.is_started.wait(30)

    def read(self):
        last = time.monotonic()
        for _ in self.stream:
            now = time.monotonic()
            if self.is_started.is_set():
                self.longest = max(self.longest, now - last)
            last = now
            self.num_events += 1
            self.is_started.set()
            if self.is_over.is_set():
                return

    def finish(self):
        self.is_over.set()
        self.thread.join(30)
        self.stream.close()
        return self.longest


class LongRuns(PodCase):
    # Runs are cut after 25,000 characters of one kind, so the ids repeat from there on.
    RUN = 25_000

    def check(self, character):
        piece = self.tokenize(character * self.RUN)
        body = json.dumps({"prompt": character * MILLION})
        chat = json.dumps({"messages": [{"role": "user", "content": character * MILLION}], "max_tokens": 1})
        headers = {"Content-Type": "application/json"}
        gaps = Gaps(self.pod)
        started = time.monotonic()
        answer = self.post("/tokenize", body, headers=headers)
        took = time.monotonic() - started
        refused = self.post("/v1/chat/completions", chat, headers=headers)
        self.assertGreater(gaps.num_events, 1)
        longest = gaps.finish()
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.json()["tokens"], piece * (MILLION // self.RUN))
        self.assertLess(took, 4 * TIME_FACTOR)
        self.assertEqual((refused.status, self.error_of(refused)["code"]), (400, "context_length_exceeded"))
        self.assertLess(longest, 0.5 * TIME_FACTOR, "another client's stream stood still")

    def test_letters(self):
        self.check("a")

    def test_carets(self):
        self.check("^")

    def test_spaces(self):
        self.check(" ")

    def test_line_feeds(self):
        self.check("\n")

    def test_han(self):
        self.check("日")

    def test_emoji(self):
        self.check("🎉")


if __name__ == "__main__":
    unittest.main()
