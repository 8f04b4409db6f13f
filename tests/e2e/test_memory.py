"""Memory is the plan: an expert server in a cgroup that has what `k3pod plan` prints and no more."""

import contextlib
import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import wide_model
from pod import BINARY, TIME_FACTOR, Pod

MIB = 1 << 20
OVERHEAD = 96 * MIB  # docs/staging.md: what a server has that serves nothing
FACTOR = 128  # experts 16,384 wide: 849 MiB of them


class Cgroup:
    """A memory cgroup, of version 2 or, where the machine still has it, 1."""

    ROOTS = [(pathlib.Path("/sys/fs/cgroup"), "memory.max", "memory.peak"),
             (pathlib.Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.max_usage_in_bytes")]

    def __init__(self):
        for root, limit, peak in self.ROOTS:
            self.path = root / f"k3pod-test-{pathlib.Path(tempfile.mktemp()).name}"
            with contextlib.suppress(OSError):
                self.path.mkdir()
                self.limit_file, self.peak_file = self.path / limit, self.path / peak
                if self.limit_file.exists() and self.peak_file.exists():
                    return
                self.path.rmdir()
        raise unittest.SkipTest("memory cgroups cannot be made here: needs root and a writable /sys/fs/cgroup")

    def limit(self, num_bytes):
        self.limit_file.write_text(str(num_bytes // 4096 * 4096))

    def peak(self):
        return int(self.peak_file.read_text())

    def enter(self, argv):
        """The command line that runs argv inside."""
        return ["/bin/sh", "-c", f'echo $$ > {self.path}/cgroup.procs && exec "$@"', "sh", *argv]

    def remove(self):
        with contextlib.suppress(OSError):
            self.path.rmdir()


class Memory(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="k3pod-memory-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.model = cls.folder / "model"
        wide_model.make(cls.model, FACTOR)

    def make_pod(self, source):
        pod = Pod(experts=1, model=self.model, budget="2 GiB", station={"kv_tokens": 2048, "max_num_seqs": 1})
        text = pod.file.read_text().replace("[placement]\n", '[placement]\npack = "mxfp4"\n')
        pod.file.write_text(text + f'[staging]\nsource = "{source}"\n')
        return pod

    def held_bytes(self, pod):
        plan = subprocess.run([str(BINARY), "plan", "--pod", str(pod.file), "--json"], capture_output=True, text=True,
                              timeout=120)
        self.assertEqual(plan.returncode, 0, plan.stderr)
        return next(h["held_bytes"] for h in json.loads(plan.stdout)["holders"] if h["name"] == "spark-1")

    def run_in_cgroup(self, source, is_limited):
        """The peak, resident and cache, of a server that loads its shards; and what it may be."""
        cgroup = Cgroup()
        self.addCleanup(cgroup.remove)
        with self.make_pod(source) as pod:
            held = self.held_bytes(pod)
            self.assertGreater(held, 800 * MIB)
            limit = int(1.02 * held) + OVERHEAD
            if is_limited:
                cgroup.limit(limit)
            node = pod.experts["spark-1"]
            node.argv = cgroup.enter(node.argv)
            pod.start(timeout=180 * TIME_FACTOR)
            self.assertGreaterEqual(pod.metric("k3pod_experts_resident_bytes", pod.http_ports["spark-1"]), held)
            self.assertTrue(node.is_running(), node.tail())
            return cgroup.peak(), limit

    def test_a_load_never_takes_more_than_the_plan_though_nothing_holds_it_back(self):
        for source in ["local", "station"]:
            with self.subTest(source=source):
                peak, limit = self.run_in_cgroup(source, is_limited=False)
                print(f"\n{source}: peak {peak / MIB:.0f} MiB of {limit / MIB:.0f} MiB")
                self.assertLessEqual(peak, limit)

    def test_a_load_lives_in_a_cgroup_of_that_size(self):
        for source in ["local", "station"]:
            with self.subTest(source=source):
                self.run_in_cgroup(source, is_limited=True)


if __name__ == "__main__":
    unittest.main()
