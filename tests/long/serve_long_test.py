# SPDX-License-Identifier: Apache-2.0
"""Many clients at once for a minute: no error, what one client gets alone each of them gets, and much more in all.

It also runs where nothing is built, with a folder of `make dist` and the openai package unpacked into a folder:

    BALLAST_BUILD=dist/ballast-VERSION-linux-x86_64 BALLAST_SOURCE=$PWD PYTHONPATH=FOLDER python3 tests/long/serve_long_test.py
"""

import concurrent.futures
import multiprocessing
import os
import sys
import threading
import time
import unittest
from pathlib import Path

import openai

sys.path.insert(0, str(Path(os.environ["BALLAST_SOURCE"]) / "tests/cli"))
from in_folder import InFolder  # noqa: E402
from running_server import RunningServer  # noqa: E402

# Large enough that a token takes the time of the model, not that of the client.
MODEL = (
    "--model.width=512 --model.layers=6 --model.heads=8 --model.context=512 --experts.layers=1 --experts.count=8 "
    "--training.batch=2 --training.steps=10 --training.validate_every=0 --training.validate_batches=1 "
    "--training.sample_tokens=0 --training.device=cpu --data.builtin_bytes=500000"
).split()
CLIENTS, SECONDS, SECONDS_ALONE = 64, 60, 20
TOKENS = 128
CORES = len(os.sched_getaffinity(0))
PROMPTS = [f"Weather report number {number} of the {'long ' * (number % 7)}week: " for number in range(16)]


def client_of(url):
    return openai.OpenAI(base_url=url + "v1", api_key="none", max_retries=0, timeout=600)


def ask(client, number):
    asked = dict(model="mine", prompt=PROMPTS[number], max_tokens=TOKENS, temperature=0, logprobs=2)
    if number % 4:
        answer = client.completions.create(**asked, extra_body={"ignore_eos": True})
        return answer.choices[0].text, answer.choices[0].logprobs.token_logprobs
    text, values = "", []
    for chunk in client.completions.create(**asked, extra_body={"ignore_eos": True}, stream=True):
        text += chunk.choices[0].text
        values += chunk.choices[0].logprobs.token_logprobs
    return text, values


def ask_for(seconds, url, first, expected, outcome):
    """Asks until the time is over; counts tokens, and keeps what was wrong."""
    client = client_of(url)
    end = time.monotonic() + seconds
    number = first
    while time.monotonic() < end:
        number = (number + 1) % len(PROMPTS)
        try:
            answer = ask(client, number)
            if answer != expected[number]:
                outcome["wrong"].append((number, answer[0], expected[number][0]))
        except Exception as error:  # of any kind
            outcome["wrong"].append((number, repr(error)))
        outcome["tokens"] += TOKENS


def ask_on_threads(seconds, url, numbers, expected):
    """What the clients of one process found."""
    outcomes = [{"tokens": 0, "wrong": []} for _ in numbers]
    threads = [threading.Thread(target=ask_for, args=[seconds, url, number, expected, outcome])
               for number, outcome in zip(numbers, outcomes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def rate(clients, seconds, url, expected):
    """(tokens a second, what was wrong) of clients on up to eight processes: a Python computes on one core."""
    processes = min(8, clients, CORES)
    begin = time.monotonic()
    with concurrent.futures.ProcessPoolExecutor(processes, multiprocessing.get_context("fork")) as pool:
        asking = [pool.submit(ask_on_threads, seconds, url, range(i, clients, processes), expected) for i in range(processes)]
        outcomes = [outcome for process in asking for outcome in process.result()]
    tokens = sum(outcome["tokens"] for outcome in outcomes) / (time.monotonic() - begin)
    return tokens, [wrong for outcome in outcomes for wrong in outcome["wrong"]]


class ManyClients(InFolder):
    def setUp(self):
        super().setUp()
        self.run_well("train", *MODEL, "--run", "mine")
        # On the CPU: there answers do not depend on who else asks.
        self.server = self.enterContext(RunningServer("mine", "--device", "cpu", cwd=self.folder))

    def test_sixty_four_get_what_one_gets(self):
        expected = [ask(client_of(self.server.url), number) for number in range(len(PROMPTS))]
        alone, wrong_alone = rate(1, SECONDS_ALONE, self.server.url, expected)
        together, wrong_together = rate(CLIENTS, SECONDS, self.server.url, expected)
        print(f"one client: {alone:.0f} tokens/s; {CLIENTS} clients: {together:.0f} tokens/s; {together / alone:.1f} times")
        self.assertEqual(wrong_alone, [])
        self.assertEqual(wrong_together[:3], [], f"{len(wrong_together)} in all")
        self.assertEqual(self.server.json("/health")["texts"], {"written": 0, "waiting": 0})
        if CORES >= 8:  # else the clients take the cores that the server needs
            self.assertGreaterEqual(together / alone, 5)


if __name__ == "__main__":
    unittest.main()
