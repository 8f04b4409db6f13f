"""k3pod predict: what it prints of the real pod and of small ones, and what it refuses."""

import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

from pod import BINARY, ROOT, TIME_FACTOR

LIMIT = 60 * TIME_FACTOR
K3_CONFIG = ROOT / "configs" / "Kimi-K3-NVFP4.config.json"
TINY = ROOT / "configs" / "tiny.toml"


def placement(holders, layers, experts, width, holder_of):
    """Whole experts."""
    return {"format": "k3pod-placement-1", "epoch": 1, "first_layer": 1, "num_layers": layers,
            "num_experts": experts, "width": width, "holders": holders,
            "layers": [[[[0, width, holder_of(layer, expert)]] for expert in range(experts)]
                       for layer in range(layers)]}


class Predict(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="k3pod-predict-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.file = self.folder / "placement.json"

    def place(self, value):
        self.file.write_text(value if isinstance(value, str) else json.dumps(value))

    def predict(self, *arguments, pod=TINY):
        return subprocess.run([str(BINARY), "predict", "--pod", str(pod), "--placement", str(self.file),
                               *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT)

    def json(self, *arguments, pod=TINY):
        done = self.predict("--json", *arguments, pod=pod)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def refusal(self, *arguments, code=1):
        done = self.predict(*arguments)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertEqual(done.stdout, "")
        return done.stderr

    def place_tiny(self):
        self.place(placement(["spark-1", "spark-2"], 8, 32, 128, lambda layer, expert: expert % 2))

    def place_k3(self):
        """Even experts on the Sparks, the others in the station's memories: one in five in HBM."""
        holders = [f"spark-{i + 1}" for i in range(8)] + ["station.host", "station.hbm"]
        self.place(placement(holders, 92, 896, 3072, lambda layer, expert:
                             expert % 8 if expert % 3 else 8 + (expert % 15 == 0)))

    def test_the_parts_of_a_step_add_up(self):
        self.place_tiny()
        found = self.json()
        step = found["step"]
        parts = [key for key in step if key.endswith("_s") and key not in ("total_s", "error_s")]
        self.assertEqual(len(parts), 9)
        self.assertAlmostEqual(sum(step[part] for part in parts), step["total_s"], places=9)
        self.assertAlmostEqual(found["tokens_per_s"], 1 / step["total_s"], places=6)
        self.assertEqual([holder["name"] for holder in step["holders"]], ["spark-1", "spark-2"])
        self.assertIsNone(found["alternating"])

    def test_every_constant_comes_with_its_source(self):
        self.place_tiny()
        constants = self.json()["constants"]
        self.assertEqual(sorted(constants), ["exchange", "routing", "server", "station"])
        for section in constants.values():
            for constant in section.values():
                self.assertTrue(constant["source"])

    def test_a_file_of_constants_takes_the_place_of_those_built_in(self):
        self.place_tiny()
        text = (ROOT / "configs" / "constants-k3-pod.toml").read_text()
        self.assertIn('"23 us"', text)
        slow = self.folder / "slow.toml"
        slow.write_text(text.replace('"23 us"', '"1023 us"'))
        before, after = self.json(), self.json("--constants", slow)
        self.assertAlmostEqual(after["step"]["total_s"] - before["step"]["total_s"], 8 * 1e-3, delta=0.4e-3)
        self.assertEqual(after["constants"]["exchange"]["round_trip"]["value"], "1.023 ms")

    def test_the_real_pod_is_predicted_with_its_cables_and_power(self):
        self.place_k3()
        arguments = ("--config", K3_CONFIG, "--context", 4096)
        found = self.json(*arguments, pod=ROOT / "configs" / "k3-pod.toml")
        self.assertGreater(found["tokens_per_s"], 15)
        self.assertLess(found["tokens_per_s"], 60)
        self.assertEqual([s["room"] for s in found["fabric"]["switches"]], [4, 4])
        self.assertEqual([s["expert_servers"] for s in found["fabric"]["switches"]], [4, 4])
        self.assertEqual(found["constants"]["exchange"]["station_link"]["value"], "400 Gb/s")
        problems = [f["text"] for f in found["fabric"]["findings"] if f["problem"]]
        self.assertEqual(len(problems), 1)
        self.assertIn("the line carries 1440 W continuously", problems[0])
        purchases = [p["what"] for p in found["purchases"]]
        self.assertEqual(purchases[0], "1 more expert server")
        self.assertEqual(purchases[-1], "32 GiB more of station.hbm")
        text = self.predict(*arguments, pod=ROOT / "configs" / "k3-pod.toml").stdout
        self.assertIn("oversubscribed 2:1", text)
        # Even eighths are more than a Spark has room for.
        self.assertIn("spark-1 is to hold 119461773312 bytes of experts, its budget is", found["overfull"])
        self.assertIn("PROBLEM: " + found["overfull"], text)
        self.assertIn("tokens/s; a step takes", text)

    def test_the_picture_is_a_picture(self):
        self.place_k3()
        picture = self.folder / "step.svg"
        done = self.predict("--config", K3_CONFIG, "--svg", picture, "--batch", 4,
                            pod=ROOT / "configs" / "k3-pod.toml")
        self.assertEqual(done.returncode, 0, done.stderr)
        root = xml.etree.ElementTree.parse(picture).getroot()
        self.assertTrue(root.tag.endswith("svg"))
        text = "".join(root.itertext())
        for name in ("station", "spark-8", "station.host", "as it is", "1 more expert server"):
            self.assertIn(name, text)

    def test_batches_have_a_second_way_of_overlap(self):
        self.place_tiny()
        found = self.json("--batch", 8, "--drafts", 2, "--acceptance", 0.5)
        self.assertEqual(found["tokens_per_step"], 2.0)
        self.assertAlmostEqual(found["tokens_per_s"], 16 / found["step"]["total_s"], places=6)
        self.assertGreater(found["alternating"]["step_s"], 0)

    def test_what_does_not_belong_together_is_refused(self):
        self.place(placement(["spark-1", "elsewhere"], 8, 32, 128, lambda layer, expert: expert % 2))
        self.assertIn("'elsewhere', which is no node of", self.refusal())
        self.place(placement(["spark-1"], 8, 31, 128, lambda layer, expert: 0))
        self.assertIn("places 31 experts of width 128", self.refusal())
        self.place("{")
        self.assertIn("placement.json", self.refusal())
        self.file.unlink()
        self.assertIn("placement.json", self.refusal())

    def test_arguments_out_of_range_are_refused(self):
        self.place_tiny()
        for arguments, said in [(("--batch", 0), "the batch is 0"), (("--batch", 5000), "the batch is 5000"),
                                (("--drafts", -1), "the number of drafts is -1"),
                                (("--drafts", 1, "--acceptance", 2), "the acceptance is 2"),
                                (("--context", -5), "the context is -5"),
                                (("--chunk", 70000), "the prefill chunk is 70000"),
                                (("--constants", "/nowhere.toml"), "/nowhere.toml"),
                                (("--config", "/nowhere.json"), "/nowhere.json"),
                                (("--svg", "/nowhere/step.svg"), "cannot write /nowhere/step.svg")]:
            self.assertIn(said, self.refusal(*arguments))
        self.assertIn("--batch", self.refusal("--batch", "many", code=2))
        self.assertIn("--pack", self.refusal("--pack", "int4", code=2))
        self.assertIn("--acceptance requires --drafts", self.refusal("--acceptance", 0.5, code=2))


if __name__ == "__main__":
    unittest.main()
