# SPDX-License-Identifier: Apache-2.0
"""How the program ends when it is asked to: by `timeout`, while it reads a pipe, where a file may not grow."""

import os
import resource
import signal
import subprocess
import time
import unittest

from in_folder import BALLAST, InFolder
from signal_attacks import stopped_by_timeout, survey

TINY = (
    "--model.width=16 --model.layers=1 --model.heads=2 --model.context=32 --training.batch=4 --training.threads=1 "
    "--training.validate_every=0 --training.validate_batches=2 --training.last_validate_batches=2 --training.sample_tokens=8 --data.builtin_bytes=60000"
).split()


class Timeouts(InFolder):
    def assert_good(self, outcome):
        self.assertTrue(outcome.is_good(), outcome)
        self.assertEqual(outcome.error.count("stopping as soon as it is safe"), 1, outcome)

    def test_two_signals_at_once_are_one_request(self):
        for outcome in survey(self.folder, 3):
            self.assert_good(outcome)

    def test_of_workers_too(self):
        for outcome in survey(self.folder, 2, workers=2):
            self.assert_good(outcome)

    def test_timeout_itself_saves(self):
        for seconds in (2, 4, 8, 16, 32):  # however slow the machine is to start it
            outcome = stopped_by_timeout(seconds, self.folder / f"after{seconds}")
            if outcome.steps > 0:
                break
        self.assert_good(outcome)

    def test_a_second_request_ends_at_once(self):
        # A step that takes long: the second Ctrl-C of a person comes within it.
        command = [BALLAST, "train", *TINY, "--model.width=256", "--model.layers=4", "--model.context=512", "--training.batch=1024",
                   "--training.micro_steps=1024", "--run", "long"]
        process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for line in process.stderr:
            if "run directory:" in line:
                break
        time.sleep(2)  # until it listens
        process.send_signal(signal.SIGINT)
        time.sleep(2)  # two within half a second are one
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)


class Pipes(InFolder):
    def stopped(self, *arguments, number=signal.SIGTERM, **options):
        """Starts `ballast prepare`, which waits for input, asks it once to stop, and returns its end."""
        process = subprocess.Popen([BALLAST, "prepare", *map(str, arguments)], cwd=self.folder, stderr=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True, **options)
        status = f"/proc/{process.pid}/status"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:  # until it has its handler: before, any program ends
            caught = next(line for line in open(status) if line.startswith("SigCgt"))
            if int(caught.split()[1], 16) >> (number - 1) & 1:
                break
            time.sleep(0.01)
        time.sleep(0.2)
        process.send_signal(number)
        out, error = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out), (2, ""), error)
        self.assertIn("stopped; nothing was written", error)
        self.assertFalse((self.folder / "data").exists())

    def test_a_pipe_that_gives_nothing_does_not_hold_it_up(self):
        for tokenizer in ("bytes", "bpe"):
            for number in (signal.SIGTERM, signal.SIGINT):
                read, write = os.pipe()
                os.write(write, b"some words, and then nothing\n" * 100)
                self.stopped("-", "--out", "data", "--tokenizer", tokenizer, number=number, stdin=read)
                os.close(read)
                os.close(write)

    def test_nor_does_a_fifo_without_a_writer(self):
        os.mkfifo(self.folder / "fifo")
        self.stopped("fifo", "--out", "data")

    def test_a_fifo_is_read_to_its_end(self):
        os.mkfifo(self.folder / "fifo")
        text = "".join(f"line {i}\n" for i in range(20000))
        process = subprocess.Popen([BALLAST, "prepare", "fifo", "--out", "data", "--valid-fraction", "0", "--json"], cwd=self.folder,
                                   stdout=subprocess.PIPE, text=True)
        with open(self.folder / "fifo", "w") as fifo:
            fifo.write(text)
        out, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0)
        self.assertIn(f'"source_bytes":{len(text)}', out.replace(" ", ""))

    def test_prompts_and_configs_may_come_from_pipes(self):
        self.run_well("train", *TINY, "--training.steps=2", "--run", "run")
        process = subprocess.run([BALLAST, "generate", "run", "--prompts", "/dev/stdin", "--max-tokens", "2", "--json"], cwd=self.folder,
                                 input="first\nsecond\n", capture_output=True, text=True)
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertIn('"prompt": "second"', process.stdout)
        process = subprocess.run([BALLAST, "train", "--config", "/dev/stdin", "--print-config"], input="[model]\nwidth = 8\nheads = 2\n",
                                 capture_output=True, text=True)
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertIn("width = 8", process.stdout)


class FileSizes(InFolder):
    def limited(self, size, *arguments):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

        result = subprocess.run([BALLAST, *arguments], cwd=self.folder, capture_output=True, text=True, preexec_fn=limit)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("File too large", result.stderr)
        self.assertIn("ulimit -f", result.stderr)

    def test_a_file_that_may_not_grow_is_an_error_with_a_name(self):
        self.limited(20000, "prepare", "builtin", "--builtin-bytes", "200000", "--out", "data")
        self.limited(200000, "train", *TINY, "--model.width=128", "--training.steps=2", "--run", "run")


if __name__ == "__main__":
    unittest.main()
