"""Shards from the station: expert servers without a model folder, killed and restarted while they load."""

import json
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

from pod import BINARY, MODEL, TIME_FACTOR, Pod, wait_for

QUESTION = "What is 47 + 38?"
NOWHERE = "/nonexistent/k3pod-model"


def staged_pod(caches=None, staging=None, **options):
    """A pod whose expert servers have a pod file of their own that names no model folder that exists."""
    pod = Pod(**options)
    text = pod.file.read_text()
    keys = {"source": '"station"', **(staging or {})}
    text += "[staging]\n" + "".join(f"{k} = {v}\n" for k, v in keys.items())
    if caches:
        for name in pod.names:
            text = text.replace(f'name = "{name}"\n', f'name = "{name}"\nshard_cache = "{caches / name}"\n')
    pod.file.write_text(text)
    bare = pod.dir / "bare.toml"
    bare.write_text(text.replace(str(options.get("model", MODEL)), NOWHERE))
    pod.experts = {n: pod.make_node(n, "expert", "--node", n, pod_file=bare) for n in pod.names}
    return pod


def sent_shards(pod, name, way="sent"):
    values = pod.metrics()
    return values.get(f'k3pod_stage_shards_total{{node="{name}",way="{way}"}}', 0)


class Staging(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with Pod() as pod:
            pod.start()
            cls.answer = pod.chat(QUESTION)

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="k3pod-staging-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def test_the_answer_is_that_of_local_copies(self):
        for mode in ["whole", "sliced"]:
            for transport in ["tcp", "shm"]:
                with self.subTest(mode=mode, transport=transport), \
                        staged_pod(mode=mode, transport=transport) as pod:
                    pod.start()
                    self.assertEqual(pod.chat(QUESTION), self.answer)

    def test_a_restarted_server_gets_its_shards_again_and_the_other_keeps_its_own(self):
        with staged_pod() as pod:
            pod.start()
            wait_for(lambda: sum(sent_shards(pod, n) for n in pod.names) == 256, 10 * TIME_FACTOR,
                     "not every shard is confirmed")
            before = {n: sent_shards(pod, n) for n in pod.names}
            pod.experts["spark-1"].kill()
            pod.experts["spark-1"].start()
            wait_for(lambda: sent_shards(pod, "spark-1") == 2 * before["spark-1"], 30 * TIME_FACTOR,
                     "spark-1 has not been staged again")
            pod.wait_ready(30 * TIME_FACTOR)
            self.assertEqual(sent_shards(pod, "spark-2"), before["spark-2"])
            self.assertEqual(pod.chat(QUESTION), self.answer)

    def test_a_server_killed_while_it_is_staged_is_staged_when_it_is_back(self):
        # A buffer of one shard and one reader: slow enough to be hit in the middle.
        with staged_pod(staging={"buffer": '"1 KiB"', "readers": 1}) as pod:
            for node in pod.experts.values():
                node.start()
            pod.station.start()
            victim = pod.experts["spark-1"]

            def is_staging():
                try:
                    return pod.metric("k3pod_stage_received_bytes_total", pod.http_ports["spark-1"]) > 0
                except OSError:
                    return False
            wait_for(is_staging, 30 * TIME_FACTOR, "staging has not begun")
            pod.station.signal(signal.SIGSTOP)
            victim.kill()
            victim.start()
            pod.station.signal(signal.SIGCONT)
            pod.wait_ready(60 * TIME_FACTOR)
            self.assertEqual(pod.chat(QUESTION), self.answer)

    def test_a_restarted_station_sends_nothing_again(self):
        with staged_pod() as pod:
            pod.start()
            pod.station.kill()
            pod.station.start()
            pod.wait_ready(30 * TIME_FACTOR)
            self.assertEqual([sent_shards(pod, n) for n in pod.names], [0, 0])
            self.assertEqual(pod.chat(QUESTION), self.answer)

    def test_with_a_cache_the_second_start_sends_nothing_and_a_change_only_what_it_touches(self):
        model = self.folder / "model"
        shutil.copytree(MODEL, model)
        caches = self.folder / "caches"
        with staged_pod(caches, model=model) as pod:
            pod.start()
            first = sum(sent_shards(pod, n) for n in pod.names)
            self.assertEqual(pod.chat(QUESTION), self.answer)
        with staged_pod(caches, model=model) as pod:
            pod.start()
            self.assertEqual([pod.metric("k3pod_stage_sent_bytes_total")], [0])
            self.assertEqual(pod.chat(QUESTION), self.answer)
            for name in pod.names:
                self.assertGreater(pod.metric("k3pod_stage_cached_shards_total", pod.http_ports[name]), 0)
        self.change_one_expert(model)
        with staged_pod(caches, model=model) as pod:
            pod.start()
            wait_for(lambda: sum(sent_shards(pod, n) for n in pod.names) == 1, 10 * TIME_FACTOR,
                     "the changed shard, and no other, is to be sent")
            self.assertGreater(sum(sent_shards(pod, n, "kept") for n in pod.names), 1)

    def change_one_expert(self, model):
        name = "language_model.model.layers.3.block_sparse_moe.experts.5.w1.weight"
        index = json.loads((model / "model.safetensors.index.json").read_text())["weight_map"]
        path = model / index[name]
        data = bytearray(path.read_bytes())
        header_end = 8 + int.from_bytes(data[:8], "little")
        begin = json.loads(data[8:header_end])[name]["data_offsets"][0]
        data[header_end + begin] ^= 0x11
        path.write_bytes(data)

    def test_pod_files_that_differ_in_the_source_are_refused_by_name(self):
        with staged_pod() as pod:
            local = pod.dir / "local.toml"
            local.write_text(pod.file.read_text().replace('source = "station"', 'source = "local"'))
            pod.experts["spark-1"] = pod.make_node("spark-1", "expert", "--node", "spark-1", pod_file=local)
            for node in pod.experts.values():
                node.start()
            pod.station.start()
            self.assertNotEqual(pod.station.wait(30 * TIME_FACTOR), 0)
            self.assertIn('source is "local" in this node\'s pod file', pod.station.text())

    def test_a_damaged_expert_stops_the_start_and_is_named(self):
        model = self.folder / "model"
        shutil.copytree(MODEL, model)
        name = "language_model.model.layers.3.block_sparse_moe.experts.5.w1.weight_scale"
        index = json.loads((model / "model.safetensors.index.json").read_text())["weight_map"]
        path = model / index[name]
        data = bytearray(path.read_bytes())
        header_end = 8 + int.from_bytes(data[:8], "little")
        begin = json.loads(data[8:header_end])[name]["data_offsets"][0]
        data[header_end + begin] = 0x7F  # NaN
        path.write_bytes(data)
        with staged_pod(model=model) as pod:
            for node in pod.experts.values():
                node.start()
            pod.station.start()
            self.assertNotEqual(pod.station.wait(30 * TIME_FACTOR), 0)
            self.assertIn(name, pod.station.text())

    def test_status_tells_how_far_a_load_has_come(self):
        with staged_pod() as pod:
            pod.start()
            status = subprocess.run([str(BINARY), "status", "--pod", str(pod.file)], capture_output=True, text=True,
                                    timeout=60)
            self.assertEqual(status.returncode, 0, status.stdout + status.stderr)


if __name__ == "__main__":
    unittest.main()
