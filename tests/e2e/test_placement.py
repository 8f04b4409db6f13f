"""The planned placement is the applied one, and an infeasible one is refused with figures."""

import json
import subprocess
import unittest

from pod import BINARY, ROOT, Pod

EXPERT_BYTES = 27672  # of k3-tiny, as released
NUM_EXPERTS = 256
KEYS_OF_STATION = {"max_num_seqs": 8, "kv_tokens": 16384, "max_batch_tokens": 128}


def k3pod(*arguments):
    return subprocess.run([str(BINARY), *map(str, arguments)], capture_output=True, text=True, timeout=60)


def plan(pod, *arguments):
    return k3pod("plan", "--pod", pod.file, *arguments)


class Applied(unittest.TestCase):
    """Dry run, station and every expert server agree byte for byte."""

    def check(self, pod):
        planned = pod.dir / "placement.json"
        dry_run = plan(pod, "--out", planned)
        self.assertEqual(dry_run.returncode, 0, dry_run.stderr)
        pod.start()
        self.assertEqual(pod.request("GET", "/v1/pod/placement").body, planned.read_bytes())
        status = k3pod("status", "--pod", pod.file, "--placement", planned)
        self.assertEqual(status.returncode, 0, status.stdout + status.stderr)
        self.assertIn("is byte for byte that of", status.stdout)
        self.assertEqual(status.stdout.count("as the station says"), len(pod.names))
        answer = pod.chat("What is 47 + 38?", max_tokens=200)
        self.assertIn("85", answer["content"])
        return json.loads(planned.read_text())

    def columns(self, placement):
        """Of each holder; every expert's slices must tile its width."""
        held = dict.fromkeys(placement["holders"], 0)
        for layer in placement["layers"]:
            self.assertEqual(len(layer), placement["num_experts"])
            for slices in layer:
                self.assertEqual([s[0] for s in slices] + [placement["width"]], [0] + [s[1] for s in slices])
                for begin, end, holder in slices:
                    held[placement["holders"][holder]] += end - begin
        return held

    def test_mixed_budgets_of_eight_servers(self):
        # 8 x 0.95 of the model: 1 : 1 : 1 : 1 : 1 : 1 : 1 : 0.6
        one = NUM_EXPERTS * EXPERT_BYTES // 7
        budgets = [f"{one} B"] * 7 + [f"{one * 6 // 10} B"]
        with Pod(experts=8, mode="sliced", budget=budgets, bandwidth="1 GB/s",
                 station=KEYS_OF_STATION) as pod:
            held = self.columns(self.check(pod))
        self.assertLessEqual(held["spark-8"], held["spark-1"] * 0.65)
        self.assertGreaterEqual(held["spark-8"], held["spark-1"] * 0.55)

    def test_tiers_of_the_station(self):
        tier = '{ expert_budget = "1 MiB", bandwidth = "%s" }'
        station = dict(KEYS_OF_STATION, hbm=tier % "100 GB/s", host=tier % "10 GB/s")
        with Pod(experts=2, mode="whole", budget="4 MiB", bandwidth="10 GB/s", station=station) as pod:
            placement = self.check(pod)
        self.assertEqual(placement["holders"], ["station.hbm", "station.host", "spark-1", "spark-2"])
        for name, columns in self.columns(placement).items():
            self.assertGreater(columns, 0, name)

    def test_a_pod_without_bandwidths_is_filled_evenly(self):
        with Pod(experts=2, mode="whole", station=KEYS_OF_STATION) as pod:
            held = self.columns(self.check(pod))
        self.assertEqual(held["spark-1"], held["spark-2"])

    def test_another_placement_than_the_applied_one_is_told(self):
        with Pod(experts=2, mode="whole", station=KEYS_OF_STATION) as pod:
            other = pod.dir / "other.json"
            self.assertEqual(plan(pod, "--mode", "sliced", "--out", other).returncode, 0)
            pod.start()
            status = k3pod("status", "--pod", pod.file, "--placement", other)
            self.assertEqual(status.returncode, 1)
            self.assertIn("is not that of", status.stdout)
            pod.experts["spark-2"].stop()
            status = k3pod("status", "--pod", pod.file)
            self.assertEqual(status.returncode, 1)
            self.assertIn("spark-2", status.stdout)


class Traces(unittest.TestCase):
    def test_what_the_router_picked_is_a_trace_to_plan_with(self):
        with Pod(experts=2, mode="whole", budget="16 MiB", bandwidth="1 GB/s", station=KEYS_OF_STATION) as pod:
            pod.start()
            pod.chat("What is 47 + 38?", max_tokens=50)
            trace = pod.request("GET", "/v1/pod/trace").json()
            self.assertGreater(trace["tokens"], 20)
            for layer in trace["picks"]:
                self.assertEqual(sum(layer), 4 * trace["tokens"])
            file = pod.dir / "trace.json"
            file.write_text(json.dumps(trace))
            planned = plan(pod, "--trace", file, "--json")
            self.assertEqual(planned.returncode, 0, planned.stderr)
            step = json.loads(planned.stdout)["step"]
            self.assertLessEqual(step["slowest_s"], step["even_fill_s"])


class DoesNotFit(unittest.TestCase):
    def report(self, budgets, *arguments):
        with Pod(experts=len(budgets), mode="whole", budget=[f"{b} B" for b in budgets]) as pod:
            done = plan(pod, "--json", *arguments)
            return done.returncode, json.loads(done.stdout), pod

    def test_one_expert_too_few_and_then_enough(self):
        share = NUM_EXPERTS // 8 * EXPERT_BYTES
        code, report, _ = self.report([share] * 7 + [share - EXPERT_BYTES])
        self.assertEqual(code, 2)
        self.assertFalse(report["fits"])
        self.assertEqual(report["spare_experts"], -1)
        last = report["holders"][7]
        self.assertEqual((last["needed_bytes"], last["budget_bytes"], last["short_bytes"]),
                         (share, share - EXPERT_BYTES, EXPERT_BYTES))
        self.assertEqual((last["needed_experts"], last["short_experts"]), (32, 1))
        self.assertIn('[placement] pack = "mxfp4"', report["remedies"][0])
        code, report, _ = self.report([share] * 8)
        self.assertEqual(code, 0)
        self.assertEqual(report["spare_experts"], 0)

    def test_a_station_says_the_same_and_ends(self):
        with Pod(experts=2, mode="whole", budget="1 MiB") as pod:
            pod.station.start()
            self.assertEqual(pod.station.wait(30), 1)
            self.assertIn("256 experts, the budgets hold 74", pod.station.text())
            self.assertIn("spark-1 needs", pod.station.text())


class TheRealPod(unittest.TestCase):
    """configs/k3-pod.toml, planned from config.json alone."""

    def plan(self, *arguments):
        done = k3pod("plan", "--pod", ROOT / "configs" / "k3-pod.toml", "--json", *arguments)
        return done.returncode, json.loads(done.stdout)

    def test_fits_with_282_experts_to_spare(self):
        code, report = self.plan("--mode", "whole")
        self.assertEqual(code, 0)
        self.assertEqual(report["model"]["experts"], 82432)
        self.assertEqual(report["model"]["expert_bytes"], 18579480)
        self.assertEqual(report["spare_experts"], 282)
        spark = report["holders"][-1]
        self.assertEqual(spark["budget_experts"], 6038)
        self.assertLessEqual(report["step"]["slowest_s"], report["step"]["even_fill_s"])
        self.assertGreater(report["step"]["bound_s"], 0)

    def test_mxfp4_leaves_84_gib(self):
        code, report = self.plan("--mode", "whole", "--pack", "mxfp4")
        self.assertEqual(code, 0)
        self.assertAlmostEqual(report["spare_experts"], 5146, delta=2)
        self.assertAlmostEqual(report["spare_bytes"] / 2**30, 84.1, delta=0.1)

    def test_is_the_same_twice_and_drawn(self):
        with Pod(experts=1) as scratch:  # for its folder
            files = [scratch.dir / name for name in ("a.json", "b.json", "plan.svg")]
            self.assertEqual(self.plan("--out", files[0], "--svg", files[2])[0], 0)
            self.assertEqual(self.plan("--out", files[1])[0], 0)
            self.assertEqual(files[0].read_bytes(), files[1].read_bytes())
            self.assertIn("station.host", files[2].read_text())


class WrongInputs(unittest.TestCase):
    def refused(self, text, *arguments):
        with Pod(experts=1, budget="16 MiB") as pod:
            pod.file.write_text(text(pod.file.read_text()))
            done = plan(pod, *arguments)
            self.assertEqual(done.returncode, 1, done.stdout)
            return done.stderr

    def test_bandwidths_of_some_memories_only(self):
        message = self.refused(lambda t: t + 'bandwidth = "1 GB/s"\n'
                               '[[expert]]\nname = "b"\ncontrol = "127.0.0.1:1"\nexpert_budget = "1 MiB"\n')
        self.assertIn("a bandwidth is given for spark-1 but not for b", message)

    def test_a_model_that_is_nowhere(self):
        message = self.refused(lambda t: t.replace("models/k3-tiny", "models/k9"))
        self.assertIn("k9.config.json; give --checkpoint DIR or --config FILE", message)

    def test_a_trace_of_another_model(self):
        with Pod(experts=1, bandwidth="1 GB/s") as pod:
            trace = pod.dir / "trace.json"
            trace.write_text(json.dumps({"format": "k3pod-trace-1", "first_layer": 1, "num_layers": 1,
                                         "num_experts": 2, "tokens": 1, "picks": [[1, 0]]}))
            done = plan(pod, "--trace", trace)
            self.assertEqual(done.returncode, 1)
            self.assertIn("num_layers: found 1, the model has 8", done.stderr)

    def test_a_file_that_is_no_trace_where_no_trace_is_used(self):
        with Pod(experts=1, budget="16 MiB") as pod:
            placement = pod.dir / "placement.json"
            self.assertEqual(plan(pod, "--out", placement).returncode, 0)
            done = plan(pod, "--trace", placement)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn(f"{placement}: unknown field", done.stderr)

    def test_an_output_that_would_replace_another_file(self):
        with Pod(experts=1, budget="16 MiB") as pod:
            before = pod.file.read_bytes()
            link, both = pod.dir / "link", pod.dir / "both"
            link.symlink_to(pod.file)
            for arguments, named in [(("--out", pod.file), "--out"), (("--svg", link), "--svg"),
                                     (("--out", both, "--svg", pod.dir / "." / "both"), "--svg")]:
                done = plan(pod, *arguments)
                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertIn("which it would replace; give it a name of its own", done.stderr)
                self.assertIn(f"k3pod: {named} ", done.stderr)
            self.assertEqual(pod.file.read_bytes(), before)
            self.assertFalse(both.exists())
            done = k3pod("predict", "--pod", pod.file, "--placement", both, "--svg", both)
            self.assertEqual(done.returncode, 1)
            self.assertIn("is the file of --placement", done.stderr)

    def test_a_report_that_cannot_be_written_is_a_failure(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([str(BINARY), "plan", "--pod", str(ROOT / "configs" / "tiny.toml"), "--json"],
                                  stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot write all of the output", done.stderr)

    def test_a_trace_that_is_wrong_is_refused_also_where_no_bandwidth_needs_it(self):
        tiny = ROOT / "configs" / "tiny.toml"
        for trace in ["/nowhere/trace.json", tiny]:
            done = k3pod("plan", "--pod", tiny, "--trace", trace)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn(str(trace), done.stderr)

    def test_sizes_of_a_small_pod_are_not_shown_as_zeros(self):
        done = k3pod("plan", "--pod", ROOT / "configs" / "tiny.toml")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("256 experts of 27,672 B (6.76 MiB), 13.51 MiB of everything else", done.stdout)
        self.assertIn("spark-1, spark-2: 16.00 MiB for experts", done.stdout)
        self.assertIn("budget MiB", done.stdout)
        self.assertNotIn("0.00 GiB", done.stdout)

    def test_a_wrong_flag_is_not_taken_for_a_model_that_does_not_fit(self):
        for arguments in [("--batch", 0), ("--mode", "x"), ("--nonsense",), ("--out", ""), ("--svg", "")]:
            done = k3pod("plan", "--pod", ROOT / "configs" / "tiny.toml", *arguments)
            self.assertEqual(done.returncode, 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
