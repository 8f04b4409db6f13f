"""k3pod fabric: link and hop against two serving ends on loopback, and the constants that predict then reads."""

import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from pod import BINARY, TIME_FACTOR, Pod

LIMIT = 120 * TIME_FACTOR


class Fabric(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="k3pod-fabric-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.pod = self.enterContext(Pod(experts=2))
        for name in ("spark-1", "spark-2"):
            server = subprocess.Popen([str(BINARY), "fabric", "serve", "--pod", str(self.pod.file), "--node", name],
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.addCleanup(server.wait, 30)
            self.addCleanup(server.terminate)

    def fabric(self, *arguments):
        done = subprocess.run([str(BINARY), "fabric", *map(str, arguments), "--pod", str(self.pod.file), "--json",
                               "--rounds", "20"], capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def test_link_and_hop_fill_the_constants_of_predict(self):
        first, second = self.folder / "first.toml", self.folder / "second.toml"
        links = self.fabric("link", "--out", first)["links"]
        self.assertEqual([link["server"] for link in links], ["spark-1", "spark-2"])
        cases = self.fabric("hop", "--constants", first, "--out", second)["cases"]
        self.assertEqual(len(cases), 2 * 2 * 2 * 4)  # servers, work, bulk, rows
        for case in cases:
            self.assertAlmostEqual(case["sum_of_parts"], 1, delta=0.05)
            self.assertGreaterEqual(case["p99_us"], case["p50_us"])
        text = second.read_text()
        self.assertIn("measured by k3pod fabric link", text)
        self.assertIn("measured by k3pod fabric hop, 2 servers", text)


if __name__ == "__main__":
    unittest.main()
