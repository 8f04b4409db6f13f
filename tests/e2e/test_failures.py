"""Servers and stations that die or hang for longer than a step is held, and come back. test_holding.py has those
that come back in time."""

import contextlib
import json
import signal
import socket
import threading
import time
import unittest

from failure_case import ANSWER, BACK, LOST, STORY, SUM, FailureCase, ReadStream, health_names
from pod import TIME_FACTOR, Pod, request, wait_for


SHORT_HOLD = {"hold_timeout": '"1 s"'}


class KilledServer(FailureCase):
    options = {"transport": "tcp", "exchange": SHORT_HOLD}

    def test_streams_end_by_name_and_the_station_lives_on(self):
        streams = [ReadStream(self.pod).wait_running() for _ in range(4)]
        killed_at = time.monotonic()
        self.pod.experts["spark-1"].kill()
        for stream in streams:
            error, ended_at = stream.end()
            self.assertIn("spark-1", error["message"])
            self.assertLess(ended_at - killed_at, LOST)
        health_names(self.pod, "spark-1")
        self.assertNotIn("spark-2", self.pod.health().body.decode())
        self.check_refused("spark-1")
        self.assertEqual(self.node_gauges(), {"spark-1": 0, "spark-2": 1})
        self.pod.wait_idle()
        self.assertEqual(self.pod.metric("vllm:kv_cache_usage_perc"), 0)
        self.pod.experts["spark-1"].start()
        self.pod.wait_ready(BACK)
        self.check_serves()
        self.assertEqual(self.node_gauges(), {"spark-1": 1, "spark-2": 1})


class KilledServerShm(KilledServer):
    options = {"transport": "shm", "exchange": SHORT_HOLD}


class LateReplies:
    """A proxy before a control port that holds every connection's answers back for a while."""

    def __init__(self, target, delay):
        self.target, self.delay, self.num_held = target, delay, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        with client, contextlib.suppress(OSError):
            with socket.create_connection(("127.0.0.1", self.target)) as server:
                threading.Thread(target=self.pump, args=(client, server), daemon=True).start()
                first = server.recv(65536)
                self.num_held += 1
                threading.Event().wait(self.delay)
                client.sendall(first)
                self.pump(server, client)

    @staticmethod
    def pump(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_RDWR)


class LateHandshake(unittest.TestCase):
    def test_a_late_answer_of_a_dead_server_does_not_keep_the_next_one_out(self):
        with Pod() as pod:
            control = pod.control_ports["spark-2"]
            proxy = LateReplies(control, delay=1.5 * TIME_FACTOR)
            self.addCleanup(proxy.listener.close)
            file = pod.dir / "station.toml"
            file.write_text(pod.file.read_text().replace(f":{control}\"", f":{proxy.port}\""))
            pod.station = pod.make_node("station", "station", pod_file=file)
            pod.start()
            server = pod.experts["spark-2"]
            for _ in range(2):
                server.kill()
                health_names(pod, "spark-2")
                num_held = proxy.num_held
                server.start()
                wait_for(lambda: proxy.num_held > num_held, BACK, "the station does not dial")
                server.kill()  # its answer is still on the way
                server.start()
                pod.wait_ready(BACK)
                self.assertEqual(pod.chat(SUM)["content"], ANSWER, "the first call after ready")


class StoppedServer(FailureCase):
    options = {"transport": "tcp", "exchange": SHORT_HOLD}

    def post(self, results, stream):
        body = {"messages": [{"role": "user", "content": STORY}], "max_tokens": 400, "stream": stream}
        started = time.monotonic()
        answer = self.pod.request("POST", "/v1/chat/completions", body, timeout=20 * TIME_FACTOR)
        results[stream] = answer, time.monotonic() - started

    def test_requests_to_a_stopped_server_end_in_an_error_never_in_an_empty_200(self):
        server, results = self.pod.experts["spark-1"], {}
        server.signal(signal.SIGSTOP)
        threads = [threading.Thread(target=self.post, args=(results, stream)) for stream in [False, True]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30 * TIME_FACTOR)
        whole, took = results[False]
        self.assertIn(whole.status, (503, 504), whole.body[:500])
        self.assertIn("spark-1", whole.json()["error"]["message"])
        self.assertLess(took, LOST)
        streamed, took = results[True]
        self.assertLess(took, LOST)
        text = streamed.body.decode()
        if streamed.status == 200:
            events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
            self.assertIn("error", events[-1], text[-500:])
            self.assertIn("spark-1", events[-1]["error"]["message"])
        else:
            self.assertIn(streamed.status, (503, 504))
            self.assertIn("spark-1", json.loads(text)["error"]["message"])
        self.assertRegex(self.pod.station.text(), r"request chatcmpl-\w+ failed: .*spark-1")
        self.check_refused("spark-1")
        server.signal(signal.SIGCONT)
        self.pod.wait_ready(BACK)
        self.check_serves()

    def test_a_server_that_stops_in_a_long_stream_turns_health_to_503_with_the_reason(self):
        stream = ReadStream(self.pod).wait_running()
        server, stopped_at = self.pod.experts["spark-2"], time.monotonic()
        server.signal(signal.SIGSTOP)
        health_names(self.pod, "spark-2", "silent")
        error, ended_at = stream.end()
        self.assertIn("spark-2", error["message"])
        self.assertLess(ended_at - stopped_at, LOST)
        self.assertEqual(self.pod.metric("k3pod_pod_ready"), 0)
        server.signal(signal.SIGCONT)
        self.pod.wait_ready(BACK)
        self.check_serves()


class StoppedServerShm(StoppedServer):
    options = {"transport": "shm", "exchange": SHORT_HOLD}


class LostStation(FailureCase):
    def test_servers_of_a_killed_station_idle_quietly_and_rejoin_without_loading(self):
        stream = ReadStream(self.pod).wait_running()
        self.pod.station.kill()
        stream.thread.join(30)
        for node in self.pod.experts.values():
            wait_for(lambda: "session ended" in node.text(), 5 * TIME_FACTOR, f"{node.name} does not notice")
            self.assertEqual(request(self.pod.http_ports[node.name], "GET", "/health").status, 503)
        lines = {n.name: len(n.text().splitlines()) for n in self.pod.experts.values()}
        orphaned_at = time.monotonic()
        wait_for(lambda: time.monotonic() - orphaned_at > 3, 10, "time stands still")
        for node in self.pod.experts.values():
            self.assertTrue(node.is_running(), node.tail())
            self.assertLessEqual(len(node.text().splitlines()) - lines[node.name], 3, node.tail())
        self.pod.station.start()
        self.pod.wait_ready(BACK)
        self.pid = self.pod.station.process.pid
        self.check_serves()
        for node in self.pod.experts.values():
            self.assertEqual(node.text().count("loaded 100 %"), 1, f"{node.name} has loaded again")

    def test_a_station_that_was_stopped_takes_its_servers_back(self):
        stream = ReadStream(self.pod).wait_running()
        self.pod.station.signal(signal.SIGSTOP)
        for node in self.pod.experts.values():
            wait_for(lambda: "session ended" in node.text(), 10 * TIME_FACTOR, f"{node.name} does not notice")
        self.pod.station.signal(signal.SIGCONT)
        self.pod.wait_ready(BACK)
        stream.wait_more()
        self.assertIsNone(stream.error, "its step was not held until the servers were back")
        stream.stream.close()
        stream.thread.join(30)
        self.check_serves()


class EightServers(FailureCase):
    options = {"experts": 8, "mode": "whole", "exchange": SHORT_HOLD}

    def nodes_in_metrics(self):
        names = {}
        for key in self.pod.metrics():
            if key.startswith("k3pod_") and 'node="' in key:
                names.setdefault(key.split("{")[0], set()).add(key.split('node="')[1].split('"')[0])
        return names

    def test_a_single_stream_leaves_servers_without_rows_and_runs_on(self):
        def frames():
            return [self.pod.metric("k3pod_exchange_frames_total", self.pod.http_ports[n]) for n in self.pod.names]
        before = frames()
        stream = self.pod.stream(STORY, max_tokens=300, ignore_eos=True)
        events = list(stream)
        self.assertTrue(stream.is_done)
        self.assertFalse([e for e in events if "error" in e])
        # 4 experts of 32 in 8 layers: at least half of the servers sit out every layer of every step.
        counts = [after - start for after, start in zip(frames(), before)]
        self.assertGreater(min(counts), 0)
        self.assertLessEqual(sum(counts), 320 * 8 * 4, counts)
        self.assertLess(max(counts), 300 * 8, "no server ever sat out")
        self.assertEqual(self.pod.metric("k3pod_exchange_deadline_failures_total"), 0)
        self.check_serves()

    def test_restarts_leave_no_ghosts_and_a_node_that_left_is_the_only_one_missing(self):
        server = self.pod.experts["spark-3"]
        everyone = set(self.pod.names)
        for round_number in range(5):
            server.kill() if round_number % 2 else server.stop()
            health_names(self.pod, "spark-3")
            server.start()
            self.pod.wait_ready(BACK)
            self.assertEqual(self.node_gauges(), dict.fromkeys(self.pod.names, 1))
            self.wait_peers(8)
            for metric, names in self.nodes_in_metrics().items():
                self.assertEqual(names, everyone, metric)
        self.check_serves()
        self.assertEqual(self.pod.experts["spark-8"].stop(), 0)
        health_names(self.pod, "spark-8")
        self.assertNotIn("spark-3", self.pod.health().body.decode())
        self.assertEqual(self.node_gauges(), {n: float(n != "spark-8") for n in self.pod.names})
        self.wait_peers(7)
        self.check_refused("spark-8")


if __name__ == "__main__":
    unittest.main()
