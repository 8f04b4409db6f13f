"""Routes, methods, errors, and bodies of every size and shape: nothing is answered but 200, 4xx and sense."""

import copy
import http.client
import json
import os
import random
import socket
import time
import unittest

from pod import TIME_FACTOR, PodCase, request, wait_for

CHAT = "/v1/chat/completions"
SEED = int(os.environ.get("POD_SEED", time.time_ns() % 1_000_000))
KIB = 1024


def body_of(content, **fields):
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 1, **fields}


def exchange(port, data, timeout=30):
    """Sends bytes as they are, reads to the end of the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := sock.recv(65536):
            answer += piece
    return answer


class Routes(PodCase):
    def test_models_are_listed_and_shown(self):
        listed = self.pod.request("GET", "/v1/models").json()
        self.assertEqual((listed["object"], len(listed["data"])), ("list", 1))
        model = listed["data"][0]
        self.assertEqual({k: model[k] for k in ["id", "object", "max_model_len"]},
                         {"id": "k3-tiny", "object": "model", "max_model_len": 8192})
        self.assertIsInstance(model["created"], int)
        self.assertEqual(self.pod.request("GET", "/v1/models/k3-tiny").json(), model)
        answer = self.pod.request("GET", "/v1/models/gpt-4")
        self.assertEqual((answer.status, self.error_of(answer)["code"]), (404, "model_not_found"))

    def test_a_model_may_be_left_out_but_not_unknown(self):
        for fields in [{}, {"model": None}, {"model": "k3-tiny"}]:
            self.ok(CHAT, body_of("Hi", **fields))
        for path, body in [(CHAT, body_of("Hi", model="gpt-4")), ("/v1/completions", {"prompt": "a", "model": "x"})]:
            error = self.refused(body, path, status=404)
            self.assertEqual((error["code"], error["param"]), ("model_not_found", "model"))

    def test_texts_survive_both_ways(self):
        for text in ["", " ", "\n\n", "Hello, I am Anna.", "日本語のテキスト 123漢字", "🎉🚀 é \u200d", "a\u0000b",
                     "naïve café\r\n\r\n  tabs\tand  spaces  ", "<|open|>message<|sep|>[EOS]", "👩\u200d👩\u200d👧 ½ Ⅷ \U0002070e"]:
            ids = self.tokenize(text)
            self.assertTrue(all(i < 2048 for i in ids), (text, ids))
            self.assertEqual(self.ok("/detokenize", {"tokens": ids})["prompt"], text)
        answer = self.ok("/tokenize", {"prompt": "Hello, I am Anna.", "return_token_strs": True})
        self.assertEqual(answer, {"count": 6, "max_model_len": 8192, "tokens": [501, 11, 353, 797, 663, 13],
                                  "token_strs": ["Hello", ",", " I", " am", " Anna", "."]})

        self.assertEqual(self.ok("/tokenize", {"content": "Hello"})["tokens"], [501])

    def test_one_connection_serves_many_requests(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.pod.port, timeout=30)
        for path, body, status in [(CHAT, body_of("Hi"), 200), (CHAT, body_of("Hi", stream=True), 200),
                                   (CHAT, body_of("Hi", n=0), 400), ("/nothing", {}, 404), (CHAT, body_of("Hi"), 200)]:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            sock = connection.sock
            answer = connection.getresponse()
            self.assertEqual((answer.status, bool(answer.read())), (status, True))
            self.assertIs(connection.sock, sock, "the connection was closed")
        connection.close()

    def test_version_and_ping(self):
        self.assertRegex(self.pod.request("GET", "/version").json()["version"], r"^\d+\.\d+\.\d+\+")
        self.assertEqual(self.pod.request("GET", "/ping").status, 200)

    def test_wrong_token_calls_are_refused(self):
        for path, bodies in {"/tokenize": [{}, {"prompt": 1}, {"messages": "x"}, [], "x"],
                             "/detokenize": [{}, {"tokens": "x"}, {"tokens": [-1]}, {"tokens": [2304]},
                                             {"tokens": [1.5]}, {"tokens": [None]}, {"tokens": {}}]}.items():
            for body in bodies:
                self.refused(body, path)

    def test_health_tells_what_runs(self):
        health = self.pod.health().json()
        self.assertEqual({k: health[k] for k in ["status", "running", "waiting", "kv_usage"]},
                         {"status": "ok", "running": 0, "waiting": 0, "kv_usage": 0})
        stream = self.pod.stream("Tell me a story about a fox.", ignore_eos=True, max_tokens=1000)
        next(iter(stream))
        health = self.pod.health().json()
        self.assertEqual((health["status"], health["running"]), ("ok", 1))
        self.assertGreater(health["kv_usage"], 0)
        self.assertLess(health["seconds_since_progress"], 5 * TIME_FACTOR)
        stream.close()
        self.pod.wait_idle()
        self.assertEqual(self.pod.health().json()["kv_usage"], 0)

    def test_wrong_paths_methods_and_types(self):
        for path in ["/", "/v1", "/v1/chat", "/v1/chat/completions/x", "/favicon.ico", "/%00", "/v1/../etc/passwd", "/é"]:
            answer = self.pod.request("GET", path.replace("é", "%C3%A9"))
            self.assertEqual(answer.status, 404, path)
            self.error_of(answer)
        for method, path, allowed in [("GET", CHAT, "POST"), ("GET", CHAT + "/", "POST"), ("DELETE", CHAT, "POST"), ("PUT", "/tokenize", "POST"),
                                      ("POST", "/v1/models", "GET"), ("POST", "/health", "GET"),
                                      ("PATCH", "/metrics", "GET")]:
            answer = self.pod.request(method, path, "{}" if method != "GET" else None)
            self.assertEqual(answer.status, 405, (method, path))
            self.assertIn(allowed, answer.headers["Allow"])
            self.error_of(answer)
        body = json.dumps(body_of("Hi"))
        for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]:
            answer = self.pod.request("POST", CHAT, body, headers={"Content-Type": kind})
            self.assertEqual(answer.status, 415, kind)
            self.error_of(answer)
        for kind in ["application/json", "Application/JSON; charset=utf-8"]:
            self.assertEqual(self.pod.request("POST", CHAT, body, headers={"Content-Type": kind}).status, 200)
        for path in [CHAT, "*"]:
            self.assertEqual(self.pod.request("OPTIONS", path).status, 204)
        for path, status in [("/health", 200), ("/v1/models/", 200), (CHAT, 405), ("/nowhere", 404)]:
            head = self.pod.request("HEAD", path)
            self.assertEqual((head.status, head.body), (status, b""), path)
        self.assertEqual(self.pod.request("POST", CHAT, body, headers={"Expect": "200-ok"}).status, 417)

    def test_unknown_fields_are_ignored(self):
        extra = {"user": "me", "metadata": {"a": [1]}, "service_tier": "auto", "store": False, "🎉": None,
                 "parallel_tool_calls": True, "cache_salt": "x", "priority": 3}
        self.assertEqual(self.chat("What is 1 + 1?", **extra)["choices"][0]["message"]["content"], "1 + 1 = 2.")

    def test_expert_servers_have_health_and_metrics_only(self):
        port = self.pod.http_ports["spark-1"]
        self.assertEqual(self.pod.request("GET", "/health").status, 200)
        for method, path, status in [("GET", "/health", 200), ("GET", "/metrics", 200), ("GET", "/v1/models", 404),
                                     ("POST", CHAT, 404), ("POST", "/health", 405)]:
            answer = request(port, method, path, {} if method == "POST" else None)
            self.assertEqual(answer.status, status, (method, path))
            if status >= 400:
                self.error_of(answer)


class Bodies(PodCase):
    options = {"station": {"max_body": '"33 MiB"', "max_model_len": 512, "default_max_tokens": 64}}

    def send(self, data, statuses=(200, 400), limit=1.0, path=CHAT):
        started = time.monotonic()
        answer = self.post(path, data, headers={"Content-Type": "application/json"})
        took = time.monotonic() - started
        self.assertIn(answer.status, statuses, (data[:300], answer.body[:500]))
        if answer.status != 200:
            self.error_of(answer)
            self.assertLess(took, limit * TIME_FACTOR, f"{len(data)} bytes took {took} s")
        return answer

    def test_bodies_of_every_size_are_answered(self):
        sizes = [KIB << i for i in range(16)] + [50_000]
        self.assertEqual(max(sizes), 32 << 20)
        for size in sizes:
            limit = 1 + size / (8 << 20)
            frame = len(json.dumps(body_of("")))
            answer = self.send(json.dumps(body_of("fox " * ((size - frame) // 4))), limit=limit)
            self.assertEqual(answer.status, 200 if size <= KIB else 400, size)
            if size > KIB:
                self.assertEqual(answer.json()["error"]["code"], "context_length_exceeded")
            padded = json.dumps(body_of("Hi", metadata="x" * (size - frame - 20)))
            self.assertEqual(self.send(padded, statuses=[200]).status, 200, size)

    def test_bodies_over_the_limit_are_413_before_they_are_read(self):
        head = f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        answer = exchange(self.pod.port, f"{head}Content-Length: {34 << 20}\r\n\r\n".encode())
        self.assertTrue(answer.startswith(b"HTTP/1.1 413 "), answer[:300])
        self.assertIn("max_body", json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]["message"])

    def test_chunked_bodies_are_read_up_to_the_limit(self):
        def chunks(data):
            return iter([data[i:i + 65536] for i in range(0, len(data), 65536)])
        small = json.dumps(body_of("Hi", metadata="x" * 200_000)).encode()
        self.assertEqual(self.send_iter(chunks(small)), 200)
        try:
            self.assertEqual(self.send_iter(chunks(b"x" * (34 << 20))), 413)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused while we were still sending

    def send_iter(self, pieces):
        return self.post(CHAT, pieces, headers={"Content-Type": "application/json"}).status

    def test_a_client_that_asks_before_it_sends_is_told_to_go_on(self):
        body = json.dumps(body_of("Hi")).encode()
        with socket.create_connection(("127.0.0.1", self.pod.port), timeout=20) as sock:
            sock.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                         f"Expect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n".encode())
            self.assertTrue(sock.recv(1000).startswith(b"HTTP/1.1 100 "))
            sock.sendall(body)
            self.assertTrue(sock.recv(100).startswith(b"HTTP/1.1 200 "))

    def test_broken_json_is_refused_wherever_it_is_cut(self):
        whole = json.dumps(body_of("Hi 🎉 é", tools=[], stop=["a"], logit_bias={"1": 2}), ensure_ascii=False).encode()
        for cut in range(0, len(whole) - 1, 3):
            self.send(whole[:cut], statuses=[400])
        for data in [b"", b" ", b"null", b"[]", b"7", b'"x"', b"{", b"{}", b"\x00", b"\xff\xfe", whole + b"x", whole * 2,
                     whole + b"\x00", whole.replace(b"1", b"NaN"), whole.replace(b"1", b"Infinity"),
                     whole.replace(b"1", b"01"), whole.replace(b"Hi", b"H\xffi"), whole.replace(b"Hi", b"H\ni"),
                     b"[" * 1_000_000, b'{"a":' * 100_000, b'{"messages":' + b"[" * 200 + b"]" * 200 + b"}",
                     b"'" + whole[1:], b'{"messages":[{"role":"user","content":"Hi"}],}', b"{,}"]:
            self.send(data, statuses=[400])

    def test_lone_surrogates_are_refused_or_replaced_and_pairs_are_characters(self):
        for text in [r"\ud800", r"a\udc00b", r"\udc00\ud800", r"\ud83c", r"\ud83c\ud83c\udf89"]:
            for body in [f'{{"messages":[{{"role":"user","content":"{text}"}}],"max_tokens":1}}',
                         f'{{"messages":[{{"role":"user","content":"Hi"}}],"max_tokens":1,"{text}":1}}',
                         f'{{"messages":[{{"role":"user","content":"Hi"}}],"max_tokens":1,"stop":"{text}"}}']:
                answer = self.send(body)
                answer.body.decode()
        ids = self.send(r'{"prompt":"\ud83c\udf89"}', statuses=[200], path="/tokenize").json()["tokens"]
        self.assertEqual(self.ok("/detokenize", {"tokens": ids})["prompt"], "🎉")

    def test_wrong_numbers_are_refused(self):
        for name in ["max_tokens", "max_completion_tokens", "n"]:
            for value in ["0", "-1", "1e30", "-1e999", "1.5", "9223372036854775808", '"1"', "[]", "true"]:
                data = f'{{"messages":[{{"role":"user","content":"Hi"}}],"{name}":{value}}}'
                self.assertEqual(self.send(data, statuses=[400]).json()["error"]["param"], name, data)

    def test_fuzzed_messages_are_answered_with_200_or_400(self):
        rng = random.Random(SEED)
        refused = 0
        for i in range(400):
            data = json.dumps(mutate(rng, json.loads(json.dumps(TEMPLATE))))
            with self.subTest(i, seed=SEED):
                refused += self.send(data).status == 400
        self.assertTrue(100 < refused < 400, f"seed {SEED}: {refused} of 400 are refused")

    def test_a_body_of_unknown_end_is_never_a_second_request(self):
        hidden = "GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        for coding in ["xchunked", "gzip", "chunked, gzip", "identity"]:
            head = f"POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: {coding}\r\n\r\n"
            answer = exchange(self.pod.port, (head + hidden).encode())
            self.assertTrue(answer.startswith(b"HTTP/1.1 501"), answer[:200])
            self.assertEqual(answer.count(b"HTTP/1.1 "), 1, coding)

    def test_a_request_has_one_host(self):
        for hosts in ["", "Host: a\r\nHost: b\r\n"]:
            answer = exchange(self.pod.port, f"GET /health HTTP/1.1\r\n{hosts}\r\n".encode())
            self.assertTrue(answer.startswith(b"HTTP/1.1 400"), answer[:200])

    def test_fifty_thousand_tool_results_do_not_stop_the_endpoint(self):
        calls = [{"id": f"c{i}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in range(50000)]
        results = [{"role": "tool", "tool_call_id": f"c{i}", "content": ""} for i in range(50000)]
        messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "tool_calls": calls}, *results]
        started = time.monotonic()
        answer = self.pod.request("POST", "/v1/chat/completions", {"messages": messages})
        self.assertEqual(answer.status, 400)
        self.assertLess(time.monotonic() - started, 3 * TIME_FACTOR)

    def test_garbage_instead_of_http_is_refused(self):
        for data, status in [(b"hello\r\n\r\n", b"400"), (b"GET / HTTP/9.9\r\n\r\n", b"505"), (b"\x16\x03\x01\x02", b"400"),
                             (b"GET /health HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 40_000 + b"\r\n\r\n", b"431"),
                             (f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n".encode(), b"400"),
                             (f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n".encode(), b"400")]:
            answer = exchange(self.pod.port, data)
            self.assertTrue(answer == b"" or answer.split(b" ")[1] == status, (data[:60], answer[:100]))
        wait_for(self.pod.is_ready, 10, "health is gone")


TEMPLATE = {
    "messages": [
        {"role": "system", "content": "You are terse.", "name": "s"},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": None, "reasoning_content": "r", "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "get_time", "arguments": "{\"city\": \"Rome\"}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "noon"},
        {"role": "user", "content": "Hi"}],
    "max_tokens": 1, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": 3, "n": 1, "stop": ["zz"],
    "presence_penalty": 0.5, "frequency_penalty": 0.5, "repetition_penalty": 1.1, "logit_bias": {"5": 1},
    "logprobs": True, "top_logprobs": 2, "stream": False, "ignore_eos": False, "tool_choice": "auto",
    "response_format": {"type": "text"}, "thinking": {"type": "enabled"}, "chat_template_kwargs": {"thinking": True},
    "tools": [{"type": "function", "function": {"name": "get_time", "description": "d", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}}}}]}

VALUES = [None, True, False, 0, -1, 1, 2**31, -2**63, 2**64, 1.5, -0.0, 1e300, "", "x", "user", "\x00", "\ud800", "🎉" * 50,
          "<|open|>", [], {}, [None], [[]], [{}], [1, "a"], {"": None}, {"type": "text"}, {"type": 1}, "x" * 5000,
          [{"role": "user", "content": "Hi"}], {"name": "x"}, {"function": {}}]


def paths(value, prefix=()):
    """Every place in a JSON value but the root."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield (*prefix, key)
        yield from paths(value[key], (*prefix, key))


def mutate(rng, value):
    """One to three places get another value, another key, or nothing."""
    for _ in range(rng.randint(1, 3)):
        path = rng.choice(list(paths(value)))
        place = value
        for key in path[:-1]:
            place = place[key]
        action = rng.random()
        if action < 0.15:
            del place[path[-1]]
        elif action < 0.25 and isinstance(place, dict):
            place[rng.choice(["", "x", "role", "content", "\ud800"])] = place.pop(path[-1])
        elif action < 0.35 and isinstance(place, list):
            place += copy.deepcopy(place)
        else:
            place[path[-1]] = copy.deepcopy(rng.choice(VALUES))
        if not value:
            break
    return value


if __name__ == "__main__":
    unittest.main()
