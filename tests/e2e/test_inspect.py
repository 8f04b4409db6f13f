"""k3pod inspect: what it says of sound, unusual and damaged checkpoints."""

import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from pod import BINARY, BUILD, MODEL, ROOT, TIME_FACTOR

PROGRAM = BUILD / "tests" / "support" / "make_checkpoint"
LIMIT = 60 * TIME_FACTOR


def k3pod(*arguments):
    return subprocess.run([str(BINARY), *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT)


def inspect(*arguments):
    return k3pod("inspect", *arguments)


class Inspect(unittest.TestCase):
    def make(self, kind, *arguments):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="k3pod-inspect-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        subprocess.run([str(PROGRAM), kind, str(MODEL), str(folder / "model"), *arguments], check=True,
                       timeout=LIMIT)
        return folder / "model"

    def test_the_demo_model_is_listed_and_its_repack_is_exact(self):
        done = inspect(MODEL)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("3372 tensors, 21245832 bytes", done.stdout)
        self.assertIn("experts in the files: 256 as nvfp4, 7077888 bytes", done.stdout)
        self.assertIn("experts in memory: 256 as mxfp4, 0 as nvfp4, 6684672 bytes", done.stdout)
        self.assertIn("repack to mxfp4: exact for every expert", done.stdout)

    def test_json_has_the_same_figures(self):
        done = inspect(MODEL, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        self.assertEqual(found["num_tensors"], 3372)
        self.assertEqual(found["release"], "nvfp4")
        self.assertEqual(found["experts_in_files"], {"count": 256, "bytes": 7077888})
        self.assertEqual(found["experts_in_memory"], {"mxfp4": 256, "nvfp4": 0, "bytes": 6684672,
                                                      "repack_is_exact": True, "kept_nvfp4": []})
        self.assertEqual(sum(kind["count"] for kind in found["tensors"]), 3372)

    def test_headers_only_reads_no_expert(self):
        done = inspect(MODEL, "--headers-only", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIsNone(json.loads(done.stdout)["experts_in_memory"])

    def test_an_expert_without_an_exact_form_is_named(self):
        tensor = "language_model.model.layers.2.block_sparse_moe.experts.3.w1.weight_scale"
        done = inspect(self.make("set-byte", tensor, "0", "0x39"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("255 as mxfp4, 1 as nvfp4", done.stdout)
        self.assertIn("exact for 255 of 256 experts", done.stdout)
        self.assertIn("  layer 2 expert 3\n", done.stdout)

    def test_the_mxfp4_release_needs_no_repack(self):
        done = inspect(self.make("mxfp4"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("repack: none needed", done.stdout)

    def test_a_damaged_checkpoint_is_listed_and_refused_by_its_tensor(self):
        tensor = "language_model.model.layers.2.block_sparse_moe.experts.3.w1.weight"
        done = inspect(self.make("drop-tensor", tensor))
        self.assertEqual(done.returncode, 1)
        self.assertIn("3371 tensors", done.stdout)
        self.assertIn(f"{tensor} is missing", done.stderr)

    def test_files_that_only_a_station_reads_are_missed_by_every_command_alike(self):
        for file in ["tiktoken.model", "tokenizer_config.json", "chat_format.json"]:
            for damage in [pathlib.Path.unlink, lambda path: path.write_bytes(b"[")]:
                folder = self.make("copy")
                damage(folder / file)
                pod = folder.parent / "pod.toml"
                pod.write_text((ROOT / "configs" / "tiny.toml").read_text().replace("../models/k3-tiny", str(folder)))
                said = set()
                for command in [["inspect", folder], ["inspect", folder, "--headers-only", "--json"],
                                ["plan", "--pod", pod], ["plan", "--pod", pod, "--checkpoint", folder]]:
                    done = k3pod(*command)
                    self.assertEqual(done.returncode, 1, (file, command, done.stdout))
                    said.add(done.stderr.strip().splitlines()[-1])
                self.assertEqual(len(said), 1, said)
                self.assertIn(str(folder / file), said.pop())

    def test_a_report_that_cannot_be_written_is_a_failure(self):
        for arguments in [[MODEL], [MODEL, "--json"]]:
            with open("/dev/full", "w") as full:
                done = subprocess.run([str(BINARY), "inspect", *map(str, arguments)], stdout=full,
                                      stderr=subprocess.PIPE, text=True, timeout=LIMIT)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("cannot write all of the output", done.stderr)

    def test_a_folder_without_a_checkpoint_is_refused(self):
        done = inspect(MODEL / "nowhere")
        self.assertEqual(done.returncode, 1)
        self.assertIn("nowhere", done.stderr)


if __name__ == "__main__":
    unittest.main()
