# SPDX-License-Identifier: Apache-2.0
"""`ballast serve` and the official client of OpenAI's interface; clients that mean no good."""

import json
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

import openai

from in_folder import BALLAST, InFolder, ballast
from running_server import RunningServer

TINY = (
    "--model.width=32 --model.layers=2 --model.heads=2 --model.context=64 --experts.layers=1 --experts.count=4 "
    "--training.batch=8 --training.threads=1 --training.validate_every=0 --training.validate_batches=1 "
    "--training.sample_tokens=0 --data.builtin_bytes=60000 --training.steps=20 --checkpoint.every=10"
).split()
HOSTILE = '<img src=x onerror="alert(1)">'


class Served(unittest.TestCase):
    """One server for all tests of a class, of the run `mine` and of another whose name is hostile."""

    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="ballast-serve-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        trained = ballast("train", *TINY, "--run", "mine", cwd=cls.folder)
        if trained.returncode != 0:
            raise AssertionError(trained.stderr)
        (cls.folder / HOSTILE).symlink_to(cls.folder / "mine")
        cls.server = cls.enterClassContext(RunningServer("mine", HOSTILE, cwd=cls.folder))
        cls.client = openai.OpenAI(base_url=cls.server.url + "v1", api_key="none", max_retries=0)

    def complete(self, **options):
        return self.client.completions.create(**{"model": "mine", "temperature": 0, **options})

    def generated(self, *arguments):
        """What `ballast generate` writes."""
        result = ballast("generate", "mine", "--json", *arguments, cwd=self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)["completions"]


class Client(Served):
    def test_lists_the_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], ["mine", HOSTILE])
        self.assertEqual(self.client.models.retrieve("mine").id, "mine")

    def test_completes_as_generate_does(self):
        answer = self.complete(prompt="Weather", max_tokens=40)
        expected = self.generated("--prompt", "Weather", "--temperature", 0, "--max-tokens", 40)[0]
        self.assertEqual(answer.choices[0].text, expected["text"])
        self.assertEqual(answer.usage.completion_tokens, expected["tokens"])
        self.assertEqual(answer.usage.prompt_tokens, len("Weather"))
        self.assertEqual(answer.system_fingerprint, "step-20")

    def test_samples_by_the_seed_as_generate_does(self):
        answer = self.complete(prompt="A", n=3, seed=5, temperature=1, top_p=0.9, extra_body={"top_k": 50})
        expected = self.generated("--prompt", "A", "--samples", 3, "--seed", 5, "--top-p", 0.9, "--top-k", 50, "--max-tokens", 16)
        self.assertEqual([choice.text for choice in answer.choices], [one["text"] for one in expected])
        self.assertEqual([choice.index for choice in answer.choices], [0, 1, 2])
        different = {self.complete(prompt="A", temperature=1).choices[0].text for _ in range(3)}
        self.assertGreater(len(different), 1, "without a seed texts differ")

    def test_streams_the_same_text(self):
        asked = dict(prompt=["One", "Two"], max_tokens=30, temperature=1, seed=3, logprobs=2, echo=True)
        whole = self.complete(**asked)
        texts, tokens, values, ends = ["", ""], [[], []], [[], []], ["", ""]
        chunks = list(self.complete(**asked, stream=True, stream_options={"include_usage": True}))
        for chunk in chunks[:-1]:
            self.assertIsNone(chunk.usage)
            [choice] = chunk.choices
            texts[choice.index] += choice.text
            tokens[choice.index] += choice.logprobs.tokens
            values[choice.index] += choice.logprobs.token_logprobs
            ends[choice.index] = choice.finish_reason
        for i, choice in enumerate(whole.choices):
            self.assertEqual(texts[i], choice.text)
            self.assertEqual(tokens[i], choice.logprobs.tokens)
            self.assertEqual(values[i], choice.logprobs.token_logprobs)
            self.assertEqual(ends[i], choice.finish_reason)
        self.assertGreater(len(chunks), 30)
        self.assertEqual(chunks[-1].usage, whole.usage)

    def test_logprobs_say_what_was_likely(self):
        choice = self.complete(prompt="The", max_tokens=12, logprobs=3).choices[0]
        self.assertEqual("".join(choice.logprobs.tokens), choice.text)
        self.assertEqual(choice.logprobs.text_offset, list(range(3, 15)))
        for token, value, top in zip(choice.logprobs.tokens, choice.logprobs.token_logprobs, choice.logprobs.top_logprobs):
            self.assertEqual(len(top), 3)
            self.assertEqual(max(top.values()), value, "greedy takes the likeliest")
            self.assertEqual(top[token], value)
            self.assertLess(value, 0)

    def test_echo_scores_a_prompt(self):
        scored = self.complete(prompt="Some text", max_tokens=0, echo=True, logprobs=1).choices[0]
        self.assertEqual(scored.text, "Some text")
        self.assertEqual(scored.logprobs.tokens, list("Some text"))
        self.assertEqual(scored.logprobs.text_offset, list(range(9)))
        # Each token as likely as when it was asked for alone; sums of another length may round otherwise.
        for i in range(1, 9):
            after = self.complete(prompt="Some text"[:i], max_tokens=1, logprobs=100).choices[0].logprobs
            if "Some text"[i] in after.top_logprobs[0]:
                self.assertAlmostEqual(after.top_logprobs[0]["Some text"[i]], scored.logprobs.token_logprobs[i], places=4)
        self.assertEqual(self.complete(prompt="Some text", max_tokens=5, echo=True).choices[0].text,
                         "Some text" + self.complete(prompt="Some text", max_tokens=5).choices[0].text)

    def test_token_ids_are_prompts_too(self):
        text = self.complete(prompt="Hello", max_tokens=8).choices[0].text
        ids = list(b"Hello")
        for prompt in (ids, [ids], [256, *ids]):  # with its end-of-text before it, too
            self.assertEqual(self.complete(prompt=prompt, max_tokens=8).choices[0].text, text)

    def test_stops_before_a_text_that_spans_tokens(self):
        whole = self.complete(prompt="Rain", max_tokens=60).choices[0].text
        stop = whole[20:23]
        cut = whole[:whole.index(stop)]
        choice = self.complete(prompt="Rain", max_tokens=60, stop=["never met", stop], logprobs=0).choices[0]
        self.assertEqual((choice.text, choice.finish_reason), (cut, "stop"))
        self.assertEqual("".join(choice.logprobs.tokens), cut)
        streamed = list(self.complete(prompt="Rain", max_tokens=60, stop=stop, stream=True))
        self.assertEqual("".join(chunk.choices[0].text for chunk in streamed), cut)
        self.assertEqual(streamed[-1].choices[0].finish_reason, "stop")

    def test_pieces_are_whole_characters(self):
        # A model of bytes that is hardly trained writes anything.
        asked = dict(prompt="x", max_tokens=60, temperature=5, seed=1, logprobs=0)
        whole = self.complete(**asked).choices[0]
        self.assertIn("\ufffd", whole.text)
        self.assertTrue(any(token.startswith("bytes:\\x") for token in whole.logprobs.tokens))
        self.assertEqual("".join(chunk.choices[0].text for chunk in self.complete(**asked, stream=True)), whole.text)

    def test_a_checkpoint_is_asked_by_its_step(self):
        self.assertEqual(self.complete(model="mine@10", prompt="a").system_fingerprint, "step-10")
        with self.assertRaises(openai.BadRequestError):
            self.complete(model="mine@11", prompt="a")

    def test_an_answer_does_not_depend_on_others(self):
        asked = dict(prompt="Weather report", max_tokens=40, temperature=1, seed=9, logprobs=5, echo=True)
        alone = self.complete(**asked).choices
        done = threading.Event()

        def disturb(number):
            client = openai.OpenAI(base_url=self.server.url + "v1", api_key="none", max_retries=0)
            while not done.is_set():
                client.completions.create(model="mine", prompt="b" * (number * 3 + 1), max_tokens=5 + number, temperature=1)

        others = [threading.Thread(target=disturb, args=[number]) for number in range(16)]
        for other in others:
            other.start()
        try:
            for _ in range(5):
                self.assertEqual(self.complete(**asked).choices, alone)
        finally:
            done.set()
            for other in others:
                other.join()

    def test_bad_requests_are_told_why(self):
        bad = [dict(model="other"), dict(prompt="a" * 64), dict(prompt=[257]), dict(n=0), dict(temperature=-1),
               dict(logprobs=1000), dict(best_of=2), dict(suffix="x"), dict(presence_penalty=1), dict(logit_bias={"5": 1}),
               dict(stop=["1", "2", "3", "4", "5"]), dict(extra_body={"max_token": 3}), dict(extra_body={"top_k": -1}),
               dict(stop="x" * 2000), dict(extra_body={"k" * 100000: 1}), dict(max_tokens=1000000, logprobs=100), dict(prompt="a" * 1000000)]
        for options in bad:
            with self.subTest(options), self.assertRaises(openai.APIStatusError) as refused:
                self.complete(**{"prompt": "a", **options})
            self.assertIn(refused.exception.status_code, (400, 404))
            self.assertTrue(refused.exception.body["message"])
            self.assertEqual(refused.exception.body["type"], "invalid_request_error")
        with self.assertRaises(openai.NotFoundError) as refused:
            self.client.chat.completions.create(model="mine", messages=[{"role": "user", "content": "Hi"}])
        self.assertIn("/v1/completions", refused.exception.body["message"])


class Strangers(Served):
    """Clients and pages that mean no good."""

    def assert_refused(self, status, method, path, body=None, headers=None):
        found, _, data = self.server.ask(method, path, body, headers)
        self.assertEqual(found, status, data)
        self.assertTrue(json.loads(data)["error"]["message"])

    def raw(self, data):
        """What the server says to these bytes, until it hangs up."""
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=60) as connection:
            connection.sendall(data)
            answer = b""
            while piece := connection.recv(65536):
                answer += piece
            return answer

    def test_foreign_hosts_and_origins(self):
        port = self.server.port
        for host in ("evil.example", f"evil.example:{port}", "localhost.evil.example", ""):
            self.assert_refused(403, "GET", "/", headers={"Host": host})
        for host in ("localhost", f"localhost:{port}", f"127.0.0.1:{port}"):
            self.assertEqual(self.server.ask("GET", "/health", headers={"Host": host})[0], 200)
        for origin in ("http://evil.example", "null", "http://localhost:1"):
            self.assert_refused(403, "POST", "/v1/completions", {}, {"Origin": origin})
        own = {"Origin": f"http://127.0.0.1:{port}"}
        self.assertEqual(self.server.ask("POST", "/v1/completions", {"model": "mine"}, own)[0], 200)

    def test_no_other_origin_is_let_in(self):
        for path in ("/", "/api/runs", "/v1/models", "/nowhere"):
            headers = self.server.ask("GET", path)[1]
            self.assertFalse([name for name in headers if name.lower().startswith("access-control")])
            self.assertIn("default-src 'self'", headers["Content-Security-Policy"])
            self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
        self.assert_refused(405, "OPTIONS", "/v1/completions", headers={"Access-Control-Request-Method": "POST"})

    def test_paths_outside(self):
        for path in ("/../etc/passwd", "/..%2f..%2fetc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/site/../../etc/passwd",
                     "/style.css/../../mine/config.toml", "/mine/config.toml"):
            self.assert_refused(404, "GET", path)
        for path in ("/%00", "/%zz", "/index.html%00.js"):
            self.assert_refused(400, "GET", path)

    def test_hostile_text_stays_text(self):
        text = '<script>alert("1")</script>\u2028\x00\x1b[2J</html>'
        with self.assertRaises(json.JSONDecodeError):
            json.loads('{"a": "\x00"}')  # such text must come escaped
        status, headers, data = self.server.ask("POST", "/v1/completions", {"model": HOSTILE, "prompt": text, "max_tokens": 0, "echo": True})
        self.assertEqual((status, headers["Content-Type"]), (200, "application/json"))
        self.assertEqual(json.loads(data)["choices"][0]["text"], text)
        self.assertEqual(json.loads(data)["model"], HOSTILE)
        self.assertIn(HOSTILE, [run["name"] for run in self.server.json("/api/runs")["runs"]])

    def test_what_is_not_http(self):
        for data in (b"\x16\x03\x01 hello\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\r\n\r\n\r\nx\r\n\r\n"):
            self.assertTrue(self.raw(data).startswith(b"HTTP/1.1 400 "), data)
        self.assertTrue(self.raw(b"GET / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 403 "), "without a Host")
        self.assertTrue(self.raw(b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 4"))

    def test_sizes_are_bounded(self):
        self.assertTrue(self.raw(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 20000 + b"\r\n\r\n").startswith(b"HTTP/1.1 431 "))
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
        self.assertTrue(self.raw(head + b"Content-Length: 5000000\r\n\r\n").startswith(b"HTTP/1.1 413 "))
        endless = head + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"a" * 200000  # a chunk's header without end
        self.assertTrue(self.raw(endless).startswith(b"HTTP/1.1 431 "))
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=60) as connection:
            connection.sendall(head + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
            self.assertEqual(connection.recv(1000), b"HTTP/1.1 100 Continue\r\n\r\n")
            connection.sendall(b"[]")
            self.assertTrue(connection.recv(1000).startswith(b"HTTP/1.1 400 "))

    def test_clients_beyond_the_bound_are_told(self):
        held = [socket.create_connection(("127.0.0.1", self.server.port)) for _ in range(256)]
        try:
            with socket.create_connection(("127.0.0.1", self.server.port), timeout=60) as one_more:
                self.assertTrue(one_more.recv(1000).startswith(b"HTTP/1.1 503 "))
        finally:
            for connection in held:
                connection.close()
        self.assertEqual(self.ask_until_answered("/health")["status"], "ok")

    def ask_until_answered(self, path):
        for _ in range(100):
            status, _, data = self.server.ask("GET", path)
            if status == 200:
                return json.loads(data)
            time.sleep(0.1)
        self.fail(f"{path}: {status}")

    def test_a_client_that_hangs_up_costs_nothing(self):
        body = json.dumps({"model": "mine", "max_tokens": 1000000, "ignore_eos": True, "n": 4, "stream": True}).encode()
        for ask in (body, body.replace(b"true}", b"false}")):
            with socket.create_connection(("127.0.0.1", self.server.port)) as connection:
                connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(ask) + ask)
                self.assert_texts(4)
            self.assert_texts(0)

    def test_what_was_asked_ahead_by_one_who_hung_up_is_not_begun(self):
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
        first = json.dumps({"model": "mine", "max_tokens": 4000, "ignore_eos": True, "n": 2}).encode()
        ahead = json.dumps({"model": "mine", "max_tokens": 1000000, "ignore_eos": True, "n": 3}).encode()
        with socket.create_connection(("127.0.0.1", self.server.port)) as connection:
            connection.sendall(head % len(first) + first + head % len(ahead) + ahead)
            self.assert_texts(2)
        self.assert_texts(0)
        time.sleep(1)  # it would begin by now
        self.assert_texts(0)

    def assert_texts(self, count):
        """As many are being written soon."""
        for _ in range(600):
            texts = self.server.json("/health")["texts"]
            if texts == {"written": count, "waiting": 0}:
                return
            time.sleep(0.05)
        self.fail(f"{texts}, not {count}")

    def test_many_requests_on_one_connection(self):
        with self.server.connection() as connection:
            for method, path, status in (("GET", "/health", 200), ("HEAD", "/", 200), ("GET", "/nowhere", 404),
                                         ("DELETE", "/health", 405), ("POST", "/v1/models", 405), ("GET", "/health", 200)):
                connection.request(method, path)
                response = connection.getresponse()
                self.assertEqual(response.status, status)
                self.assertEqual(response.read() == b"", method == "HEAD")
        two = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" + b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        self.assertEqual(self.raw(two).count(b'"status":"ok"'), 2)


class Command(InFolder):
    def test_what_it_serves_and_how_it_ends(self):
        self.run_well("train", *TINY, "--run", "mine")
        with RunningServer("mine", "mine/checkpoints/step_00000010", cwd=self.folder) as server:
            [run, checkpoint] = server.json("/api/runs")["runs"]
            self.assertEqual((run["name"], run["steps"], run["training"]), ("mine", [10, 20], False))
            self.assertEqual((run["layers"], run["expert_layers"], run["experts"], run["router"]), (2, [1], 4, "base"))
            self.assertEqual(run["routings"], ["greedy", "priced", "balanced"])
            self.assertTrue(run["has_tokenizer"])
            self.assertEqual((checkpoint["name"], checkpoint["is_run"]), ("step_00000010", False))
            self.assertIn("text/html", server.ask("GET", "/")[1]["Content-Type"])
            self.refused("serve", "mine", "--port", server.port, says=[f"port {server.port}", "--port 0"])
            # Also while a text is being written.
            with server.connection() as connection:
                connection.request("POST", "/v1/completions", json.dumps({"model": "mine", "max_tokens": 1000000, "ignore_eos": True}))
                while server.json("/health")["texts"]["written"] == 0:
                    time.sleep(0.05)
                self.assertEqual(server.stop(signal.SIGINT), 0, server.said())
        with RunningServer("mine", cwd=self.folder) as server:
            self.assertEqual(server.stop(signal.SIGTERM), 0, server.said())

    def test_a_run_that_trains_without_a_checkpoint(self):
        command = [BALLAST, "train", *TINY, "--training.steps=1000000", "--checkpoint.every=0", "--run", "mine"]
        training = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(training.wait)
        self.addCleanup(training.kill)
        while not (self.folder / "mine/metrics.jsonl").exists():
            self.assertIsNone(training.poll())
            time.sleep(0.05)
        with RunningServer("mine", cwd=self.folder) as server:
            [run] = server.json("/api/runs")["runs"]
            self.assertEqual((run["training"], run["steps"], run["experts"]), (True, [], 4))
            status, _, data = server.ask("POST", "/v1/completions", {"model": "mine"})
            self.assertEqual(status, 400)
            self.assertIn("checkpoint", json.loads(data)["error"]["message"])
            training.send_signal(signal.SIGTERM)
            self.assertEqual(training.wait(), 0)
            [run] = server.json("/api/runs")["runs"]
            self.assertEqual((run["training"], len(run["steps"])), (False, 1))
            fingerprint = server.json("/v1/completions", {"model": "mine"})["system_fingerprint"]
            self.assertEqual(fingerprint, f"step-{run['steps'][0]}")

    def test_what_cannot_be_served(self):
        self.refused("serve", "nothing", "--port", 0, says="nothing")
        self.run_well("train", *TINY, "--run", "mine")
        shutil.rmtree(self.folder / "mine" / "checkpoints")
        (self.folder / "mine" / "checkpoints").mkdir()
        self.refused("serve", "mine", "--port", 0, says="mine")
        self.refused("serve", "mine", "--address", "nowhere", says="nowhere")


if __name__ == "__main__":
    unittest.main()
