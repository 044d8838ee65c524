# SPDX-License-Identifier: Apache-2.0
"""Many clients at once for a minute: no error, and what one client gets alone, each of them gets."""

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

MODEL = (
    "--model.width=128 --model.layers=4 --model.heads=4 --model.context=128 --experts.layers=1 --experts.count=8 "
    "--training.batch=16 --training.steps=100 --training.validate_every=0 --training.validate_batches=1 "
    "--training.sample_tokens=0 --data.builtin_bytes=500000"
).split()
CLIENTS, SECONDS, SECONDS_ALONE = 64, 60, 20
PROMPTS = [f"Weather report number {number} of the {'long ' * (number % 7)}week: " for number in range(16)]


class ManyClients(InFolder):
    def setUp(self):
        super().setUp()
        self.run_well("train", *MODEL, "--run", "mine")
        self.server = self.enterContext(RunningServer("mine", cwd=self.folder))

    def ask(self, client, number):
        asked = dict(model="mine", prompt=PROMPTS[number], max_tokens=64, temperature=0, logprobs=2)
        if number % 2 == 0:
            answer = client.completions.create(**asked, extra_body={"ignore_eos": True})
            return answer.choices[0].text, answer.choices[0].logprobs.token_logprobs
        text, values = "", []
        for chunk in client.completions.create(**asked, extra_body={"ignore_eos": True}, stream=True):
            text += chunk.choices[0].text
            values += chunk.choices[0].logprobs.token_logprobs
        return text, values

    def ask_for(self, seconds, first, expected, outcome):
        """Asks until the time is over; counts answers, and keeps what was wrong."""
        client = openai.OpenAI(base_url=self.server.url + "v1", api_key="none", max_retries=0, timeout=600)
        end = time.monotonic() + seconds
        number = first
        while time.monotonic() < end:
            number = (number + 1) % len(PROMPTS)
            try:
                answer = self.ask(client, number)
                if answer != expected[number]:
                    outcome["wrong"].append((number, answer[0], expected[number][0]))
            except Exception as error:  # of any kind
                outcome["wrong"].append((number, repr(error)))
            outcome["tokens"] += 64

    def rate(self, clients, seconds, expected):
        outcomes = [{"tokens": 0, "wrong": []} for _ in range(clients)]
        threads = [threading.Thread(target=self.ask_for, args=[seconds, i, expected, outcomes[i]]) for i in range(clients)]
        begin = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        tokens = sum(outcome["tokens"] for outcome in outcomes) / (time.monotonic() - begin)
        return tokens, [wrong for outcome in outcomes for wrong in outcome["wrong"]]

    def test_sixty_four_get_what_one_gets(self):
        client = openai.OpenAI(base_url=self.server.url + "v1", api_key="none", max_retries=0)
        expected = [self.ask(client, number) for number in range(len(PROMPTS))]
        alone, wrong_alone = self.rate(1, SECONDS_ALONE, expected)
        together, wrong_together = self.rate(CLIENTS, SECONDS, expected)
        print(f"one client: {alone:.0f} tokens/s; {CLIENTS} clients: {together:.0f} tokens/s; {together / alone:.1f} times")
        self.assertEqual(wrong_alone, [])
        self.assertEqual(wrong_together[:3], [], f"{len(wrong_together)} in all")
        self.assertEqual(self.server.json("/health")["texts"], {"written": 0, "waiting": 0})


if __name__ == "__main__":
    unittest.main()
