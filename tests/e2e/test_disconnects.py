"""A client that leaves takes its work with it, in every phase; one that stays hears from a long prefill."""

import concurrent.futures
import json
import os
import random
import socket
import struct
import time
import unittest

from pod import TIME_FACTOR, PodCase, Stream, wait_for

SEED = int(os.environ.get("POD_SEED", time.time_ns() % 1_000_000))
STORY = [{"role": "user", "content": "Tell me a story about a fox."}]
FULL_PROMPT = [100 + i % 1500 for i in range(8000)]  # nearly the model's whole context of 8,192
LONG_PROMPT = FULL_PROMPT[:4000]  # seconds of prefill
GONE = 2 * TIME_FACTOR  # seconds after which nothing of a client that left may be left


def http_request(path, body):
    data = json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n").encode() + data


class Raw:
    """One request on a socket of its own, so that the test decides how it is left."""

    def __init__(self, port, path, body):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.sock.sendall(http_request(path, body))

    def close(self):
        self.sock.close()

    def reset(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


class Disconnects(PodCase):
    options = {"station": {"max_num_seqs": 4, "max_batch_tokens": 64, "queue_limit": 8}}

    def check_gone(self):
        """Nothing is left: no request, no page, and the expert servers get no more rows."""
        self.pod.wait_idle(GONE)
        self.assertEqual(self.pod.metric("vllm:kv_cache_usage_perc"), 0)
        seen = [(time.monotonic(), -1)]

        def is_quiet():  # the counter is brought up to date several times a second
            rows = self.pod.metric("k3pod_exchange_rows_total")
            if rows != seen[-1][1]:
                seen.append((time.monotonic(), rows))
            return time.monotonic() - seen[-1][0] > 0.5
        wait_for(is_quiet, 3 * TIME_FACTOR, "the expert servers still get rows")

    def wait_running(self, count=1):
        wait_for(lambda: self.pod.running() == count, 10 * TIME_FACTOR, f"{count} requests do not run")

    def aborted(self):
        return self.pod.metrics()['vllm:request_success_total{engine="0",finished_reason="abort",model_name="k3-tiny"}']

    def test_leaving_before_the_first_token(self):
        for stream in [True, False]:
            for leave in [Raw.close, Raw.reset]:
                aborted, tokens = self.aborted(), self.pod.metric("vllm:generation_tokens_total")
                computed = self.pod.metric("vllm:iteration_tokens_total_sum")
                client = Raw(self.pod.port, "/v1/completions",
                             {"prompt": FULL_PROMPT, "max_tokens": 150, "ignore_eos": True, "stream": stream})
                wait_for(lambda: self.pod.metric("vllm:iteration_tokens_total_sum") > computed + 256, 20 * TIME_FACTOR,
                         "the prefill does not begin")
                leave(client)
                self.pod.wait_idle(GONE)
                self.assertEqual(self.aborted() - aborted, 1)
                self.assertEqual(self.pod.metric("vllm:generation_tokens_total"), tokens, "it was too late to tell")
        self.check_gone()

    def test_leaving_in_the_middle_of_an_answer(self):
        aborted = self.aborted()
        fields = {"max_tokens": 4000, "ignore_eos": True}
        stream = self.pod.stream(STORY, **fields)
        events = iter(stream)
        for _ in range(5):
            next(events)
        stream.close()
        self.check_gone()
        self.assertEqual(self.aborted() - aborted, 1)
        before = self.pod.metric("vllm:generation_tokens_total")
        client = Raw(self.pod.port, "/v1/chat/completions", {"messages": STORY, **fields})
        wait_for(lambda: self.pod.metric("vllm:generation_tokens_total") > before + 5, 20 * TIME_FACTOR, "no tokens")
        client.close()
        self.check_gone()
        self.assertEqual(self.aborted() - aborted, 2)

    def test_leaving_the_queue(self):
        running = [Stream(self.pod.port, "/v1/completions", {"prompt": "a", "max_tokens": 4000, "ignore_eos": True})
                   for _ in range(4)]
        self.wait_running(4)
        for stream in [True, False]:
            waiting = Raw(self.pod.port, "/v1/chat/completions", {"messages": STORY, "stream": stream})
            wait_for(lambda: self.pod.waiting() == 1, GONE, "the fifth does not wait")
            waiting.close()
            wait_for(lambda: self.pod.waiting() == 0, GONE, "the fifth still waits")
            self.assertEqual(self.pod.running(), 4)
        for stream in running:
            stream.close()
        self.check_gone()

    def test_leaving_takes_all_choices_along(self):
        stream = self.pod.stream(STORY, n=6, max_tokens=4000, ignore_eos=True)
        self.wait_running(4)
        self.assertEqual(self.pod.waiting(), 2)
        stream.close()
        self.check_gone()

    def reset_somewhere(self, seed):
        """A request whose connection is reset after some bytes of it, or after some bytes of its answer."""
        rng = random.Random(seed)
        fields = {"messages": STORY, "max_tokens": rng.randint(1, 200), "stream": rng.random() < 0.6,
                  "temperature": 1, "n": rng.choice([1, 1, 2])}
        data = http_request("/v1/chat/completions", fields)
        sock = socket.create_connection(("127.0.0.1", self.pod.port), timeout=60)
        num_sent = len(data) if rng.random() < 0.6 else rng.randrange(len(data))
        sock.sendall(data[:num_sent])
        if num_sent == len(data):
            wanted = rng.choice([0, 1, 50, 300, 2000])
            while wanted > 0 and (piece := sock.recv(wanted)):
                wanted -= len(piece)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()

    def test_two_hundred_resets_leave_nothing_behind(self):
        descriptors = f"/proc/{self.pod.station.process.pid}/fd"
        self.pod.chat("What is 1 + 1?")
        before, aborted = len(os.listdir(descriptors)), self.aborted()
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(self.reset_somewhere, range(SEED, SEED + 200)))
        with self.subTest(seed=SEED):
            self.check_gone()
            self.assertGreater(self.aborted() - aborted, 20, "most of them ended before they were left")
            wait_for(lambda: len(os.listdir(descriptors)) <= before, 10, "file descriptors are left open")


class LongPrefill(PodCase):
    """The prompt of LONG_PROMPT takes seconds, so a tenth of a second is long for this pod."""

    options = {"station": {"sse_keepalive": '"100 ms"', "max_num_seqs": 8}}

    def test_a_long_prefill_is_filled_with_comments(self):
        started = time.monotonic()
        stream = Stream(self.pod.port, "/v1/completions", {"prompt": LONG_PROMPT, "max_tokens": 3})
        self.assertEqual(stream.status, 200)
        self.assertLess(time.monotonic() - started, 1 * TIME_FACTOR, "the headers wait for the first token")
        self.assertEqual(self.pod.metric("vllm:generation_tokens_total"), 0, "the prefill is too short for this test")
        gaps, last, num_events = [], time.monotonic(), 0
        for line in stream.response:
            gaps.append(time.monotonic() - last)
            last = time.monotonic()
            if line.startswith(b":"):
                self.assertEqual(num_events, 0)
                stream.num_comments += 1
            num_events += line.startswith(b"data: {")
        stream.close()
        self.assertGreater(stream.num_comments, 5)
        self.assertGreaterEqual(num_events, 3)
        self.assertLess(max(gaps), 2 * TIME_FACTOR, "silence in spite of comments every 0.1 s")

    def test_a_waiting_stream_is_kept_alive_too(self):
        first = [Stream(self.pod.port, "/v1/completions", {"prompt": "a", "max_tokens": 4000, "ignore_eos": True})
                 for _ in range(8)]
        wait_for(lambda: self.pod.running() == 8, 20 * TIME_FACTOR, "8 requests do not run")
        waiting = Stream(self.pod.port, "/v1/completions", {"prompt": "a", "max_tokens": 3})
        self.assertEqual(waiting.status, 200)
        for _ in range(3):
            self.assertTrue(waiting.response.readline().startswith(b":"))
            waiting.response.readline()
        for stream in first:
            stream.close()
        self.assertTrue(list(waiting) and waiting.is_done)
        waiting.close()


class NoKeepalive(PodCase):
    options = {"station": {"sse_keepalive": '"0 s"'}}

    def test_zero_means_no_comments(self):
        stream = Stream(self.pod.port, "/v1/completions", {"prompt": LONG_PROMPT[:1500], "max_tokens": 3})
        self.assertTrue(list(stream))
        self.assertEqual(stream.num_comments, 0)
        stream.close()


if __name__ == "__main__":
    unittest.main()
