"""An expert server that gets no token for a whole request: nothing stalls, and the answer is that of one process."""

import json
import pathlib
import shutil
import struct
import tempfile
import unittest

from pod import MODEL, TIME_FACTOR, Pod

BIAS = "language_model.model.layers.{}.block_sparse_moe.gate.e_score_correction_bias"
NUM_STEPS = 1000
NEVER = -1000.0  # far below every score, which is between 0 and 1


def starve(folder, experts):
    """Rewrites the routers' biases in place, so that none of `experts` is ever chosen."""
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    config = json.loads((folder / "config.json").read_text())["text_config"]
    for layer in range(config["first_k_dense_replace"], config["num_hidden_layers"]):
        path = folder / index[BIAS.format(layer)]
        data = bytearray(path.read_bytes())
        header_end = 8 + struct.unpack("<Q", data[:8])[0]
        tensor = json.loads(data[8:header_end])[BIAS.format(layer)]
        assert tensor["dtype"] == "F32", tensor
        for expert in experts:
            struct.pack_into("<f", data, header_end + tensor["data_offsets"][0] + 4 * expert, NEVER)
        path.write_bytes(data)
    return config


def halves(config):
    """Every expert whole: the first half on spark-1, the second on spark-2."""
    num, width = config["num_experts"], config["moe_intermediate_size"]
    layer = [[[0, width, 2 * expert // num]] for expert in range(num)]
    first = config["first_k_dense_replace"]
    num_layers = config["num_hidden_layers"] - first
    return {"format": "k3pod-placement-1", "epoch": 1, "first_layer": first, "num_layers": num_layers,
            "num_experts": num, "width": width, "holders": ["spark-1", "spark-2"], "layers": [layer] * num_layers}


class EmptyNode(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="k3pod-empty-"))
        cls.model = cls.folder / "model"
        shutil.copytree(MODEL, cls.model)
        num_experts = json.loads((MODEL / "config.json").read_text())["text_config"]["num_experts"]
        config = starve(cls.model, range(num_experts // 2, num_experts))
        cls.placement = cls.folder / "placement.json"
        cls.placement.write_text(json.dumps(halves(config)))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    def generate(self, pod):
        """A thousand decode steps of a batch of one; greedy."""
        answer = pod.request("POST", "/v1/completions", {
            "prompt": "What is 47 + 38?", "max_tokens": NUM_STEPS, "ignore_eos": True, "temperature": 0,
            "return_token_ids": True}, timeout=60 * TIME_FACTOR)
        self.assertEqual(answer.status, 200, answer.body[:500])
        ids = answer.json()["choices"][0]["token_ids"]
        self.assertEqual(len(ids), NUM_STEPS)
        return ids

    def test_it_stalls_nothing_and_changes_no_token_in_a_thousand_steps(self):
        exact = {"reply": '"f32"'}
        with Pod(experts=0, model=self.model, station={"expert_budget": '"64 MiB"'}, exchange=exact) as alone:
            alone.start()
            reference = self.generate(alone)
        with Pod(model=self.model, placement_file=self.placement, exchange=exact) as pod:
            pod.start()
            self.assertEqual(self.generate(pod), reference)
            metrics = pod.metrics()
            self.assertGreater(metrics['k3pod_exchange_rows_total{node="spark-1"}'], NUM_STEPS)
            self.assertEqual(metrics['k3pod_exchange_rows_total{node="spark-2"}'], 0)
            for name in ["k3pod_exchange_resends_total", "k3pod_exchange_deadline_failures_total"]:
                self.assertEqual([v for k, v in metrics.items() if k.startswith(name) and v != 0], [])
            steps = [sum(v for k, v in metrics.items() if k.startswith("k3pod_engine_step_seconds_" + part) and
                         'kind="decode"' in k) for part in ["sum", "count"]]
            mean = steps[0] / steps[1]
            self.assertLess(mean, 0.02 * TIME_FACTOR, "a step takes longer than one of a balanced pod ever does")
            self.assertEqual(pod.health().status, 200)


if __name__ == "__main__":
    unittest.main()
