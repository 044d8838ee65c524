# SPDX-License-Identifier: Apache-2.0
"""`ballast train` and what follows it, as people use them: whole runs, interruptions, wrong input."""

import json
import re
import shutil
import signal
import subprocess
import time
import unittest
from pathlib import Path

from in_folder import BALLAST, InFolder, ballast
from killed_runs import TINY, KilledRuns


class Interruptions(KilledRuns):
    def test_killed_at_random_moments_it_ends_with_the_same_bits(self):
        self.check_kills(6)

    def stop(self, how):
        """Starts an endless run, stops it by `how`, and returns its output."""
        command = ["train", *TINY, "--training.steps=1000000", "--checkpoint.every=0", "--run", "run"]
        process = subprocess.Popen([BALLAST, *command], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        metrics = self.folder / "run" / "metrics.jsonl"
        for _ in range(600):
            if metrics.exists() and metrics.stat().st_size > 0:
                break
            time.sleep(0.05)
        how(process)
        out, error = process.communicate(timeout=60)
        return process.returncode, out, error

    def test_a_signal_finishes_the_step_and_saves(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number):
                shutil.rmtree(self.folder / "run", ignore_errors=True)
                code, out, error = self.stop(lambda process: process.send_signal(number))
                self.assertEqual(code, 0, error)
                self.assertIn("Stopped after", out)
                done = max(self.losses("run"))
                self.assertTrue((self.folder / "run" / "checkpoints" / f"step_{done:08d}" / "manifest.json").exists())
                result = self.run_well("train", "--run", "run", "--resume", "auto", f"--training.steps={done + 5}", "--json")
                self.assertEqual(json.loads(result.stdout)["step"], done + 5)

    def test_max_time_stops_the_same_way(self):
        result = self.run_well("train", *TINY, "--training.steps=10000000", "--max-time", "1s", "--run", "run", "--json")
        summary = json.loads(result.stdout)
        self.assertFalse(summary["finished"])
        self.assertTrue(Path(self.folder / summary["checkpoint"]).is_dir())
        # The limit is each start's own: going on goes on.
        again = json.loads(self.run_well("train", "--run", "run", "--resume", "auto", "--json").stdout)
        self.assertGreater(again["step"], summary["step"])

    def test_resume_passes_over_a_damaged_checkpoint_and_says_so(self):
        self.run_well(*self.train("run"))
        newest = self.folder / "run" / "checkpoints" / "step_00000300" / "model.safetensors"
        data = bytearray(newest.read_bytes())
        data[-5] ^= 1
        newest.write_bytes(data)
        before = self.losses("run")
        result = self.run_well(*self.train("run", "--resume", "auto"))
        self.assertIn("passed over", result.stderr)
        self.assertIn("resuming from run/checkpoints/step_00000280", result.stderr)
        self.assertEqual(self.losses("run"), before)

    def test_where_no_checkpoint_can_be_used_nothing_is_touched(self):
        self.run_well(*self.train("run"))
        for file in (self.folder / "run" / "checkpoints").glob("*/model.safetensors"):
            file.write_bytes(b"broken")
        before = (self.folder / "run" / "metrics.jsonl").read_bytes()
        self.refused(*self.train("run", "--resume", "auto"), says=["passed over", "can be used"])
        self.assertEqual((self.folder / "run" / "metrics.jsonl").read_bytes(), before)

    def test_a_run_directory_is_used_by_one_process_at_a_time(self):
        def second(process):
            self.refused("train", "--run", "run", "--resume", "auto", says="in use")
            process.send_signal(signal.SIGINT)

        code, _, error = self.stop(second)
        self.assertEqual(code, 0, error)


class WholeWay(KilledRuns):
    def test_text_to_tokens_to_model_to_text(self):
        text = "".join(f"Line {i}: the quick brown fox jumps over {i % 7} lazy dogs.\n" for i in range(400))
        (self.folder / "book.txt").write_text(text)
        self.run_well("prepare", "book.txt", "--out", "data", "--tokenizer", "bpe", "--vocab-size", "300")
        result = self.run_well("train", *TINY, "--data", "data", "--training.steps=60", "--run", "run", "--json",
                               "--optimizer.learning_rate=1e-2", "--training.validate_batches=0")
        summary = json.loads(result.stdout)
        self.assertTrue(summary["finished"])
        self.assertLess(summary["valid_perplexity"], 150)
        for name in ("config.toml", "run.json", "metrics.jsonl", "samples.txt", "tensorboard", "checkpoints", "tokenizer"):
            self.assertTrue((self.folder / "run" / name).exists(), name)
        keys = {"step", "loss", "tokens", "seconds", "tokens_per_second", "grad_norm", "learning_rate"}
        line = json.loads((self.folder / "run" / "metrics.jsonl").read_text().splitlines()[0])
        self.assertLessEqual(keys, set(line))

        # A stride of the context and the whole validation data: the same number as training reported.
        evaluated = json.loads(self.run_well("eval", "run", "--json").stdout)
        self.assertLessEqual({"loss", "perplexity", "bits_per_byte", "tokens"}, set(evaluated))
        self.assertAlmostEqual(evaluated["loss"], summary["valid_loss"], delta=1e-6)
        for path in ("run/", "run/checkpoints", summary["checkpoint"]):
            self.assertEqual(json.loads(self.run_well("eval", path, "--json").stdout)["loss"], evaluated["loss"], path)
        on_text = json.loads(self.run_well("eval", "run", "--data", "book.txt", "--stride", "8", "--json").stdout)
        self.assertLess(on_text["loss"], json.loads(self.run_well("eval", "run", "--data", "book.txt", "--json").stdout)["loss"] + 0.05)
        self.assertGreater(on_text["bits_per_byte"], 0)
        piped = json.loads(self.run_well("eval", "run", "--data", "-", "--stride", "8", "--json", input=text).stdout)
        self.assertEqual(piped["loss"], on_text["loss"])

        exported = json.loads(self.run_well("export", "run", "--out", "model", "--json").stdout)
        self.assertEqual(exported["parameters"], summary["parameters"])
        arguments = ["--prompt", "Line", "--max-tokens", "20", "--seed", "3", "--json"]
        from_run = json.loads(self.run_well("generate", "run", *arguments).stdout)["completions"]
        from_export = json.loads(self.run_well("generate", "model", *arguments).stdout)["completions"]
        self.assertEqual(from_run, from_export)
        streamed = self.run_well("generate", "run", *arguments[:-1]).stdout
        # A young model writes broken UTF-8, which JSON replaces byte by byte and Python in its own way.
        self.assertEqual(streamed.replace("\ufffd", ""), "Line" + from_run[0]["text"].replace("\ufffd", "") + "\n")
        self.refused("export", "run", "--out", "model", says="--overwrite")
        self.refused("export", "run", "--out", "run", says="a folder of its own")
        self.refused("export", "run", "--out", summary["checkpoint"], "--overwrite", says="a folder of its own")
        config = (self.folder / "run" / "config.toml").read_text()
        self.assertIn("vocabulary = 300", config, "the resolved configuration is kept")

    def test_many_prompts_at_once_are_as_each_alone(self):
        self.run_well("train", *TINY, "--training.steps=5", "--run", "run")
        arguments = ["--max-tokens", "50", "--temperature", "0", "--endless", "--json"]
        prompts = ["a", "a much longer prompt than the other one, longer than the context", ""]
        together = json.loads(self.run_well("generate", "run", *sum((["--prompt", p] for p in prompts), []), *arguments).stdout)
        for prompt, completion in zip(prompts, together["completions"]):
            alone = json.loads(self.run_well("generate", "run", "--prompt", prompt, *arguments).stdout)["completions"][0]
            self.assertEqual(alone, completion)

    def test_print_config_round_trips(self):
        first = self.run_well("train", "--model.width", "64", "--print-config").stdout
        (self.folder / "config.toml").write_text(first)
        self.assertEqual(self.run_well("train", "config.toml", "--print-config").stdout, first)
        self.assertIn("width = 64", first)


class Mistakes(KilledRuns):
    def test_a_warm_up_that_is_longer_than_the_run_is_told(self):
        result = self.run_well("train", "--run", "run", *TINY, "--training.steps=2", "--optimizer.warmup_steps=8", "--optimizer.learning_rate=1e-3")
        self.assertIn("the warm-up is longer than the run, 8 steps of 2: the learning rate rises to the end, up to 0.00025 of 0.001", result.stderr)
        result = self.run_well("train", "--run", "other", *TINY, "--training.steps=2", "--optimizer.warmup_steps=2")
        self.assertNotIn("warm-up", result.stderr)

    def test_ranges_are_numbers_as_people_write_them(self):
        for knob, says in (("model.width=0", "want a value from 1 to 1,048,576, got 0"), ("training.steps=-1", "want a value of at least"),
                           ("model.dropout=2", "want a value from 0 to 0.99, got 2")):
            self.refused("train", f"--{knob}", says=says)
        self.refused("generate", "none", "--temperature", "-1", says='"-1" is not a number from 0 to 1,000,000')
        self.refused("generate", "none", "--top-k", "-4", says='"-4" is not a whole number of at least 0')
        self.refused("train", "--workers", "5000", says='"5000" is not a number from 1 to 4,096')
        for command in ("train", "generate", "eval", "plan"):
            self.assertNotRegex(self.run_well(command, "--help").stdout, r"\de\+\d|FLOAT in|NONNEGATIVE")

    def test_flags(self):
        self.refused("train", "--model.widht", "3", says="--model.width")
        self.refused("train", "--model.width", "0", says="from 1 to")
        self.refused("train", "--model.width", "9", "--model.heads", "2", says="do not divide")
        self.refused("trian", says="nearest is train")
        self.refused("train", "--resume", "auto", says="--run")
        self.refused("train", "nowhere.toml", says="nowhere.toml")
        self.refused("eval", says="MODEL")
        self.refused("generate", "nowhere", says="nowhere")
        self.refused("train", *TINY, "--run", "run", "--training.sample_prompt", b"\xff".decode("latin1").encode("latin1"), says="UTF-8")
        self.refused("bench", "step", "--no-twin", "--size", "256,16,1,0,32,4", says="model.heads")
        self.refused("bench", "step", "--no-twin", "--size", "1,2,3", says="6 numbers")
        self.refused("bench", "step", "--stepz", "3", says=["--steps", "ballast bench step --help"])
        self.refused("train", "--run", "x" * 300, *TINY, says="x" * 300)
        self.assertEqual(list(self.folder.iterdir()), [], "a refused command leaves nothing behind")

    def test_data(self):
        empty = self.folder / "empty"
        empty.mkdir()
        self.refused("train", *TINY, "--data", "nowhere", "--run", "run", says="nowhere")
        self.refused("train", *TINY, "--data", "empty", "--run", "run", says="empty")
        self.refused("prepare", "empty", "--out", "data", says="empty")
        (self.folder / "short.txt").write_text("only a few words")
        self.run_well("prepare", "short.txt", "--out", "short")
        self.refused("train", *TINY, "--data", "short", "--run", "run", says="context")
        (self.folder / "foreign.bin").write_bytes(b"\xff\xfe" * 4000)
        self.refused("train", *TINY, "--data.valid", "foreign.bin", "--run", "run", says="foreign.bin")
        self.assertFalse((self.folder / "run").exists(), "a run that could not start leaves no directory")

    def test_run_directories(self):
        (self.folder / "file").write_text("mine")
        self.refused("train", *TINY, "--run", "file/run", says="file")
        (self.folder / "other").mkdir()
        (self.folder / "other" / "precious").write_text("mine")
        self.refused("train", *TINY, "--run", "other", says="other")
        self.run_well("train", *TINY, "--training.steps=2", "--run", "run")
        self.refused("train", *TINY, "--run", "run", says="--resume auto")
        self.refused("train", "--run", "run", "--resume", "auto", "--model.width=32", says="model.width: 16 -> 32")
        self.assertEqual((self.folder / "other" / "precious").read_text(), "mine")

    def test_a_tokenizer_that_does_not_fit(self):
        self.run_well("train", *TINY, "--training.steps=2", "--run", "run")
        text = "words and more words\n" * 200
        (self.folder / "text.txt").write_text(text)
        self.run_well("prepare", "text.txt", "--out", "data", "--tokenizer", "bpe", "--vocab-size", "270")
        self.refused("eval", "run", "--data", "data", says="tokenizer")
        self.refused("generate", "run", "--tokenizer", "data", says="tokenizer")

    def test_a_changed_byte_in_the_data_is_found(self):
        (self.folder / "text.txt").write_text("words and more words\n" * 500)
        self.run_well("prepare", "text.txt", "--out", "data")
        shard = next((self.folder / "data").glob("train*"))
        data = bytearray(shard.read_bytes())
        data[len(data) // 2] ^= 1
        shard.write_bytes(data)
        self.refused("train", *TINY, "--data", "data", "--run", "run", says=shard.name)
        self.assertFalse((self.folder / "run").exists())

    def test_tokens_and_text_are_told_apart(self):
        self.run_well("train", *TINY, "--training.steps=2", "--run", "run")
        (self.folder / "a.bin").write_bytes(b"a\0b\0" * 500)
        (self.folder / "text.txt").write_text("words " * 100)
        both = json.loads(self.run_well("eval", "run", "--data", "a.bin", "--data", "a.bin", "--json").stdout)
        self.assertEqual(both["tokens"], 2 * 1000 - 1)
        self.refused("eval", "run", "--data", "a.bin", "--data", "text.txt", says="text.txt is text")

    def test_a_result_that_cannot_be_written_is_no_success(self):
        self.run_well("train", *TINY, "--training.steps=2", "--run", "run")
        for command in (["eval", "run", "--json"], ["generate", "run"], ["doctor", "--json"]):
            with open("/dev/full", "w") as full:
                result = subprocess.run([BALLAST, *command], cwd=self.folder, stdout=full, stderr=subprocess.PIPE, text=True)
            self.assertEqual(result.returncode, 2, command)
            self.assertIn("standard output", result.stderr)

    def test_training_that_goes_wrong_stops_with_advice(self):
        result = ballast("train", *TINY, "--run", "run", "--training.steps=400", "--optimizer.learning_rate=10",
                         "--optimizer.clip_norm=0", "--optimizer.warmup_steps=0", "--optimizer.epsilon=1e-20",
                         "--training.spike_factor=1e-9", "--training.max_skipped=5", cwd=self.folder)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("5 steps in a row were skipped", result.stderr)
        self.assertIn("skipped", (self.folder / "run" / "metrics.jsonl").read_text())


if __name__ == "__main__":
    unittest.main()
