"""200 generated questions are answered right, alone and sixteen at a time, whole and sliced."""

import concurrent.futures
import os
import time
import unittest

from pod import Pod
from questions import generate

SEED = int(os.environ.get("POD_SEED", time.time_ns() % 1_000_000))


class Questions(unittest.TestCase):
    def answer(self, pod, question):
        response = pod.request("POST", "/v1/chat/completions", question.body(), timeout=300)
        self.assertEqual(response.status, 200, response.body[:500])
        return response.json()["choices"][0]["message"]

    def check_all(self, pod, questions, parallel):
        with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
            messages = list(pool.map(lambda q: self.answer(pod, q), questions))
        wrong = [(q.text, m) for q, m in zip(questions, messages) if not q.is_right(m)]
        self.maxDiff = None
        self.assertEqual(wrong, [], f"seed {SEED}: {len(wrong)} of {len(questions)} are wrong")
        return messages

    def check_pod(self, **options):
        questions = generate(200, SEED)
        with Pod(**options) as pod:
            pod.start()
            crowd = self.check_all(pod, questions, parallel=16)
            # Alone: the same texts, so company changes nothing.
            sample = questions[:40]
            self.assertEqual(self.check_all(pod, sample, parallel=1), crowd[:40])

    def test_whole_experts_on_two_servers(self):
        self.check_pod(experts=2, mode="whole")

    def test_sliced_experts_on_two_servers_over_shared_memory(self):
        self.check_pod(experts=2, mode="sliced", transport="shm")

    def test_sliced_experts_on_three_servers(self):
        with Pod(experts=3, mode="sliced") as pod:
            pod.start()
            self.check_all(pod, generate(40, SEED + 1), parallel=8)

    def test_station_holds_a_share_itself(self):
        with Pod(experts=1, mode="whole", station={"expert_budget": '"8 MiB"'}) as pod:
            pod.start()
            self.check_all(pod, generate(40, SEED + 2), parallel=8)


if __name__ == "__main__":
    unittest.main()
