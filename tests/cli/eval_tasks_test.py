# SPDX-License-Identifier: Apache-2.0
"""`ballast eval` on standard tasks: word perplexity, last words, multiple choice, against what other commands say of
the same model."""
import gzip
import json
import math
import os
import re
import shutil
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

BALLAST = Path(os.environ["BALLAST_BUILD"]) / "ballast"
CONTEXT = 32
TRAIN = (
    f"--model.width=32 --model.layers=2 --model.heads=2 --model.context={CONTEXT} --training.batch=16 --training.threads=1 "
    "--training.validate_every=0 --training.validate_batches=1 --training.sample_tokens=0 --data.builtin_bytes=200000 "
    "--training.steps=150 --optimizer.learning_rate=1e-2 --optimizer.warmup_steps=5 --checkpoint.every=0 "
    "--experts.layers=1 --experts.sublayers=1 --experts.count=4 --run model"
).split()
# 320 bytes with what Python takes for white space, and other characters.
TEXT = (" = The weather = \n\nin the north it was\u00a0cold, \u2003 and in the s\u00fcd  it\twas warm. " * 5).encode()[:319].decode(errors="ignore")
TEXT += "." * (320 - len(TEXT.encode()))
FOLDER = Path(tempfile.mkdtemp(prefix="ballast-test-"))


def ballast(*arguments, starter=()):
    return subprocess.run([*starter, BALLAST, *map(str, arguments)], capture_output=True, encoding="utf-8", cwd=FOLDER, timeout=120)


def setUpModule():
    unittest.addModuleCleanup(shutil.rmtree, FOLDER, ignore_errors=True)
    result = ballast("train", *TRAIN)
    assert result.returncode == 0, result.stderr


class Tasks(unittest.TestCase):
    def eval_json(self, *arguments, starter=()):
        result = ballast("eval", "model", *arguments, "--json", starter=starter)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def metrics(self, *arguments):
        (task,) = self.eval_json(*arguments)["results"].values()
        return task

    def refused(self, *arguments):
        result = ballast("eval", "model", *arguments)
        self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
        return result.stderr

    def write(self, name, content):
        (FOLDER / name).write_bytes(content.encode())

    def write_lines(self, name, *objects):
        self.write(name, "".join(json.dumps(one) + "\n" for one in objects))


class Words(Tasks):
    def test_perplexity_is_that_of_the_same_tokens_over_pythons_words(self):
        self.write("text.txt", TEXT)
        found = self.metrics("--words", "text.txt")
        # The same as tokens: end-of-text, then bytes. Its windows are the same where they come out even.
        tokens = [256, *TEXT.encode()]
        self.assertEqual(len(tokens) % CONTEXT, 1)
        (FOLDER / "tokens.bin").write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))
        plain = self.eval_json("--data", "tokens.bin")
        self.assertEqual(plain["tokens"], len(tokens) - 1)
        nats = plain["loss"] * plain["tokens"]
        self.assertAlmostEqual(math.log(found["word_perplexity,none"]), nats / len(re.split(r"\s+", TEXT)), places=5)
        self.assertAlmostEqual(math.log(found["byte_perplexity,none"]), nats / 320, places=5)
        self.assertAlmostEqual(found["bits_per_byte,none"], nats / 320 / math.log(2), places=5)
        self.assertEqual(found["word_perplexity_stderr,none"], "N/A")

    def test_documents_are_weighed_apart_and_summed_up(self):
        parts = ["the first one", " the second = \n", "a third, which is longer than a context has tokens"]
        self.write_lines("parts.jsonl", *({"text": part} for part in parts))
        (FOLDER / "parts.jsonl.gz").write_bytes(gzip.compress((FOLDER / "parts.jsonl").read_bytes()))
        nats = words = 0
        for part in parts:
            self.write("part.txt", part)
            count = len(re.split(r"\s+", part))
            nats += math.log(self.metrics("--words", "part.txt")["word_perplexity,none"]) * count
            words += count
        said = self.eval_json("--words", "parts.jsonl.gz")
        self.assertAlmostEqual(math.log(said["results"]["parts"]["word_perplexity,none"]), nats / words, places=5)
        self.assertEqual(said["n-samples"]["parts"], {"original": 3, "effective": 3})

    def test_workers_share_the_work(self):
        self.write("text.txt", TEXT + TEXT + "more")
        alone = self.metrics("--words", "text.txt")
        together = self.metrics("--words", "text.txt", "--workers", "2", "--batch", "3")
        self.assertAlmostEqual(alone["word_perplexity,none"] / together["word_perplexity,none"], 1, places=5)


class Items(Tasks):
    def nats_of(self, context, word):
        self.write_lines("one.jsonl", {"text": f"{context} {word}"})
        return math.log(self.metrics("--last-word", "one.jsonl")["perplexity,none"])

    def greedy_word(self, context, size):
        result = ballast("generate", "model", "--prompt", context, "--temperature", "0", "--max-tokens", size, "--endless", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)["completions"][0]["text"]

    def test_a_last_word_is_right_where_the_model_would_write_it(self):
        contexts = ["The weather in the", "rain and", "def", "a cup of", "On Monday it was", "three and", "he said"]
        items, right = [], []
        for context in contexts:
            # `generate` reads end-of-text before a prompt, a task reads the context alone: asked where that does not matter.
            written, *others = {self.greedy_word(before + context, 6) for before in ("", "\n", ". ")}
            if others:
                continue
            word = written[1:].split(" ")[0] if written.startswith(" ") else ""
            for candidate in {word or "xyz", "zebra"}:
                items.append({"text": f"{context} {candidate}"})
                right.append(written.startswith(" " + candidate))
        self.assertGreaterEqual(len(items), 4)
        self.write_lines("words.jsonl", *items)
        found = self.metrics("--last-word", "words.jsonl")
        self.assertAlmostEqual(found["acc,none"], sum(right) / len(right))
        rate = sum(right) / len(right)
        self.assertGreater(rate, 0)
        self.assertAlmostEqual(found["acc_stderr,none"], math.sqrt(rate * (1 - rate) / (len(right) - 1)))
        nats = [self.nats_of(*item["text"].rsplit(" ", 1)) for item in items]
        self.assertAlmostEqual(math.log(found["perplexity,none"]), sum(nats) / len(nats), places=5)

    def test_the_likeliest_choice_counts(self):
        query, choices = "The weather in the", ["a", "morning", "xqzj", "rain"]
        nats = [self.nats_of(query, choice) for choice in choices]
        best = min(range(4), key=lambda i: nats[i])
        best_norm = min(range(4), key=lambda i: nats[i] / len(choices[i]))
        for gold in range(4):
            self.write_lines("choice.jsonl", {"query": query, "choices": choices, "gold": gold})
            found = self.metrics("--choice", "choice.jsonl")
            self.assertEqual((found["acc,none"], found["acc_norm,none"]), (gold == best, gold == best_norm))

    def test_several_tasks_at_once_for_people_and_programs(self):
        self.write("text.txt", TEXT)
        self.write_lines("words.jsonl", {"text": "it is warm"}, {"text": "it is cold"})
        self.write_lines("choice.jsonl", {"query": "it is", "choices": ["warm", "cold"], "gold": 1})
        arguments = ["--words", "text.txt", "--last-word", "words.jsonl", "--choice", "choice.jsonl"]
        said = self.eval_json(*arguments)
        self.assertEqual(set(said["results"]), {"text", "words", "choice"})
        self.assertEqual(said["results"]["choice"]["alias"], "choice")
        text = ballast("eval", "model", *arguments).stdout
        for words in ("word_perplexity", "acc_norm", "choice"):
            self.assertIn(words, text)


class Mistakes(Tasks):
    def test_are_named_with_file_and_line(self):
        self.write_lines("a.jsonl", {"query": "x", "choices": ["a", "b"], "gold": 2})
        self.assertIn("a.jsonl, line 1: its 'gold' must be", self.refused("--choice", "a.jsonl"))
        self.write_lines("a.jsonl", {"query": "x", "choices": ["a"], "gold": 0})
        self.assertIn("a.jsonl, line 1: its 'choices' must be", self.refused("--choice", "a.jsonl"))
        self.write_lines("a.jsonl", {"choices": ["a", "b"], "gold": 0})
        self.assertIn("a.jsonl, line 1: it has no field 'query'", self.refused("--choice", "a.jsonl"))
        self.write_lines("a.jsonl", {"text": "a b"}, {"text": "word"})
        self.assertIn("a.jsonl, item 2: its text has no last word", self.refused("--last-word", "a.jsonl"))
        self.write_lines("a.jsonl", {"text": "a " + "b" * 40})
        self.assertIn("more than the model's context of 32", self.refused("--last-word", "a.jsonl"))
        self.write("a.jsonl", "")
        self.assertIn("a.jsonl is empty", self.refused("--last-word", "a.jsonl"))
        self.assertIn("absent", self.refused("--words", "absent.txt"))

    def test_options_that_do_not_go_together(self):
        self.write("text.txt", TEXT)
        for more in (["--data", "text.txt"], ["--audit"], ["--experts"], ["--stride", "8"], ["--routing", "all"],
                     ["--routing", "balanced"], ["--out", "x.json"]):
            self.assertIn(more[0], self.refused("--words", "text.txt", *more))


if __name__ == "__main__":
    unittest.main()
