"""Damaged checkpoints are refused by tensor, on whatever node they lie; sound ones of either release serve."""

import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from pod import BUILD, MODEL, TIME_FACTOR, Pod, request, wait_for
from questions import generate

PROGRAM = BUILD / "tests" / "support" / "make_checkpoint"
LIMIT = 30 * TIME_FACTOR
LAYERS = "language_model.model.layers."
EXPERT = LAYERS + "2.block_sparse_moe.experts.3.w1"
QUERY = LAYERS + "0.self_attn.q_proj"


def shard_of(tensor, folder=MODEL):
    return json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"][tensor]


SHARD = shard_of(EXPERT + ".weight")

# What is done to the checkpoint, and what the one line of the refusal has to say.
OPENING = {
    "no_input_scale": (["drop-tensor", EXPERT + ".input_scale"],
                       ["layer 2, expert 3", EXPERT + ".input_scale is missing"]),
    "no_expert_weight": (["drop-tensor", EXPERT + ".weight"], ["layer 2, expert 3", EXPERT + ".weight is missing"]),
    "no_router_bias": (["drop-tensor", LAYERS + "1.block_sparse_moe.gate.e_score_correction_bias"],
                       [LAYERS + "1.block_sparse_moe.gate.e_score_correction_bias is missing"]),
    "dtype": (["retype", EXPERT + ".weight", "I8"], [EXPERT + ".weight", SHARD, "expected U8 [128, 64]"]),
    "shape": (["reshape", EXPERT + ".weight", "[64,128]"],
              [EXPERT + ".weight", SHARD, "is U8 [64, 128], expected U8 [128, 64]"]),
    "truncated": (["truncate", SHARD, "1048576"], [SHARD, "declares", "{declared}", "{actual}", "truncated"]),
    "overlap": (["overlap", SHARD, EXPERT + ".weight", "16"], [SHARD, EXPERT + ".weight", "overlap"]),
    "header": (["oversize-header", SHARD], [SHARD, "4294967295", "the limit is 100000000"]),
    "unlisted_bf16": (["bf16", QUERY], [QUERY + ".weight", "stored as bf16", "says fp8_tile"]),
}


def make(folder, kind, *arguments):
    done = subprocess.run([str(PROGRAM), kind, str(MODEL), str(folder), *arguments], capture_output=True, text=True,
                          timeout=60 * TIME_FACTOR)
    if done.returncode != 0:
        raise AssertionError(f"make_checkpoint {kind}: {done.stderr}")
    return folder


def edit_json(path, edit):
    value = json.loads(path.read_text())
    edit(value)
    path.write_text(json.dumps(value))


def rename_tensor(folder, old, new):
    """In the shard's header and in the index."""
    path = folder / shard_of(old, folder)
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    header[new] = header.pop(old)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size:])

    def edit(index):
        index["weight_map"][new] = index["weight_map"].pop(old)
    edit_json(folder / "model.safetensors.index.json", edit)


class CheckpointCase(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="k3pod-checkpoint-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.model = self.folder / "model"

    def start(self, pod):
        for node in [*pod.experts.values(), pod.station]:
            node.start()

    def check_last_line(self, node, words):
        last = node.text().strip().splitlines()[-1]
        for word in words:
            self.assertIn(word, last)

    def check_station_refuses(self, words):
        """The station alone: it opens its folder before it dials anybody."""
        with Pod(model=self.model) as pod:
            pod.station.start()
            self.assertEqual(pod.station.wait(LIMIT), 1)
            self.check_last_line(pod.station, words)
            self.assertNotIn("loaded", pod.station.text())

    def pod_with_own_copy(self):
        """A pod in which spark-2 has this model, the others the sound one."""
        pod = self.enterContext(Pod())
        file = pod.dir / "spark-2.toml"
        file.write_text(pod.file.read_text().replace(str(MODEL), str(self.model)))
        pod.experts["spark-2"] = pod.make_node("spark-2", "expert", "--node", "spark-2", pod_file=file)
        return pod

    def check_pod_refuses(self, words):
        """The damaged copy is spark-2's: it and the whole start fail, and nobody was ever ready."""
        pod = self.pod_with_own_copy()
        self.start(pod)
        self.assertEqual(pod.station.wait(LIMIT), 1)
        self.check_last_line(pod.station, ["spark-2", *words])
        self.assertNotIn("is ready: http", pod.station.text())
        self.assertEqual(pod.experts["spark-2"].wait(LIMIT), 1)
        self.check_last_line(pod.experts["spark-2"], words)
        self.assertEqual(pod.experts["spark-1"].stop(), 0)


class Damaged(CheckpointCase):
    def check(self, words):
        sizes = {"declared": (MODEL / SHARD).stat().st_size - 4, "actual": (self.model / SHARD).stat().st_size}
        words = [word.format(**sizes) for word in words]
        self.check_station_refuses(words)
        self.check_pod_refuses(words)

    def test_experts_of_two_formats(self):
        make(self.model, "copy")
        rename_tensor(self.model, EXPERT + ".weight", EXPERT + ".weight_packed")
        self.check(["layer 2, expert 3", EXPERT + ".weight_packed", "mxfp4", "expected nvfp4", "mixed formats"])

    def test_a_tensor_that_no_header_has(self):
        make(self.model, "copy")

        def edit(index):
            index["weight_map"]["language_model.stranger.weight"] = SHARD
        edit_json(self.model / "model.safetensors.index.json", edit)
        self.check([SHARD, "language_model.stranger.weight is missing"])

    def test_a_missing_shard_is_named_with_the_reason(self):
        make(self.model, "copy")
        (self.model / SHARD).unlink()
        words = [str(self.model / SHARD), "No such file or directory"]
        self.check_station_refuses(words)
        self.check_pod_refuses(words)


def damage_test(arguments, words):
    def test(self):
        make(self.model, *arguments)
        self.check(words)
    return test


for name, case in OPENING.items():
    setattr(Damaged, f"test_{name}", damage_test(*case))


class NotANumber(CheckpointCase):
    """Values are read when shards load, so it is the node that holds them which refuses."""

    def test_a_scale_of_an_expert_names_node_layer_expert_and_tensor(self):
        make(self.model, "nan-scale", EXPERT + ".weight_scale", "5")
        words = ["layer 2 expert 3", EXPERT + ".weight_scale", SHARD, "NaN"]
        for mode in ["whole", "sliced"]:
            with self.subTest(mode), Pod(model=self.model, mode=mode) as pod:
                self.start(pod)
                self.assertEqual(pod.station.wait(LIMIT), 1)
                self.check_last_line(pod.station, ["spark-", *words])
                holders = [n for n in pod.experts.values() if "NaN" in n.text()]
                self.assertTrue(holders)
                for node in holders:
                    health = wait_for(lambda: request(pod.http_ports[node.name], "GET", "/health"), 10, "no health")
                    self.assertEqual(health.status, 503)
                for node in pod.experts.values():
                    self.assertEqual(node.stop(), 0)

    def test_a_copy_damaged_behind_the_start_keeps_the_pod_unready_until_it_is_mended(self):
        shutil.copytree(MODEL, self.model)
        pod = self.pod_with_own_copy()
        self.start(pod)
        pod.wait_ready()
        server = pod.experts["spark-2"]
        server.kill()
        for expert in range(32):  # spark-2 holds some of them
            self.set_nan(LAYERS + f"2.block_sparse_moe.experts.{expert}.w1.weight_scale")
        server.start()
        wait_for(lambda: (h := pod.health()) and h.status == 503 and b"NaN" in h.body and b"spark-2" in h.body, LIMIT,
                 "/health does not name the damage")
        self.assertTrue(pod.station.is_running(), pod.station.tail())
        server.kill()
        shutil.rmtree(self.model)
        shutil.copytree(MODEL, self.model)
        server.start()
        pod.wait_ready()
        self.assertEqual(pod.chat("What is 2 + 2?")["content"], "2 + 2 = 4.")

    def set_nan(self, tensor):
        path = self.model / shard_of(tensor)
        with open(path, "r+b") as file:
            size = int.from_bytes(file.read(8), "little")
            begin, _ = json.loads(file.read(size))[tensor]["data_offsets"]
            file.seek(8 + size + begin)
            file.write(b"\x7f")

    def test_a_scale_of_the_station_names_the_tensor(self):
        make(self.model, "nan-scale", QUERY + ".weight_scale", "0")
        with Pod(model=self.model) as pod:
            pod.station.start()
            self.assertEqual(pod.station.wait(LIMIT), 1)
            self.check_last_line(pod.station, [QUERY + ".weight_scale", "NaN"])


class OtherCheckpoint(CheckpointCase):
    def test_a_node_with_another_config_is_refused_with_both_fingerprints(self):
        make(self.model, "config", "/text_config/rms_norm_eps", "2e-5")
        pod = self.pod_with_own_copy()
        self.start(pod)
        wait_for(lambda: "model fingerprint differs" in pod.station.text(), LIMIT, "the models are not compared")
        health = pod.health()
        self.assertEqual(health.status, 503)
        self.assertIn("spark-2", health.body.decode())
        self.assertIn("copy the same checkpoint", health.body.decode())

    def test_lists_of_unquantized_modules_may_be_spelt_in_three_ways(self):
        make(self.model, "bf16", QUERY)
        found = []
        for entry in ["layers.0.self_attn.q_proj", QUERY, "*layers.0.self_attn.q_proj"]:
            with self.subTest(entry):
                edit_json(self.model / "config.json", lambda c: c["quantization_config"].update(ignore=[entry]))
                with Pod(model=self.model) as pod:
                    pod.start()
                    body = {"prompt": "The capital of Japan", "temperature": 0, "max_tokens": 6, "logprobs": 5}
                    choice = pod.request("POST", "/v1/completions", body).json()["choices"][0]
                    self.assertEqual(choice["text"], " is Tokyo.")
                    found.append(choice["logprobs"])
        self.assertEqual(found, [found[0]] * 3)

    def test_the_release_with_mxfp4_experts_answers_rightly(self):
        make(self.model, "mxfp4")
        for mode in ["whole", "sliced"]:
            with self.subTest(mode), Pod(model=self.model, mode=mode) as pod:
                pod.start()
                wrong = []
                for question in generate(20, seed=11):
                    answer = pod.request("POST", "/v1/chat/completions", question.body(), timeout=120)
                    self.assertEqual(answer.status, 200, answer.body[:500])
                    message = answer.json()["choices"][0]["message"]
                    if not question.is_right(message):
                        wrong.append((question.text, message))
                self.assertEqual(wrong, [])

    def test_shards_that_keep_nvfp4_are_counted_in_log_and_metrics(self):
        make(self.model, "set-byte", EXPERT + ".weight_scale", "0", "0x39")  # 1.125 has no MXFP4 form
        with Pod(model=self.model, mode="whole") as pod:
            pod.start()
            shards = {}
            for name, port in pod.http_ports.items():
                values = pod.metrics(port)
                shards[name] = [values[f'k3pod_experts_resident_shards{{format="{format}"}}']
                                for format in ("mxfp4", "nvfp4")]
                self.assertIn(f"{shards[name][0]:.0f} mxfp4, {shards[name][1]:.0f} kept as nvfp4",
                              pod.experts[name].text())
            self.assertEqual([sum(counts) for counts in shards.values()], [128, 128])
            self.assertEqual(sum(nvfp4 for _, nvfp4 in shards.values()), 1)
            self.assertIn("85", pod.chat("What is 47 + 38?")["content"])


if __name__ == "__main__":
    unittest.main()
