"""Requests side by side: admission, recycled memory, no crosstalk, and the same answer whatever else runs."""

import concurrent.futures
import os
import random
import time
import unittest

from chat_chunks import ChatChunks, message_of
from pod import TIME_FACTOR, PodCase, Stream, wait_for
from questions import WORDS, generate

SEED = int(os.environ.get("POD_SEED", time.time_ns() % 1_000_000))
CHAT = "/v1/chat/completions"


def user(text):
    return [{"role": "user", "content": text}]


def in_parallel(count, function, items):
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(function, items))


class SmallPool(PodCase):
    """A pool of 16 pages of 64 tokens, far less than the context."""

    options = {"station": {"kv_tokens": 1024, "max_num_seqs": 8, "max_batch_tokens": 64, "max_model_len": 8192,
                           "default_max_tokens": 200, "queue_limit": 100}}
    POOL = 1024

    def test_what_cannot_fit_is_refused_with_the_figures_and_blocks_nobody(self):
        for prompt, limit in [([100] * 900, 200), ([100] * 2000, 10), ([100], 1024), ([100] * 1024, 1)]:
            started = time.monotonic()
            error = self.refused({"prompt": prompt, "max_tokens": limit}, "/v1/completions")
            self.assertLess(time.monotonic() - started, 1 * TIME_FACTOR)
            self.assertIn("1024", error["message"])
            self.assertEqual(error["code"], "context_length_exceeded")
            self.assertIn(str(len(prompt)), error["message"])
            self.assertEqual(self.complete([100] * 10, max_tokens=2)["usage"]["completion_tokens"], 2)

    def test_the_pool_is_the_context_and_the_log_says_so(self):
        self.assertEqual(self.pod.request("GET", "/v1/models").json()["data"][0]["max_model_len"], self.POOL)
        self.assertIn("kv_tokens 1024 is below max_model_len: prompt and output of a request may have 1024 tokens",
                      self.pod.station.text())

    def test_requests_around_the_limit_mix_with_normal_ones(self):
        text = "What is 47 + 38?"
        prompt_tokens = len(self.ok("/tokenize", {"messages": user(text)})["tokens"])
        room = self.POOL - prompt_tokens

        def ask(extra):
            body = {"messages": user(text), "temperature": 0, "max_tokens": 50 if extra is None else room + extra}
            answer = self.post(CHAT, body, timeout=120)
            return answer.status, answer.status == 200 and answer.json()["choices"][0]["message"]["content"]
        for extra, answer in zip([-1, 0, 1, None] * 6, in_parallel(12, ask, [-1, 0, 1, None] * 6)):
            if extra == 1:
                self.assertEqual(answer[0], 400)
            elif extra is None:
                self.assertEqual(answer[0], 200)
            else:
                self.assertEqual(answer, (200, "47 + 38 = 85."))
        self.pod.wait_idle()

    def test_two_requests_of_most_of_the_pool_both_finish(self):
        prompt = [100 + i for i in range(500)]
        answers = in_parallel(2, lambda p: self.complete(p, max_tokens=115, ignore_eos=True), [prompt, prompt[::-1]])
        self.assertEqual([a["usage"]["completion_tokens"] for a in answers], [115, 115])
        self.pod.wait_idle()

    def test_recycled_pages_hold_nothing_of_the_past(self):
        fields = {"messages": user("Tell me a story about a fox."), "temperature": 0, "logprobs": True,
                  "top_logprobs": 5}
        first = self.ok(CHAT, fields)["choices"]
        for turn in range(3):
            others = generate(24, SEED + turn)  # two to five pages each: three pools and more
            in_parallel(8, lambda q: self.ok(CHAT, dict(q.body(), max_tokens=150)), others)
            self.assertEqual(self.ok(CHAT, fields)["choices"], first, f"seed {SEED}, turn {turn}")


class QueueLimit(PodCase):
    options = {"station": {"max_num_seqs": 2, "queue_limit": 2, "max_batch_tokens": 64}}

    def test_a_full_queue_is_429_with_retry_after(self):
        body = {"prompt": "a", "max_tokens": 4000, "ignore_eos": True}
        streams = [Stream(self.pod.port, "/v1/completions", body) for _ in range(4)]
        wait_for(lambda: (self.pod.running(), self.pod.waiting()) == (2, 2), 10 * TIME_FACTOR, "not two and two")
        for fields in [{}, {"stream": True}, {"n": 3}]:
            answer = self.post("/v1/completions", {"prompt": "a", "max_tokens": 1, **fields})
            self.assertEqual(answer.status, 429, fields)
            self.assertEqual(self.error_of(answer)["type"], "rate_limit_error")
            self.assertGreaterEqual(int(answer.headers["Retry-After"]), 1)
        self.assertEqual(self.pod.metric("k3pod_engine_rejected_requests_total"), 3)
        self.assertEqual((self.pod.running(), self.pod.waiting()), (2, 2))
        self.assertEqual(self.pod.health().status, 200)
        for stream in streams:
            stream.close()
        self.pod.wait_idle()
        self.assertEqual(self.complete("a", max_tokens=1)["usage"]["completion_tokens"], 1)

    def test_more_choices_than_ever_fit_are_400(self):
        error = self.refused({"prompt": "a", "n": 5, "max_tokens": 1}, "/v1/completions")
        self.assertEqual(error["param"], "n")
        self.assertIn("5 choices are asked for, but one request may have 4 here", error["message"])
        self.assertEqual(len(self.complete(["a", "b"], n=2, max_tokens=1)["choices"]), 4)
        self.pod.wait_idle()


class SameAnswers(PodCase):
    """Small steps and chunks, so that company changes how everything is cut."""

    options = {"station": {"max_num_seqs": 32, "max_batch_tokens": 64, "queue_limit": 200}}

    def noise(self, index):
        """Requests of other shapes: long prompts, hot sampling, early ends."""
        rng = random.Random(SEED + index)
        body = {"prompt": [rng.randrange(2048) for _ in range(rng.randint(1, 300))], "max_tokens": rng.randint(1, 60),
                "temperature": rng.choice([0, 1]), "ignore_eos": True}
        return self.ok("/v1/completions", body, timeout=120)

    def check_same(self, body, num_alone, num_together):
        """Equal choices, logprobs included: alone, and among copies of itself and others."""
        body = dict(body, logprobs=True, top_logprobs=3)

        def ask(kind):
            return self.noise(kind) if kind >= 0 else self.ok(CHAT, body, timeout=120)["choices"]
        alone = [ask(-1) for _ in range(num_alone)]
        kinds = [-1, 0] * num_together
        kinds = [kind if kind < 0 else i for i, kind in enumerate(kinds)]
        together = [a for kind, a in zip(kinds, in_parallel(16, ask, kinds)) if kind < 0]
        for answer in alone[1:] + together:
            self.assertEqual(answer, alone[0], f"seed {SEED}")

    def test_greedy_answers_are_the_same_alone_and_in_company(self):
        self.check_same({"messages": user("Tell me a story about a fox."), "temperature": 0}, 10, 20)

    def test_long_prompts_are_the_same_however_they_are_cut(self):
        text = " ".join(random.Random(3).choices(WORDS, k=90))
        self.check_same({"messages": user("Repeat exactly: " + text), "temperature": 0, "max_tokens": 40}, 2, 6)

    def test_seeded_answers_are_the_same_alone_and_in_company(self):
        self.check_same({"messages": user("Tell me a story about a dog."), "temperature": 1, "seed": 11,
                         "max_tokens": 80}, 2, 10)

    def test_streams_never_hold_each_others_words(self):
        rng = random.Random(SEED)
        texts = [" ".join(rng.sample(WORDS, 4)) for _ in range(32)]
        alone = [self.chat("Repeat exactly: " + text)["choices"][0]["message"] for text in texts]
        is_right = [message["content"] == text for text, message in zip(texts, alone)]
        self.assertGreater(sum(is_right), 24, f"seed {SEED}")
        for turn in range(2):
            # None: to the end; else the number of events after which the client leaves.
            cuts = [rng.randrange(30) if rng.random() < 0.3 else None for _ in texts]
            for text, message, cut, seen in zip(texts, alone, cuts,
                                                in_parallel(32, self.read_stream, zip(texts, cuts))):
                with self.subTest(text, seed=SEED, turn=turn, cut=cut):
                    if cut is None:
                        self.assertEqual(seen, message)
                    else:
                        self.assertTrue(message["content"].startswith(seen))
        self.pod.wait_idle()

    def read_stream(self, job):
        text, cut = job
        stream = self.pod.stream("Repeat exactly: " + text)
        if cut is None:
            return message_of(ChatChunks(self).read(stream).choices[0])
        seen = ""
        for _, event in zip(range(cut), stream):
            seen += event["choices"][0]["delta"].get("content", "")
        stream.close()
        return seen


if __name__ == "__main__":
    unittest.main()
