"""Nodes that cannot read their model, or are of another build, while the others are sound."""

import contextlib
import os
import shutil
import unittest

from failure_case import ANSWER, BACK, SUM, health_names, other_build
from pod import BINARY, MODEL, TIME_FACTOR, Pod, wait_for


def model_of_links(pod):
    """A copy of the demo model of which single files may be taken away."""
    folder = pod.dir / "own-model"
    shutil.copytree(MODEL, folder, copy_function=os.symlink)
    return folder


def give(pod, node, folder):
    """One node gets a pod file of its own, with this model folder."""
    file = pod.dir / f"{node}.toml"
    file.write_text(pod.file.read_text().replace(str(MODEL), str(folder)))
    if node == "station":
        pod.station = pod.make_node(node, "station", pod_file=file)
    else:
        pod.experts[node] = pod.make_node(node, "expert", "--node", node, pod_file=file)


class UnreadableModel(unittest.TestCase):
    LIMIT = 30 * TIME_FACTOR

    def missing(self, path):
        path.unlink()
        return "No such file or directory"

    def loop(self, path):
        path.unlink()
        path.symlink_to(path.name)
        return "Too many levels of symbolic links"

    def folder(self, path):
        path.unlink()
        path.mkdir()
        return "is a folder"

    def start(self, pod, node, damage, file="config.json"):
        folder = model_of_links(pod)
        reason = damage(folder / file)
        give(pod, node, folder)
        for expert in pod.experts.values():
            expert.start()
        pod.station.start()
        self.assertEqual(pod.station.wait(self.LIMIT), 1)
        last = pod.station.text().strip().splitlines()[-1]
        self.assertIn(str(folder / file), last)
        self.assertIn(reason, last)
        return last

    def test_one_server_cannot_read_the_config_and_the_whole_start_fails(self):
        for damage in [self.missing, self.loop, self.folder]:
            with self.subTest(damage.__name__), Pod() as pod:
                self.assertIn("spark-2", self.start(pod, "spark-2", damage))
                self.assertEqual(pod.experts["spark-2"].wait(self.LIMIT), 1)
                self.assertIn("config.json", pod.experts["spark-2"].text().strip().splitlines()[-1])
                self.check_orphan(pod.experts["spark-1"])

    def check_orphan(self, server):
        """A server whose station ended while it loaded waits for the next one, and does not look for the dead one."""
        with contextlib.suppress(AssertionError):  # it may end before it gave the server anything to load
            wait_for(lambda: "session ended" in server.text(), 1, "no session")
        self.assertEqual(server.stop(), 0)
        self.assertNotIn("ready:", server.text().partition("session ended")[2])
        self.assertNotIn("data plane", server.text().partition("session ended")[2])

    def test_one_server_cannot_read_a_shard(self):
        with Pod() as pod:
            self.assertIn("spark-1", self.start(pod, "spark-1", self.missing, "model-00003-of-000004.safetensors"))
            self.assertEqual(pod.experts["spark-1"].wait(self.LIMIT), 1)

    def test_the_station_cannot_read_the_config(self):
        for damage in [self.missing, self.loop, self.folder]:
            with self.subTest(damage.__name__), Pod() as pod:
                self.start(pod, "station", damage)
                for node in pod.experts.values():
                    self.assertEqual(node.stop(), 0)


class OtherBuild(unittest.TestCase):
    def test_another_build_is_refused_with_both_builds_and_versions(self):
        with Pod() as pod:
            program, build, other = other_build(pod)
            server = pod.experts["spark-2"]
            server.argv[0] = str(program)
            for node in [pod.station, *pod.experts.values()]:
                node.start()
            wait_for(lambda: "build differs" in pod.station.text(), 20 * TIME_FACTOR, "the builds are not compared")
            line = next(l for l in pod.station.text().splitlines() if "build differs" in l)
            for word in ["spark-2", build, other, "control version", "wire version", "install the same"]:
                self.assertIn(word, line)
            health_names(pod, "spark-2", "build differs")
            server.kill()
            server.argv[0] = str(BINARY)
            server.start()
            pod.wait_ready(BACK)
            self.assertEqual(pod.chat(SUM)["content"], ANSWER)


if __name__ == "__main__":
    unittest.main()
