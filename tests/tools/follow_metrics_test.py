# SPDX-License-Identifier: Apache-2.0
"""tools/follow_metrics sends each record of a run once: while it trains, after the run was killed and went on, after it was
killed itself. wandb and MLflow are not installed for tests: what they would get is what is printed here."""

import collections
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(os.environ["BALLAST_SOURCE"]) / "tests/cli"))
from in_folder import BALLAST, InFolder  # noqa: E402

FOLLOW = Path(os.environ["BALLAST_SOURCE"]) / "tools/follow_metrics"
TINY = (
    "--model.width=16 --model.layers=1 --model.heads=2 --model.context=16 --training.threads=1 --training.batch=8 "
    "--training.validate_every=20 --training.validate_batches=2 --training.sample_every=0 --data.builtin_bytes=60000 "
    "--checkpoint.every=20 --training.log_every=50"
).split()


def names(records):
    """What each record is of, in order."""
    return [("validation" if "valid_loss" in record else "step", record["step"]) for record in records]


class Following(InFolder):
    def follow(self, *arguments):
        process = subprocess.Popen([sys.executable, FOLLOW, "run", "--to", "print", *arguments], cwd=self.folder,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def finished(self, process, code=0):
        """What it still prints, up to its end."""
        out, errors = process.stdout.read(), process.stderr.read()  # a line of it may have been read before
        self.assertEqual(process.wait(), code, errors)
        return [json.loads(line) for line in out.splitlines()]

    def start(self, *more):
        process = subprocess.Popen([BALLAST, "train", *TINY, "--run", "run", "--resume", "auto", *more], cwd=self.folder,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def train(self, *more):
        return self.run_well("train", *TINY, "--run", "run", "--resume", "auto", *more)

    def wait_for_step(self, step):
        metrics, end = self.folder / "run/metrics.jsonl", time.monotonic() + 120
        while not metrics.exists() or f'"step":{step},' not in metrics.read_text().replace(" ", ""):
            self.assertLess(time.monotonic(), end, f"no step {step}")
            time.sleep(0.01)

    def test_a_run_that_is_killed_and_goes_on_is_sent_once(self):
        run = self.start("--training.steps=1000")
        follower = self.follow("--until-done")
        self.wait_for_step(130)
        first = [json.loads(follower.stdout.readline()) for _ in range(100)]
        run.kill()
        self.assertEqual(run.wait(), -signal.SIGKILL, "it was over too soon")
        self.assertIn("resuming from", self.train("--training.steps=1000").stderr)
        sent = first + self.finished(follower)
        self.assertEqual(names(sent), names(self.records("run")))
        self.assertEqual({r["step"]: r["loss"] for r in sent if "loss" in r}, self.losses("run"), "to the bit")
        # What was sent is known to the next one.
        self.assertEqual(self.finished(self.follow()), [])
        self.assertEqual(names(self.finished(self.follow("--from-start"))), names(sent))

    def test_a_follower_that_is_stopped_goes_on_where_it_was(self):
        self.train("--training.steps=40")
        sent = self.finished(self.follow("--until-done"))  # ends of itself: the run is done
        run = self.start("--training.steps=100000")
        self.wait_for_step(41)
        for number in (signal.SIGINT, signal.SIGTERM):
            follower = self.follow()
            first = json.loads(follower.stdout.readline())
            follower.send_signal(number)
            sent += [first, *self.finished(follower)]
        follower = self.follow()
        sent.append(json.loads(follower.stdout.readline()))
        run.send_signal(signal.SIGTERM)
        sent += self.finished(follower)
        self.assertEqual(run.wait(), 0)
        self.assertEqual(names(sent), names(self.records("run")))

    def test_after_a_kill_one_record_may_come_twice_and_none_is_lost(self):
        self.train("--training.steps=400")
        sent = []
        for lines in (5, 50):
            follower = self.follow()
            for _ in range(lines):
                sent.append(json.loads(follower.stdout.readline()))
            follower.kill()
            sent += [json.loads(line) for line in follower.stdout.read().splitlines() if line.endswith("}")]
        sent += self.finished(self.follow())
        counted = collections.Counter(names(sent))
        self.assertEqual(set(counted), set(names(self.records("run"))))
        self.assertLessEqual(sum(counted.values()) - len(counted), 2)

    def test_lines_that_are_not_whole_or_damaged_are_not_sent(self):
        self.train("--training.steps=20")
        expected = names(self.records("run"))
        with (self.folder / "run/metrics.jsonl").open("a") as metrics:
            metrics.write('{"step": 21, "loss"\n[1]\n{"step": "x"}\n{"step": 22, "loss": 1.5')
        self.assertEqual(names(self.finished(self.follow())), expected)

    def test_it_starts_before_the_run_and_puts_nothing_in_its_way(self):
        follower = self.follow("--until-done")
        self.assertIn("waiting for a run", follower.stderr.readline())
        self.assertFalse((self.folder / "run").exists())
        self.train("--training.steps=20")
        self.assertEqual(names(self.finished(follower)), names(self.records("run")))

    def test_two_of_them_are_refused_and_so_is_a_damaged_state(self):
        run = self.start("--training.steps=100000")
        follower = self.follow()
        follower.stdout.readline()
        second = self.follow()
        self.assertEqual(self.finished(second, code=2), [])
        run.send_signal(signal.SIGTERM)
        self.finished(follower)
        (self.folder / "run/follow_print.json").write_text('{"sent": ')
        third = self.follow()
        self.assertIn("--from-start", third.stderr.readline())
        self.assertEqual(self.finished(third, code=2), [])

    def test_without_the_package_it_says_what_to_install(self):
        self.train("--training.steps=5")
        for package in ("wandb", "mlflow"):
            result = subprocess.run([sys.executable, FOLLOW, "run", "--to", package], cwd=self.folder, capture_output=True,
                                    text=True)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(f"pip install {package}", result.stderr)
