"""Servers that are lost and come back in time: a step is held, nobody notices more than a pause."""

import http.client
import signal
import threading
import time
import unittest

from failure_case import ANSWER, BACK, LOST, SUM, FailureCase, ReadStream, descriptors, health_names, other_build
from pod import TIME_FACTOR, wait_for

SERVICE_BACK = 2 * TIME_FACTOR  # seconds from a server's start to the next token


class Held(FailureCase):
    """Loses servers under load; every answer must be the one of an undisturbed pod."""

    options = {"transport": "tcp", "exchange": {"reply": '"f32"'}, "station": {"drain_timeout": '"1 s"'}}
    LENGTH = 600

    def streams(self, count):
        return [ReadStream(self.pod, max_tokens=self.LENGTH) for _ in range(count)]

    def reference(self):
        return self.streams(1)[0].whole_text()

    def wait_held(self, name):
        """Until /health says that a step is held for the node; gives the state."""
        def state():
            health = self.pod.health()
            return health and health.status == 503 and f"holding, waiting for {name} for " in health.json()["state"]
        wait_for(state, LOST, f"/health does not tell of a step that waits for {name}")
        return self.pod.health().json()

    def test_streams_pause_while_a_killed_server_is_away_and_who_comes_meanwhile_waits(self):
        reference = self.reference()
        streams = [stream.wait_running() for stream in self.streams(4)]
        server = self.pod.experts["spark-1"]
        server.kill()
        health = self.wait_held("spark-1")
        self.assertRegex(health["state"], r"^holding, waiting for spark-1 for [0-9.]+ s at layer [0-9]+$")
        self.assertIn("spark-1 (", health["reason"])
        self.assertGreater(health["tokens_generated"], 0)
        self.assertEqual(self.pod.metrics()['k3pod_exchange_holding{node="spark-1"}'], 1)
        self.assertRegex(self.pod.station.text(), r"step \d+ is held at layer \d+: .*spark-1")
        late = ReadStream(self.pod, max_tokens=self.LENGTH)
        wait_for(lambda: self.pod.waiting() + self.pod.running() == 5, LOST, "the new request does not wait")
        started_at, seen = time.monotonic(), [stream.num_events for stream in streams]
        server.start()
        wait_for(lambda: all(stream.num_events > n for stream, n in zip(streams, seen)), BACK, "a stream does not go on")
        took = time.monotonic() - started_at
        print(f"\nfrom the start of the lost server to the next token of every stream: {took:.2f} s")
        self.assertLess(took, SERVICE_BACK)
        for stream in [*streams, late]:
            self.assertEqual(stream.whole_text(), reference)
        self.assertRegex(self.pod.station.text(), r"step \d+ goes on at layer \d+ after")
        self.assertEqual(self.pod.metric("k3pod_engine_failed_steps_total"), 0)
        self.check_serves()

    def test_a_server_that_was_stopped_goes_on_where_it_was(self):
        reference = self.reference()
        streams = [stream.wait_running() for stream in self.streams(2)]
        stopped_at = time.monotonic()
        self.pod.experts["spark-2"].signal(signal.SIGSTOP)
        self.wait_held("spark-2")
        self.assertLess(time.monotonic() - stopped_at, 2 * TIME_FACTOR)
        self.assertIn("silent", self.pod.station.text())
        self.pod.experts["spark-2"].signal(signal.SIGCONT)
        for stream in streams:
            self.assertEqual(stream.whole_text(), reference)
        self.check_serves()

    def test_a_server_restarted_with_another_build_is_refused_and_the_step_waits_for_the_right_one(self):
        reference = self.reference()
        stream, server = self.streams(1)[0].wait_running(), self.pod.experts["spark-2"]
        program, build, other = other_build(self.pod)
        server.kill()
        right, server.argv[0] = server.argv[0], str(program)
        server.start()
        health_names(self.pod, "spark-2", "build differs")
        for word in [build, other]:
            self.assertIn(word, self.pod.health().json()["reason"])
        self.assertIn("holding, waiting for spark-2", self.pod.health().json()["state"])
        server.kill()
        server.argv[0] = right
        server.start()
        self.assertEqual(stream.whole_text(), reference)
        self.check_serves()

    def test_a_station_that_ends_does_not_wait_for_whom_it_holds(self):
        stream = ReadStream(self.pod).wait_running()
        self.pod.experts["spark-1"].kill()
        self.wait_held("spark-1")
        started = time.monotonic()
        self.assertEqual(self.pod.station.stop(timeout=60), 0)
        self.assertLess(time.monotonic() - started, 5 * TIME_FACTOR)
        error, _ = stream.end()
        self.assertIn("shut down", error["message"])

    # ---- ten losses in a row ----

    def ask(self, is_over, wrong, counts):
        """Short questions one after another; each must be answered rightly."""
        while not is_over.is_set():
            body = {"messages": [{"role": "user", "content": SUM}], "temperature": 0}
            try:
                answer = self.pod.request("POST", "/v1/chat/completions", body, timeout=60 * TIME_FACTOR)
                counts.append(answer.status)
                if answer.status != 200 or answer.json()["choices"][0]["message"]["content"] != ANSWER:
                    wrong.append(f"{answer.status}: {answer.body[:500]!r}")
            except (OSError, http.client.HTTPException, ValueError, KeyError) as failure:
                wrong.append(repr(failure))

    def lose_and_bring_back(self, server, how):
        if how == "stop":
            server.signal(signal.SIGSTOP)
            health_names(self.pod, server.name)
            server.signal(signal.SIGCONT)
            return
        server.kill() if how == "kill" else server.stop()
        health_names(self.pod, server.name)
        server.start()

    def test_ten_losses_in_a_row_under_load_end_with_every_answer_right(self):
        reference = self.reference()
        before = descriptors(self.pod.station)
        is_over, wrong, counts = threading.Event(), [], []
        threads = [threading.Thread(target=self.ask, args=(is_over, wrong, counts)) for _ in range(2)]
        for thread in threads:
            thread.start()
        streams = self.streams(3)
        try:
            for number, how in enumerate(["kill", "stop", "restart", "kill", "kill", "stop", "kill", "restart", "stop",
                                          "kill"]):
                with self.subTest(number=number, how=how):
                    server = self.pod.experts[self.pod.names[number % 2]]
                    self.lose_and_bring_back(server, how)
                    self.pod.wait_ready(BACK)
                    seen = len(counts)
                    wait_for(lambda: len(counts) > seen, 20 * TIME_FACTOR, "the traffic stands still")
                    streams += self.streams(1)
        finally:
            is_over.set()
            for thread in threads:
                thread.join(60 * TIME_FACTOR)
        for stream in streams:
            self.assertEqual(stream.whole_text(), reference)
        self.assertEqual(wrong, [])
        self.assertEqual(set(counts), {200})
        self.assertEqual(self.pod.metric("k3pod_engine_failed_steps_total"), 0)
        self.assertGreater(self.pod.metric("k3pod_exchange_holds_total"), 0)
        self.check_serves()
        wait_for(lambda: descriptors(self.pod.station) <= before, 10, f"more than {before} open descriptors")


class HeldShm(Held):
    options = {**Held.options, "transport": "shm"}


if __name__ == "__main__":
    unittest.main()
