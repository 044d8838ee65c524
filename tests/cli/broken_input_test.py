# SPDX-License-Identifier: Apache-2.0
"""Data that goes away under a run, models that no memory holds: each is told by name, and nothing is started again."""

import os
import re
import resource
import subprocess
import time
import unittest

from in_folder import BALLAST, InFolder
from signal_attacks import last_step

TINY = (
    "--model.width=16 --model.layers=1 --model.heads=2 --model.context=32 --training.batch=4 --training.threads=1 "
    "--training.validate_every=0 --training.validate_batches=2 --training.sample_tokens=8 --training.log_every=1000000"
).split()
# Weights of 0.8 GB: with gradients and moments 3.2 GB.
LARGE = "--model.width=4096 --model.layers=1 --model.heads=4 --model.context=16 --training.batch=1 --data.builtin_bytes=60000".split()


class LostData(InFolder):
    def test_a_shard_that_is_cut_short_under_a_run_is_named(self):
        self.run_well("prepare", "builtin", "--builtin-bytes", "1MB", "--out", "data")
        shard = self.folder / "data" / "train-00000.tokens"
        whole = shard.read_bytes()
        for more in ([], ["--workers", "2", "--max-restarts", "3"]):
            with self.subTest(more):
                shard.write_bytes(whole)
                run = self.folder / f"run{len(more)}"
                process = subprocess.Popen([BALLAST, "train", *TINY, "--data", "data", "--training.steps=100000000", "--run", run, *more],
                                           cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                deadline = time.monotonic() + 60
                while last_step(run) < 3 and time.monotonic() < deadline:
                    time.sleep(0.01)
                os.truncate(shard, 4096)
                _, error = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 2, error)
                self.assertIn("data/train-00000.tokens: it has become shorter", error)
                self.assertNotIn("starting again", error)


class LargeModels(InFolder):
    def test_memory_that_cannot_be_had_is_told_in_bytes(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))

        for more in ([], ["--workers", "1", "--max-restarts", "3"]):
            result = subprocess.run([BALLAST, "train", *LARGE, "--training.threads=1", "--run", "run", *more], cwd=self.folder, capture_output=True, text=True,
                                    preexec_fn=limit)
            self.assertEqual(result.returncode, 2, result.stderr)
            # A machine with less than 3 GB refuses it before.
            self.assertRegex(result.stderr, r"out of memory: \d+ bytes \(.* could not be had|does not fit")
            self.assertNotIn("starting again", result.stderr)

    def test_a_run_that_was_made_huge_by_hand_is_refused(self):
        self.run_well("train", *TINY, "--data.builtin_bytes=60000", "--training.steps=2", "--run", "run")
        config = self.folder / "run" / "config.toml"
        for folder in (self.folder / "run" / "checkpoints").iterdir():
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()
        config.write_text(re.sub(r"(?m)^width = \d+", "width = 1048576", config.read_text()))
        self.refused("train", "--run", "run", "--resume", "auto", says="does not fit")


if __name__ == "__main__":
    unittest.main()
