"""A pod of real processes on loopback, for the end-to-end tests.

    with Pod(experts=2, mode="sliced") as pod:
        pod.start()
        answer = pod.chat("What is 47 + 38?")

Processes are ended by pid, and always reaped: a dead child that nobody waits for hides from its peers.
"""

import contextlib
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("POD_BUILD_DIR", ROOT / "build"))
BINARY = BUILD / "k3pod"
MODEL = ROOT / "models" / "k3-tiny"


def time_factor():
    """Limits of time in the tests are those of a plain build on two idle cores, times this."""
    with contextlib.suppress(FileNotFoundError):
        version = subprocess.run([str(BINARY), "version"], capture_output=True, text=True, timeout=30).stdout
        return 5 if "address" in version or "thread" in version else 1
    return 1


TIME_FACTOR = time_factor()


def free_ports(count):
    """Distinct free ports below those that the system gives to outgoing connections, which could take one
    between here and the node that listens on it; all are held until all are known."""
    ports = []
    with contextlib.ExitStack() as held:
        for port in random.sample(range(15000, 32000), 1000):
            sock = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                sock.bind(("127.0.0.1", port))
                ports.append(port)
            if len(ports) == count:
                return ports
    raise AssertionError(f"{len(ports)} of {count} ports are free between 15000 and 32000")


def wait_for(condition, timeout, what):
    """Polls until condition() is true; fails with `what` after timeout seconds."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"after {timeout} s: {what}")


class Response:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)


def request(port, method, path, body=None, headers=None, timeout=60):
    """One HTTP exchange; dict bodies are sent as JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        headers = dict(headers or {})
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return Response(answer.status, dict(answer.getheaders()), answer.read())
    finally:
        connection.close()


class Stream:
    """A streaming completion: iterate over the decoded events; close() hangs up."""

    def __init__(self, port, path, body, timeout=60):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
        self.connection.request("POST", path, json.dumps(dict(body, stream=True)),
                                {"Content-Type": "application/json"})
        self.response = self.connection.getresponse()
        self.status = self.response.status
        self.is_done = False
        self.num_comments = 0

    def __iter__(self):
        for line in self.response:
            line = line.decode("utf-8").rstrip("\r\n")
            if line == "data: [DONE]":
                self.is_done = True
            elif line.startswith("data: "):
                yield json.loads(line[6:])
            elif line.startswith(":"):
                self.num_comments += 1

    def close(self):
        # shutdown first: a response object keeps the descriptor alive behind close().
        if self.connection.sock:
            with contextlib.suppress(OSError):
                self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.response.close()
        self.connection.close()


class Node:
    def __init__(self, name, argv, log):
        self.name, self.argv, self.log = name, argv, log
        self.process = None

    def start(self):
        env = {k: v for k, v in os.environ.items() if not k.startswith("K3POD_")}
        with open(self.log, "ab") as out:
            self.process = subprocess.Popen(self.argv, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=env)

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        """SIGKILL, and reaped."""
        if self.is_running():
            self.process.kill()
        self.process.wait(30)

    def stop(self, timeout=60):
        """SIGTERM; returns the exit status. Not twice: a second signal ends a draining node at once."""
        if self.is_running():
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        return self.wait(timeout)

    def wait(self, timeout=60):
        """The exit status, when it ends by itself."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"{self.name} did not stop within {timeout} s:\n{self.tail()}") from None

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def tail(self, size=4000):
        return self.text()[-size:]

    def text(self):
        with contextlib.suppress(FileNotFoundError):
            return self.log.read_text(errors="replace")
        return ""


class Pod:
    """station, exchange: extra keys of those sections, as TOML values ({"queue_limit": 2}). budget: of every
    expert server, or a list with one for each; bandwidth: of every expert server, none where it is left out."""

    def __init__(self, experts=2, mode="whole", transport="tcp", model=MODEL, budget="16 MiB", station=None,
                 exchange=None, placement_file=None, bandwidth=None):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="k3pod-e2e-"))
        self.names = [f"spark-{i + 1}" for i in range(experts)]
        ports = free_ports(1 + 2 * experts)
        self.port = ports[0]
        self.control_ports = dict(zip(self.names, ports[1::2]))
        self.http_ports = dict(zip(self.names, ports[2::2]))
        keys = {"max_num_seqs": 64, "kv_tokens": 65536, "max_batch_tokens": 512, "default_max_tokens": 1024,
                "drain_timeout": '"20 s"'}
        keys.update(station or {})
        lines = ["[pod]", f'name = "test"', f'model = "{model}"', "[station]", f'listen = "127.0.0.1:{self.port}"']
        lines += [f"{k} = {v}" for k, v in keys.items()]
        lines += ["[placement]", f'mode = "{mode}"']
        if placement_file:
            lines += [f'file = "{placement_file}"']
        lines += ["[exchange]", f'transport = "{transport}"']
        lines += [f"{k} = {v}" for k, v in (exchange or {}).items()]
        budgets = [budget] * experts if isinstance(budget, str) else budget
        for name, share in zip(self.names, budgets):
            lines += ["[[expert]]", f'name = "{name}"', f'control = "127.0.0.1:{self.control_ports[name]}"',
                      f'http = "127.0.0.1:{self.http_ports[name]}"', f'expert_budget = "{share}"']
            if bandwidth:
                lines += [f'bandwidth = "{bandwidth}"']
        self.file = self.dir / "pod.toml"
        self.file.write_text("\n".join(lines) + "\n")
        self.station = self.make_node("station", "station")
        self.experts = {n: self.make_node(n, "expert", "--node", n) for n in self.names}

    def make_node(self, name, command, *arguments, pod_file=None):
        argv = [str(BINARY), command, "--pod", str(pod_file or self.file), *arguments]
        return Node(name, argv, self.dir / f"{name}.log")

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        for node in [self.station, *self.experts.values()]:
            if node.process is not None:
                with contextlib.suppress(ProcessLookupError):
                    node.process.send_signal(signal.SIGCONT)
                node.kill()
        if kind is not None:
            for node in [self.station, *self.experts.values()]:
                print(f"---- {node.name}\n{node.tail()}")
        shutil.rmtree(self.dir, ignore_errors=True)

    def start(self, timeout=60):
        for node in self.experts.values():
            node.start()
        self.station.start()
        self.wait_ready(timeout)

    def health(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return request(self.port, "GET", "/health", timeout=5)
        return None

    def is_ready(self):
        health = self.health()
        return health is not None and health.status == 200

    def wait_ready(self, timeout=60):
        def check():
            if not self.station.is_running():
                raise AssertionError(f"the station stopped:\n{self.station.tail()}")
            return self.is_ready()
        wait_for(check, timeout, "the pod is not ready")

    def request(self, method, path, body=None, **options):
        return request(self.port, method, path, body, **options)

    def chat(self, messages, **fields):
        """The message of choice 0; greedy unless told otherwise."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        body = {"messages": messages, "temperature": 0, **fields}
        answer = self.request("POST", "/v1/chat/completions", body, timeout=120)
        if answer.status != 200:
            raise AssertionError(f"{answer.status}: {answer.body[:2000]!r}")
        return answer.json()["choices"][0]["message"]

    def stream(self, messages, path="/v1/chat/completions", **fields):
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return Stream(self.port, path, {"messages": messages, "temperature": 0, **fields})

    def metrics(self, port=None):
        """{'name{labels}': value}"""
        text = request(port or self.port, "GET", "/metrics").body.decode()
        values = {}
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                values[name] = float(value)
        return values

    def metric(self, name, port=None):
        """The sum over all label sets of one metric."""
        values = self.metrics(port)
        return sum(v for k, v in values.items() if k == name or k.startswith(name + "{"))

    def running(self):
        return self.metric("vllm:num_requests_running")

    def waiting(self):
        return self.metric("vllm:num_requests_waiting")

    def wait_idle(self, timeout=10):
        wait_for(lambda: self.running() == 0 and self.waiting() == 0, timeout, "requests are left in the station")


class PodCase(unittest.TestCase):
    """Tests that share one pod, which must live through all of them."""

    options = {}

    @classmethod
    def setUpClass(cls):
        cls.pod = cls.enterClassContext(Pod(**cls.options))
        cls.pod.start()

    def tearDown(self):
        for node in [self.pod.station, *self.pod.experts.values()]:
            self.assertTrue(node.is_running(), f"{node.name} ended:\n{node.tail()}")

    def post(self, path, body, **options):
        return self.pod.request("POST", path, body, **options)

    def ok(self, path, body, **options):
        """The JSON of an answer that must be 200."""
        answer = self.post(path, body, **options)
        self.assertEqual(answer.status, 200, answer.body[:2000])
        return answer.json()

    def chat(self, messages, **fields):
        """A whole greedy answer; `messages` may be one user message's text."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return self.ok("/v1/chat/completions", {"messages": messages, "temperature": 0, **fields})

    def complete(self, prompt, **fields):
        return self.ok("/v1/completions", {"prompt": prompt, "temperature": 0, **fields})

    def tokenize(self, text):
        return self.ok("/tokenize", {"prompt": text})["tokens"]

    def refused(self, body, path="/v1/chat/completions", status=400):
        """The error object of a refusal, whose shape is checked."""
        answer = self.post(path, body)
        self.assertEqual(answer.status, status, (str(body)[:300], answer.body[:1000]))
        return self.error_of(answer)

    def error_of(self, answer):
        self.assertLess(len(answer.body), 16384)
        error = answer.json()["error"]
        self.assertTrue(error["message"] and isinstance(error["message"], str), error)
        self.assertTrue(error["type"] and isinstance(error["type"], str), error)
        self.assertIsInstance(error["param"], (str, type(None)))
        self.assertIsInstance(error["code"], (str, int, type(None)))
        return error
