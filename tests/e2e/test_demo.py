"""scripts/demo as a new user runs it (the build is there already)."""

import re
import signal
import subprocess
import unittest

from pod import BUILD, ROOT


@unittest.skipUnless((ROOT / "build").resolve() == BUILD.resolve(), "scripts/demo uses build/")
class Demo(unittest.TestCase):
    def test_ask_prints_only_the_answer(self):
        done = subprocess.run([ROOT / "scripts" / "demo", "--ask", "What is 47 + 38?"], capture_output=True, text=True,
                              timeout=300)
        self.assertEqual((done.returncode, done.stdout), (0, "47 + 38 = 85.\n"), done.stderr)

    def test_wrong_usage_exits_with_2(self):
        for arguments in [["--ask"], ["--fly"], ["--ask", ""]]:
            done = subprocess.run([ROOT / "scripts" / "demo", *arguments], capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout), (2, ""))

    def test_serves_until_ctrl_c(self):
        demo = subprocess.Popen([ROOT / "scripts" / "demo"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                start_new_session=True)
        try:
            seen = ""
            for line in demo.stderr:
                seen += line
                if "Q: What is 47 + 38?" in line:
                    break
            self.assertRegex(seen, r"endpoint at http://127\.0\.0\.1:\d+/v1")
            self.assertEqual(demo.stdout.readline(), "47 + 38 = 85.\n")
            url = re.search(r"http://127\.0\.0\.1:\d+", seen).group(0)
            asked = subprocess.run([BUILD / "k3pod", "ask", "--url", url, "What is 3 + 4?"], capture_output=True,
                                   text=True, timeout=60)
            self.assertEqual(asked.stdout, "3 + 4 = 7.\n")
        finally:
            demo.send_signal(signal.SIGINT)
            demo.communicate(timeout=60)
        self.assertEqual(demo.returncode, 130)


if __name__ == "__main__":
    unittest.main()
