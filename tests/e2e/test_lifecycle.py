"""Start order, restart, drain, exit statuses and what the command line says."""

import json
import os
import pty
import signal
import socket
import subprocess
import threading
import time
import unittest

from pod import BINARY, Pod, request, wait_for


def run(*arguments, timeout=30):
    return subprocess.run([str(BINARY), *map(str, arguments)], capture_output=True, text=True, timeout=timeout)


def answering(*contents, thinking=()):
    """A listener that answers one request by a stream with this thinking and these contents; gives its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    deltas = [{"reasoning_content": text} for text in thinking] + [{"content": text} for text in contents]
    chunks = [json.dumps({"choices": [{"delta": delta}]}) for delta in deltas] + ["[DONE]"]
    body = "".join(f"data: {chunk}\n\n" for chunk in chunks).encode()

    def answer():
        with listener, listener.accept()[0] as client:
            client.recv(65536)
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                           b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    threading.Thread(target=answer, daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def read_terminal(fd):
    """All that comes until the other side is closed, which Linux reports as an error."""
    data = b""
    try:
        while piece := os.read(fd, 65536):
            data += piece
    except OSError:
        pass
    return data


class CommandLine(unittest.TestCase):
    def test_help_of_every_subcommand_has_an_example(self):
        overview = run("--help")
        self.assertEqual(overview.returncode, 0)
        for command in ["station", "expert", "ask", "version"]:
            self.assertIn(command, overview.stdout)
        for command in ["station", "expert", "ask"]:
            self.assertIn("Example: k3pod " + command, run(command, "--help").stdout)

    def test_wrong_usage_exits_with_2_and_a_sentence(self):
        for arguments in [[], ["fly"], ["station"], ["expert", "--pod", "x.toml"], ["station", "--pod"]]:
            done = run(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertTrue(done.stderr.strip(), arguments)

    def test_wrong_usage_names_what_is_wrong_and_the_help_to_read(self):
        for arguments, said in [
                ([], "k3pod: A subcommand is required\nRun k3pod --help for more information.\n"),
                (["fly"], "k3pod: 'fly' is no command\nRun k3pod --help for more information.\n"),
                (["station"], "k3pod: --pod is required\nRun k3pod station --help for more information.\n")]:
            self.assertEqual(run(*arguments).stderr, said)
        self.assertIn("put a question of several words in quotes", run("ask", "What", "is").stderr)

    def test_an_empty_question_is_wrong_usage(self):
        for question in ["", "  \n"]:
            done = run("ask", "--url", "http://127.0.0.1:9", question)
            self.assertEqual(done.returncode, 2)
            self.assertIn("is empty", done.stderr)

    def test_a_terminal_does_not_obey_what_the_model_writes_and_a_file_gets_it_as_it_is(self):
        contents = ["a\x1b[2J", "b\tc\n", "\x9bd\r"]
        piped = subprocess.run([str(BINARY), "ask", "--url", answering(*contents), "Hi"], capture_output=True, timeout=30)
        self.assertEqual(piped.stdout, b"a\x1b[2Jb\tc\n\xc2\x9bd\r\n")
        ours, theirs = pty.openpty()
        with subprocess.Popen([str(BINARY), "ask", "--url", answering(*contents), "Hi"], stdout=theirs) as asked:
            os.close(theirs)
            shown = read_terminal(ours)
            os.close(ours)
        self.assertEqual(asked.returncode, 0)
        self.assertEqual(shown, b"a\\x1b[2Jb\tc\r\n\\xc2\\x9bd\\r\r\n")

    def test_thinking_that_is_shown_ends_with_its_line(self):
        url = answering("4", ".", thinking=["two ", "twos", ""])
        done = run("ask", "--show-thinking", "--url", url, "Hi")
        self.assertEqual((done.stdout, done.stderr), ("4.\n", "two twos\n"))

    def test_version_names_build_and_protocols(self):
        text = run("version").stdout
        for word in ["build id", "control version", "wire version", "UCX"]:
            self.assertIn(word, text)

    def test_closed_standard_descriptors_are_not_given_to_files_and_sockets(self):
        """What is meant for a terminal must not reach a peer that happens to have its number."""
        with Pod(experts=1) as pod:
            for node in [*pod.experts.values(), pod.station]:
                node.argv = ["sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', *node.argv]
            pod.start()
            for node in [*pod.experts.values(), pod.station]:
                for fd in range(3):
                    self.assertEqual(os.readlink(f"/proc/{node.process.pid}/fd/{fd}"), "/dev/null")
            self.assertIn("85", pod.chat("What is 47 + 38?")["content"])

    def test_print_config_is_a_pod_file(self):
        with Pod() as pod:
            done = run("station", "--pod", pod.file, "--print-config")
            self.assertEqual(done.returncode, 0, done.stderr)
            again = pod.dir / "again.toml"
            again.write_text(done.stdout)
            self.assertEqual(run("station", "--pod", again, "--print-config").stdout, done.stdout)

    def check_refused(self, text, *expected):
        with Pod() as pod:
            pod.file.write_text(text(pod.file.read_text()))
            for arguments in [["station"], ["expert", "--node", "spark-1"]]:
                done = run(*arguments, "--pod", pod.file)
                self.assertEqual(done.returncode, 1, arguments)
                self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
                for word in expected:
                    self.assertIn(word, done.stderr)

    def test_bad_pod_files_are_refused_alike_by_both_roles(self):
        self.check_refused(lambda t: t.replace("[placement]", "[placment]"), "placment", "did you mean 'placement'")
        self.check_refused(lambda t: t.replace("max_num_seqs = 64", "max_num_seqs = 64\nmax_num_seqs = 3"), "pod.toml")
        self.check_refused(lambda t: "\n".join(l for l in t.splitlines() if not l.startswith("model")), "lacks 'model'")
        self.check_refused(lambda t: "\n".join(l for l in t.splitlines() if not l.startswith("expert_budget")),
                           "lacks 'expert_budget'")

    def test_variables_with_our_prefix_are_refused(self):
        with Pod() as pod:
            done = subprocess.run([str(BINARY), "station", "--pod", str(pod.file)], capture_output=True, text=True,
                                  env={"K3POD_TRANSPORT": "shm", "PATH": "/usr/bin"}, timeout=30)
            self.assertEqual(done.returncode, 1)
            self.assertIn("K3POD_TRANSPORT", done.stderr)

    def test_budget_over_the_machines_memory_and_unknown_node_are_refused(self):
        with Pod(budget="100 TiB") as pod:
            done = run("expert", "--pod", pod.file, "--node", "spark-1")
            self.assertEqual(done.returncode, 1)
            self.assertIn("bytes of memory", done.stderr)
            done = run("expert", "--pod", pod.file, "--node", "spark-9")
            self.assertEqual(done.returncode, 1)
            self.assertIn("did you mean 'spark-1'?", done.stderr)

    def test_cuda_back_end_is_refused_by_name(self):
        with Pod(station={"backend": '"cuda"'}) as pod:
            done = run("station", "--pod", pod.file)
            self.assertEqual(done.returncode, 1)
            self.assertIn("cuda", done.stderr)

    def test_budgets_too_small_are_refused_with_the_shortfall(self):
        with Pod(budget="1 MiB") as pod:
            done = run("station", "--pod", pod.file, timeout=60)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, r"(?i)short|need")

    def test_a_cache_larger_than_the_memory_is_refused_with_both_sizes(self):
        with Pod(station={"kv_tokens": 1 << 36}) as pod:
            done = run("station", "--pod", pod.file, timeout=60)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, r"kv_tokens .* need \d+ bytes but this machine has \d+ bytes")

    def test_ask_says_when_nobody_listens(self):
        with Pod() as pod:
            done = run("ask", "--url", f"http://127.0.0.1:{pod.port}", "Hi")
            self.assertEqual(done.returncode, 1)
            self.assertIn("is the station running?", done.stderr)
            self.assertEqual(run("ask", "--url", "ftp://x", "Hi").returncode, 1)

    def test_ask_shows_the_refusal_of_a_waiting_station(self):
        with Pod() as pod:
            pod.station.start()
            wait_for(lambda: (h := pod.health()) and b"spark-2" in h.body, 30, "no health answer")
            done = run("ask", "--url", f"http://127.0.0.1:{pod.port}", "Hi")
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, "answered 503: .*spark-1")

    def test_ask_says_when_an_address_does_not_speak_http(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            def greet():
                with listener.accept()[0] as client:
                    client.recv(65536)
                    client.sendall(b"220 mail\r\n")
            threading.Thread(target=greet, daemon=True).start()
            done = run("ask", "--url", f"http://127.0.0.1:{listener.getsockname()[1]}", "Hi")
        self.assertEqual(done.returncode, 1)
        self.assertIn("does not speak HTTP; give the address of [station] listen with --url", done.stderr)

    def test_ask_gives_up_on_a_silent_endpoint(self):
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            started = time.monotonic()
            done = run("ask", "--timeout", "1", "--url", f"http://127.0.0.1:{silent.getsockname()[1]}", "Hi")
            self.assertEqual(done.returncode, 1)
            self.assertIn("silent for 1 s", done.stderr)
            self.assertLess(time.monotonic() - started, 10)

    def test_port_in_use_is_named(self):
        with Pod() as first:
            first.start()
            done = run("station", "--pod", first.file)
            self.assertEqual(done.returncode, 1)
            self.assertIn(str(first.port), done.stderr)
            done = run("expert", "--pod", first.file, "--node", "spark-1")
            self.assertEqual(done.returncode, 1)
            self.assertIn(str(first.control_ports["spark-1"]), done.stderr)


class Lifecycle(unittest.TestCase):
    def test_station_first_waits_and_names_whom_it_waits_for(self):
        with Pod() as pod:
            pod.station.start()
            health = wait_for(lambda: (h := pod.health()) and b"spark-2" in h.body and h, 30, "no health answer")
            self.assertEqual(health.status, 503)
            answer = pod.request("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]})
            self.assertEqual(answer.status, 503)
            self.assertIn("Retry-After", answer.headers)
            self.assertIn("spark-1", answer.json()["error"]["message"])
            wait_for(lambda: "waiting: spark-1 is not reachable at" in pod.station.text(), 10, "the log names nobody")
            self.assertIn(f"127.0.0.1:{pod.control_ports['spark-1']}: Connection refused", pod.station.text())
            for node in pod.experts.values():
                node.start()
            pod.wait_ready()
            self.assertEqual(pod.chat("What is 1 + 1?")["content"], "1 + 1 = 2.")

    def test_expert_servers_first_wait_for_the_station(self):
        with Pod() as pod:
            for node in pod.experts.values():
                node.start()
            wait_for(lambda: all("waiting for the station" in n.text() for n in pod.experts.values()), 20, "no log")
            health = request(pod.http_ports["spark-1"], "GET", "/health")
            self.assertEqual(health.status, 503)
            pod.station.start()
            pod.wait_ready()
            self.assertEqual(request(pod.http_ports["spark-1"], "GET", "/health").status, 200)

    def test_restarted_station_finds_the_shards_loaded(self):
        with Pod() as pod:
            pod.start()
            pod.station.kill()
            pod.station.start()
            pod.wait_ready()
            self.assertEqual(pod.chat("What is 2 + 2?")["content"], "2 + 2 = 4.")
            self.assertEqual(pod.experts["spark-1"].text().count("loaded 100 %"), 1)

    def test_sigterm_lets_running_requests_finish_and_refuses_new_ones(self):
        with Pod() as pod:
            pod.start()
            stream = pod.stream("Tell me a story about a fox.", max_tokens=600, ignore_eos=True)
            events = iter(stream)
            next(events)
            pod.station.signal(signal.SIGTERM)
            wait_for(lambda: (h := pod.health()) is not None and h.status == 503, 10, "health stays 200")
            refused = pod.request("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1})
            self.assertEqual(refused.status, 503)
            last = None
            for event in events:
                if event["choices"]:
                    last = event["choices"][0].get("finish_reason") or last
            self.assertEqual(last, "length")
            self.assertTrue(stream.is_done)
            self.assertEqual(pod.station.wait(), 0)
            for node in pod.experts.values():
                self.assertEqual(node.stop(), 0)

    def test_a_drained_server_is_lost_once_and_with_its_own_reason(self):
        with Pod() as pod:
            pod.start()
            self.assertEqual(pod.experts["spark-1"].stop(), 0)
            wait_for(lambda: "waiting: spark-1 is not reachable" in pod.station.text(), 10, "nobody waits")
            losses = [line for line in pod.station.text().splitlines() if "lost: spark-1" in line]
            self.assertEqual([line.split("| ")[1] for line in losses], ["lost: spark-1 is draining"])
            self.assertIn("spark-1 (is not reachable at", pod.health().json()["reason"])

    def test_drain_limit_cuts_off_what_does_not_finish(self):
        with Pod(station={"drain_timeout": '"300 ms"', "default_max_tokens": 8000, "max_model_len": 8192}) as pod:
            pod.start()
            stream = pod.stream("Tell me a story about a fox.", max_tokens=7000, ignore_eos=True)
            events = iter(stream)
            next(events)
            started = time.monotonic()
            self.assertEqual(pod.station.stop(), 0)
            self.assertLess(time.monotonic() - started, 10)
            self.assertTrue(any("error" in e for e in events), "the cut stream ends without a word")

    def test_second_signal_ends_a_draining_station_at_once(self):
        with Pod() as pod:
            pod.start()
            stream = pod.stream("Tell me a story about a fox.", max_tokens=1000, ignore_eos=True)
            next(iter(stream))
            pod.station.signal(signal.SIGTERM)
            wait_for(lambda: "draining" in pod.station.text(), 10, "no word about draining")
            self.assertEqual(pod.station.stop(timeout=5), 130)

    def test_sighup_drains_a_node_that_has_a_terminal_and_no_other(self):
        with Pod() as pod:
            with_terminal, without = pod.experts.values()
            ours, theirs = pty.openpty()
            with open(with_terminal.log, "ab") as out:
                with_terminal.process = subprocess.Popen(with_terminal.argv, stdin=theirs, stdout=out, stderr=out)
            os.close(theirs)
            without.start()
            for node in [with_terminal, without]:
                wait_for(lambda: "waiting for the station" in node.text(), 20, "no log")
                node.signal(signal.SIGHUP)
            self.assertEqual(with_terminal.wait(), 0)
            os.close(ours)
            self.assertIn("draining", with_terminal.text())
            self.assertTrue(without.is_running())
            self.assertEqual(without.stop(), 0)
            self.assertEqual(without.text().count("draining"), 1)

    def test_idle_nodes_stop_at_once(self):
        with Pod() as pod:
            pod.start()
            for node in [pod.station, *pod.experts.values()]:
                started = time.monotonic()
                self.assertEqual(node.stop(), 0)
                self.assertLess(time.monotonic() - started, 5)


if __name__ == "__main__":
    unittest.main()
