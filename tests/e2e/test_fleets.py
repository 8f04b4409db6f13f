"""Fleets of unusual size and the small faults of a fleet: few servers, many, deaf ports, doubled addresses."""

import resource
import socket
import subprocess
import time
import unittest

from failure_case import ANSWER, BACK, SUM, health_names
from pod import TIME_FACTOR, Pod, wait_for

STORY = {"prompt": "Tell me a story about a fox.", "max_tokens": 200, "ignore_eos": True, "temperature": 0,
         "return_token_ids": True}
EXACT = {"reply": '"f32"'}


class Sizes(unittest.TestCase):
    def tokens(self, **options):
        with Pod(exchange=EXACT, **options) as pod:
            pod.start()
            self.assertEqual(pod.chat(SUM)["content"], ANSWER)
            answer = pod.request("POST", "/v1/completions", STORY)
            self.assertEqual(answer.status, 200, answer.body[:500])
            return answer.json()["choices"][0]["token_ids"]

    def test_one_server_and_nine_give_the_tokens_of_two(self):
        expected = self.tokens(experts=2)
        self.assertEqual(len(expected), 200)
        self.assertEqual(self.tokens(experts=1), expected)
        self.assertEqual(self.tokens(experts=9), expected)


class Addresses(unittest.TestCase):
    def test_a_port_that_accepts_and_never_answers_is_named_and_given_up_for_the_server(self):
        with Pod() as pod, socket.create_server(("127.0.0.1", pod.control_ports["spark-2"])) as deaf:
            pod.experts["spark-1"].start()
            pod.station.start()
            wait_for(lambda: "waiting: spark-2 is not reachable" in pod.station.text(), 20 * TIME_FACTOR,
                     "nobody says that spark-2 does not answer")
            health = pod.health()
            self.assertEqual(health.status, 503)
            self.assertIn("spark-2", health.json()["reason"])
            self.assertNotIn("spark-1 (", health.json()["reason"])
            deaf.close()
            pod.experts["spark-2"].start()
            pod.wait_ready(BACK)
            self.assertEqual(pod.chat(SUM)["content"], ANSWER)

    def test_a_deaf_port_in_a_lost_servers_place_does_not_keep_it_out(self):
        with Pod(exchange=EXACT) as pod:
            pod.start()
            pod.experts["spark-2"].kill()
            with socket.create_server(("127.0.0.1", pod.control_ports["spark-2"])):
                health_names(pod, "spark-2")
            pod.experts["spark-2"].start()
            pod.wait_ready(BACK)
            self.assertEqual(pod.chat(SUM)["content"], ANSWER)

    def test_one_host_for_two_nodes_is_told_by_name_under_whatever_address(self):
        with Pod() as pod:
            first, second = (pod.control_ports[name] for name in pod.names)
            text = pod.file.read_text()
            pod.file.write_text(text.replace(f":{second}\"", f":{first}\""))
            pod.station.start()
            self.assertEqual(pod.station.wait(), 1)
            self.assertIn(f"spark-2 uses the address 127.0.0.1:{first} a second time", pod.station.text())
            pod.file.write_text(text.replace(f"127.0.0.1:{second}\"", f"localhost:{first}\""))
            pod.experts["spark-1"].start()
            pod.station.start()
            wait_for(lambda: "'spark-2' was dialled, but 'spark-1' answers" in pod.station.text(), 20 * TIME_FACTOR,
                     "the doubled address is not noticed")
            health_names(pod, "spark-2", "give each node its own control address")


class LockedMemory(unittest.TestCase):
    def test_64_kib_are_enough_where_nothing_is_registered(self):
        with Pod() as pod:
            limit = (65536, 65536)
            server = pod.experts["spark-1"]
            with open(server.log, "ab") as out:
                server.process = subprocess.Popen(
                    server.argv, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK, limit))
            started = time.monotonic()
            pod.experts["spark-2"].start()
            pod.station.start()
            pod.wait_ready()
            self.assertLess(time.monotonic() - started, 10 * TIME_FACTOR)
            self.assertEqual(pod.chat(SUM)["content"], ANSWER)


if __name__ == "__main__":
    unittest.main()
