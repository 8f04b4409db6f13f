"""What tests of lost nodes share: streams read by threads, and a pod that is expected to recover."""

import http.client
import os
import subprocess
import threading
import time
import unittest

from pod import BINARY, TIME_FACTOR, Pod, wait_for

STORY = "Tell me a story about a fox."
SUM, ANSWER = "What is 47 + 38?", "47 + 38 = 85."
LOST = 3 * TIME_FACTOR  # seconds within which a lost server has ended what depends on it
BACK = 15 * TIME_FACTOR  # seconds within which a server that runs again is in service


def descriptors(node):
    return len(os.listdir(f"/proc/{node.process.pid}/fd"))


def other_build(pod):
    """This program with its build id changed in the file, and both ids; skips the test where that cannot be done."""
    text = subprocess.run([str(BINARY), "version"], capture_output=True, text=True, timeout=30).stdout
    build = next(l.split()[-1] for l in text.splitlines() if l.startswith("build id"))
    part = build[:8].encode()  # a compiler may lay out a text in pieces of eight bytes
    other = "9" + build[1:]
    program = pod.dir / "other-k3pod"
    program.write_bytes(BINARY.read_bytes().replace(part, b"9" + part[1:]))
    program.chmod(0o755)
    found = subprocess.run([str(program), "version"], capture_output=True, text=True, timeout=30).stdout
    if other not in found:
        raise unittest.SkipTest("the build id cannot be changed in the file of this compiler")
    return program, build, other


def health_names(pod, name, word=""):
    """Waits until /health refuses and says for whom (and why) the pod waits."""
    def check():
        health = pod.health()
        return health and health.status == 503 and name in health.body.decode() and word in health.body.decode()
    wait_for(check, LOST, f"/health does not name {name} {word}")


class ReadStream:
    """A stream that a thread reads to its end."""

    def __init__(self, pod, max_tokens=7000):
        self.stream = pod.stream(STORY, max_tokens=max_tokens, ignore_eos=True)
        self.num_events, self.text, self.error, self.ended_at, self.failure = 0, "", None, None, None
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        try:
            for event in self.stream:
                self.num_events += 1
                self.text += "".join(c["delta"].get("content") or "" for c in event.get("choices", []))
                self.error = event.get("error", self.error)
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as failure:
            self.failure = failure  # AttributeError: http.client, when another thread closes the response
        self.ended_at = time.monotonic()

    def wait_running(self):
        wait_for(lambda: self.num_events > 5, 20 * TIME_FACTOR, "a stream does not run")
        return self

    def wait_more(self):
        """Until the stream moves."""
        seen = self.num_events
        wait_for(lambda: self.num_events > seen, 20 * TIME_FACTOR, "a stream does not go on")
        return self

    def whole_text(self):
        """All of it, when it has ended well."""
        self.thread.join(60 * TIME_FACTOR)
        assert not self.thread.is_alive(), "a stream neither goes on nor ends"
        self.stream.close()
        assert self.failure is None and self.error is None, f"the stream broke: {self.failure or self.error}"
        assert self.stream.is_done, "the stream ends without its last event"
        return self.text

    def end(self):
        """The error event that ended it, and when it came."""
        self.thread.join(30 * TIME_FACTOR)
        assert not self.thread.is_alive(), "a stream neither goes on nor ends"
        self.stream.close()
        assert self.failure is None, f"the connection broke: {self.failure}"
        assert self.error is not None, f"a stream ended without an error event ({self.num_events} events)"
        return self.error, self.ended_at


class FailureCase(unittest.TestCase):
    options = {}

    def setUp(self):
        self.pod = self.enterContext(Pod(**self.options))
        self.pod.start()
        self.pid = self.pod.station.process.pid

    def check_serves(self):
        """The same station as at the start gives right answers, whole and streamed."""
        self.assertTrue(self.pod.station.is_running(), self.pod.station.tail())
        self.assertEqual(self.pod.station.process.pid, self.pid)
        self.assertEqual(self.pod.chat(SUM)["content"], ANSWER)
        events = list(self.pod.stream(SUM))
        self.assertFalse([e for e in events if "error" in e])
        text = "".join(c["delta"].get("content", "") for e in events for c in e["choices"])
        self.assertEqual(text, ANSWER)

    def check_refused(self, name):
        answer = self.pod.request("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1}, timeout=LOST)
        self.assertEqual(answer.status, 503)
        self.assertIn("Retry-After", answer.headers)
        self.assertIn(name, answer.json()["error"]["message"])

    def node_gauges(self):
        values = self.pod.metrics()
        return {n: values[f'k3pod_pod_node_ready{{node="{n}"}}'] for n in self.pod.names}

    def wait_peers(self, count):
        """The gauge is brought up to date several times a second."""
        wait_for(lambda: self.pod.metric("k3pod_exchange_peers_up") == count, LOST, f"{count} peers are not up")
