"""k3pod check: a machine without RDMA passes, a pod is looked at over control, a checkpoint as it is loaded."""

import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from pod import BINARY, MODEL, ROOT, TIME_FACTOR, Pod

LIMIT = 60 * TIME_FACTOR


def check(*arguments):
    return subprocess.run([str(BINARY), "check", *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT)


def lines_of(done):
    return {(line["node"], line["check"]): line for line in json.loads(done.stdout)["checks"]}


class Check(unittest.TestCase):
    def test_this_machine_passes_for_a_pod_over_tcp(self):
        done = check("--pod", ROOT / "configs" / "tiny.toml", "--node", "station", "--json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = lines_of(done)
        self.assertEqual(lines["station", "rdma"]["expected"], "not needed (transport is not rc)")
        self.assertEqual(lines["station", "route to spark-1"]["found"], "from 127.0.0.1 over lo")

    def test_a_running_pod_is_looked_at_from_the_station(self):
        with Pod(experts=2) as pod:
            pod.start()
            done = check("--pod", pod.file, "--json")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            lines = lines_of(done)
            for node in ("spark-1", "spark-2"):
                self.assertEqual(lines[node, "build id"]["verdict"], "ok")
                self.assertEqual(lines[node, "clock"]["verdict"], "ok")
                self.assertIn("available", lines[node, "memory"]["found"])

    def test_a_server_that_does_not_run_is_a_failure_with_the_way_to_look_at_it(self):
        done = check("--pod", ROOT / "configs" / "tiny-8.toml")
        self.assertEqual(done.returncode, 1)
        self.assertIn("k3pod check --pod FILE --node spark-8", done.stdout)
        self.assertIn("8 of the checks failed", done.stderr)

    def test_an_unknown_node_is_refused_by_name(self):
        done = check("--pod", ROOT / "configs" / "tiny.toml", "--node", "spark-9")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--node spark-9", done.stderr)

    def test_a_checkpoint_is_checked_as_it_is_loaded(self):
        done = check("--model", MODEL)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("256 as mxfp4, 0 kept as nvfp4", done.stdout)

    def test_a_checkpoint_that_was_cut_fails_and_names_the_file(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="k3pod-check-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        shutil.copytree(MODEL, folder / "model")
        shard = sorted((folder / "model").glob("*.safetensors"))[0]
        with open(shard, "r+b") as file:
            file.truncate(shard.stat().st_size - 4096)
        done = check("--model", folder / "model")
        self.assertEqual(done.returncode, 1)
        self.assertIn(shard.name, done.stdout)


if __name__ == "__main__":
    unittest.main()
