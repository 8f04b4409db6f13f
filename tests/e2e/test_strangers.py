"""Garbage, half-open connections and floods on every port of a pod."""

import contextlib
import os
import pathlib
import random
import socket
import time
import unittest

from failure_case import FailureCase, ReadStream, descriptors
from pod import TIME_FACTOR, wait_for

SEED = int(os.environ.get("POD_SEED", time.time_ns() % 1_000_000))


def listening_ports(node):
    """Ports of 127.0.0.1 on which a process listens, those of its data plane included."""
    inodes = set()
    for link in pathlib.Path(f"/proc/{node.process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(link))
    ports = set()
    for table in ["tcp", "tcp6"]:
        for line in pathlib.Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                ports.add(int(fields[1].split(":")[1], 16))
    return ports


class Strangers(FailureCase):
    HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

    def garbage(self, rng):
        noise = rng.randbytes(rng.choice([1, 7, 64, 4096, 100_000]))
        return rng.choice([noise, self.HTTP2 + noise, b"GET / HTTP/1.1\r\n" + noise, b"\0" * 64, b"\xff" * 4096,
                           b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + noise])

    def visit(self, port, data):
        """Sends, shuts its side and reads a little; a refusal or a reset is fine, an open door without end is not."""
        with contextlib.suppress(OSError):
            with socket.create_connection(("127.0.0.1", port), timeout=2) as sock:
                sock.settimeout(0.02)
                sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)
                sock.recv(4096)

    def test_garbage_and_half_open_connections_on_every_port_disturb_nobody(self):
        nodes = [self.pod.station, *self.pod.experts.values()]
        ports = {port: node.name for node in nodes for port in listening_ports(node)}
        known = {self.pod.port, *self.pod.control_ports.values(), *self.pod.http_ports.values()}
        self.assertLessEqual(known, set(ports))
        self.check_serves()
        before = {n.name: descriptors(n) for n in nodes}
        stream, rng = ReadStream(self.pod).wait_running(), random.Random(SEED)
        with self.subTest(seed=SEED), contextlib.ExitStack() as held:
            for port in sorted(known):
                for _ in range(200 // len(known)):
                    sock = held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
                    sock.sendall(rng.choice([b"", b"G", self.HTTP2[:10], b"POST /v1/"]))
            for port in sorted(ports):
                for _ in range(12):
                    self.visit(port, self.garbage(rng))
            for node in nodes:
                self.assertTrue(node.is_running(), f"{node.name} ended:\n{node.tail()}")
            self.check_serves()
            self.assertIsNone(stream.error)
        stream.stream.close()
        stream.thread.join(30)
        self.check_serves()
        for node in nodes:
            wait_for(lambda: descriptors(node) <= before[node.name], 20 * TIME_FACTOR,
                     f"{node.name} has more than {before[node.name]} open descriptors (seed {SEED})")
        self.wait_peers(2)

    def test_a_flood_on_the_station_leaves_it_serving(self):
        before = descriptors(self.pod.station)
        with contextlib.ExitStack() as held:
            for _ in range(200):
                held.enter_context(socket.create_connection(("127.0.0.1", self.pod.port), timeout=5))
            self.check_serves()
            self.assertEqual(self.pod.health().status, 200)
        wait_for(lambda: descriptors(self.pod.station) <= before, 20 * TIME_FACTOR, "descriptors are left open")


if __name__ == "__main__":
    unittest.main()
