"""Counters agree with what happened and with each other, whoever scrapes, and however often."""

import concurrent.futures
import threading
import unittest

import exposition
from pod import TIME_FACTOR, PodCase, Stream, request, wait_for

STORY = "Tell me a story about a fox."
VLLM_NAMES = """num_requests_running num_requests_waiting kv_cache_usage_perc num_preemptions_total prompt_tokens_total
    generation_tokens_total request_success_total request_prompt_tokens request_generation_tokens
    request_params_max_tokens request_params_n iteration_tokens_total time_to_first_token_seconds
    inter_token_latency_seconds e2e_request_latency_seconds request_queue_time_seconds request_prefill_time_seconds
    request_decode_time_seconds request_inference_time_seconds""".split()
TTFT_BOUNDS = [.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
               float("inf")]
# Move without any request: the process itself, the machine, and the scrapes.
RESTLESS = ["process_", "k3pod_node_memory_", "k3pod_exchange_silence_seconds", 'handler="/metrics"']


def steady(values):
    return {k: v for k, v in values.items() if not any(word in k for word in RESTLESS)}


class Change:
    """The difference of two scrapes, summed over the labels that are not named."""

    def __init__(self, before, after):
        self.delta = {k: v - before.get(k, 0) for k, v in after.items()}

    def of(self, name, *labels):
        return sum(v for k, v in self.delta.items()
                   if k.split("{")[0] == name and all(label in k for label in labels))


class Counters(PodCase):
    options = {"station": {"max_num_seqs": 4, "max_batch_tokens": 64, "kv_tokens": 8192, "max_model_len": 8192}}

    def leave_before_the_first_token(self):
        stream = Stream(self.pod.port, "/v1/completions", {"prompt": [100] * 4000, "max_tokens": 100})
        wait_for(lambda: self.pod.running() == 1, 10 * TIME_FACTOR, "it does not run")
        stream.close()
        self.pod.wait_idle()

    def leave_after_five_tokens(self):
        stream = self.pod.stream(STORY, max_tokens=1000, ignore_eos=True)
        events = iter(stream)
        for _ in range(6):
            next(events)
        stream.close()
        self.pod.wait_idle()

    def leave_the_queue(self):
        first = Stream(self.pod.port, "/v1/completions", {"prompt": "a", "max_tokens": 8100, "ignore_eos": True})
        second = Stream(self.pod.port, "/v1/completions", {"prompt": "a", "max_tokens": 4000})
        wait_for(lambda: self.pod.waiting() == 1, 10 * TIME_FACTOR, "the second does not wait for pages")
        second.close()
        wait_for(lambda: self.pod.waiting() == 0, 10 * TIME_FACTOR, "it still waits")
        first.close()
        self.pod.wait_idle()

    def test_finished_aborted_and_rejected_requests_add_up(self):
        before = self.pod.metrics()
        answers = [self.chat("What is 47 + 38?") for _ in range(3)]
        answers += [self.complete("The capital of Japan", max_tokens=7) for _ in range(2)]
        self.leave_before_the_first_token()
        self.leave_after_five_tokens()
        self.leave_after_five_tokens()
        self.leave_the_queue()
        for body in [{"prompt": "a", "max_tokens": 8192}, {"prompt": "a", "max_tokens": -3}, {"prompt": [9999]}]:
            self.refused(body, "/v1/completions")
        change = Change(before, self.pod.metrics())

        def outcome(reason, name="vllm:request_success_total"):
            return change.of(name, f'finished_reason="{reason}"')
        self.assertEqual([outcome(r) for r in ["stop", "length", "abort", "error"]], [3, 2, 5, 0])
        self.assertEqual(change.of("http_requests_total", 'status="4xx"', 'handler="/v1/completions"'), 3)
        for total, per_outcome, histogram in [
                ("vllm:prompt_tokens_total", "k3pod_engine_prompt_tokens_total", "vllm:request_prompt_tokens"),
                ("vllm:generation_tokens_total", "k3pod_engine_generation_tokens_total",
                 "vllm:request_generation_tokens")]:
            self.assertEqual(change.of(total), change.of(per_outcome))
            self.assertEqual(change.of(total), change.of(histogram + "_sum"))
            self.assertEqual(change.of(histogram + "_count"), 10)
        finished = {name: sum(a["usage"][name] for a in answers) for name in ["prompt_tokens", "completion_tokens"]}
        for name, usage in [("k3pod_engine_prompt_tokens_total", "prompt_tokens"),
                            ("k3pod_engine_generation_tokens_total", "completion_tokens")]:
            self.assertEqual(outcome("stop", name) + outcome("length", name), finished[usage])
            self.assertGreater(outcome("abort", name), 0)
        # Of the ten, the one that left its prefill and the one that left the queue never had a token.
        self.assertEqual(change.of("vllm:time_to_first_token_seconds_count"), 8)
        self.assertEqual(change.of("vllm:request_queue_time_seconds_count"), 9)
        self.assertEqual(change.of("vllm:e2e_request_latency_seconds_count"), 10)
        self.assertEqual(change.of("vllm:inter_token_latency_seconds_count"),
                         change.of("vllm:generation_tokens_total") - 8)
        self.assertEqual(change.of("vllm:iteration_tokens_total_sum"),
                         change.of("vllm:prompt_tokens_total") + change.of("vllm:generation_tokens_total") - 8)


class Scrapes(PodCase):
    def scrape_until(self, stop, pause, seen):
        while not stop.wait(pause):
            seen.append(self.pod.metrics())

    def test_two_scrapers_see_one_set_of_counters_that_only_grow(self):
        stop, often, seldom = threading.Event(), [], []
        before = self.pod.metrics()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            scrapers = [pool.submit(self.scrape_until, stop, pause, seen)
                        for pause, seen in [(0.02, often), (0.3, seldom)]]
            answers = list(pool.map(lambda i: self.chat(f"What is {i} + {i + 1}?"), range(24)))
            self.pod.wait_idle()
            stop.set()
            for scraper in scrapers:
                scraper.result()
        self.assertGreater(len(often), len(seldom))
        for seen in [often, seldom]:
            for earlier, later in zip(seen, seen[1:]):
                for key, value in earlier.items():
                    if "_total{" in key or "_count" in key or "_bucket" in key:
                        self.assertLessEqual(value, later[key], key)
        tokens = sum(a["usage"]["completion_tokens"] for a in answers)
        change = Change(before, self.pod.metrics())
        self.assertEqual(change.of("vllm:generation_tokens_total"), tokens)
        self.assertEqual(change.of("vllm:request_success_total"), 24)

    def test_scraping_an_idle_pod_changes_nothing(self):
        self.chat("What is 1 + 1?")
        rows = []

        def is_settled():  # counters of the exchange come a little later
            rows.append(steady(self.pod.metrics()))
            return len(rows) > 10 and rows[-1] == rows[-10]
        wait_for(is_settled, 10 * TIME_FACTOR, "counters move without requests")
        before = steady(self.pod.metrics())
        for _ in range(50):
            self.pod.metrics()
        self.assertEqual(steady(self.pod.metrics()), before)

    def test_the_text_follows_the_format_on_every_node(self):
        self.chat("What is 1 + 1?")
        self.pod.request("GET", "/nothing\"here\\")
        for port in [self.pod.port, *self.pod.http_ports.values()]:
            answer = request(port, "GET", "/metrics")
            self.assertEqual(answer.headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
            families = exposition.parse(answer.body.decode())
            self.assertIn("process_open_fds", families)
            self.assertTrue(any(name.startswith("k3pod_") for name in families))

    def test_dashboards_find_the_names_of_vllm(self):
        self.chat("What is 1 + 1?")
        families = exposition.parse(self.pod.request("GET", "/metrics").body.decode())
        for name in VLLM_NAMES:
            self.assertIn("vllm:" + name, families)
            for _, labels in families["vllm:" + name].samples:
                self.assertEqual(dict(labels)["model_name"], "k3-tiny")
                self.assertEqual(dict(labels)["engine"], "0")
        ttft = families["vllm:time_to_first_token_seconds"].samples
        self.assertEqual(sorted(float(dict(labels)["le"]) for name, labels in ttft if name.endswith("_bucket")),
                         TTFT_BOUNDS)


if __name__ == "__main__":
    unittest.main()
