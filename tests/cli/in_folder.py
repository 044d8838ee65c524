# SPDX-License-Identifier: Apache-2.0
"""What tests of the program share: it runs in a folder of its own, and its run records are read."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

BUILD = Path(os.environ["BALLAST_BUILD"]).resolve()  # commands run in other folders
BALLAST = BUILD / "ballast"
# A training of a few milliseconds a step.
TINY = (
    "--model.width=16 --model.layers=1 --model.heads=2 --model.context=16 --training.batch=2 --training.threads=1 "
    "--training.validate_every=0 --training.validate_batches=2 --training.last_validate_batches=2 --training.sample_every=0 --training.log_every=1"
).split()


def ballast(*arguments, **options):
    words = [a if isinstance(a, bytes) else str(a) for a in arguments]
    return subprocess.run([BALLAST, *words], capture_output=True, encoding="utf-8", errors="replace", timeout=300, **options)


class InFolder(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="ballast-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def run_well(self, *arguments, **options):
        result = ballast(*arguments, cwd=self.folder, **options)
        self.assertEqual(result.returncode, 0, f"{arguments}\n{result.stderr}\n{result.stdout}")
        return result

    def refused(self, *arguments, says):
        result = ballast(*arguments, cwd=self.folder)
        self.assertEqual(result.returncode, 2, f"{arguments}\n{result.stderr}\n{result.stdout}")
        for words in says if isinstance(says, (list, tuple)) else [says]:
            self.assertIn(words, result.stderr)
        self.assertEqual(result.stdout, "")
        return result

    def records(self, run):
        return [json.loads(line) for line in (self.folder / run / "metrics.jsonl").read_text().splitlines()]

    def losses(self, run):
        return {line["step"]: line["loss"] for line in self.records(run) if "loss" in line}

    def validation(self, run):
        return [line for line in self.records(run) if "valid_loss" in line][-1]

    def assert_losses_near(self, run, expected, bound):
        losses = self.losses(run)
        self.assertEqual(losses.keys(), expected.keys())
        for step, loss in expected.items():
            self.assertLessEqual(abs(losses[step] - loss), bound, f"{run}, step {step}")
