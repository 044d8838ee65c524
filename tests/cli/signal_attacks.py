# SPDX-License-Identifier: Apache-2.0
"""Runs that are stopped as `timeout` stops them, at many moments: what was computed must be saved.

A test runs a few; `survey(folder, count, workers)` runs as many as it is asked for."""

import os
import random
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from in_folder import BALLAST

# Endless, with checkpoints only where it is stopped.
ENDLESS = (
    "--model.width=16 --model.layers=1 --model.heads=2 --model.context=32 --training.batch=4 --training.threads=1 "
    "--training.validate_every=0 --training.validate_batches=2 --training.last_validate_batches=2 --training.sample_tokens=8 --data.builtin_bytes=60000 "
    "--training.log_every=1000000 --training.steps=10000000 --checkpoint.every=0"
).split()
PATIENCE = 120  # seconds, for what takes one or two


@dataclass
class Outcome:
    moment: str
    code: int
    steps: int  # that were computed
    saved: int  # the step of the newest whole checkpoint; -1: there is none
    error: str

    def is_good(self):
        return self.code == 0 and self.steps > 0 and self.saved == self.steps


def last_step(run):
    metrics = run / "metrics.jsonl"
    lines = metrics.read_bytes().splitlines() if metrics.exists() else []
    steps = re.findall(rb'"step":(\d+)', lines[-1]) if lines else []
    return int(steps[0]) if steps else 0


def newest_checkpoint(run):
    return max((int(manifest.parent.name[5:]) for manifest in run.glob("checkpoints/step_*[0-9]/manifest.json")), default=-1)


def command_of(run, workers):
    return [str(BALLAST), "train", *ENDLESS, "--run", str(run), *(["--workers", str(workers)] if workers > 1 else [])]


def outcome_of(process, run, moment):
    try:
        _, error = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    return Outcome(moment, process.returncode, last_step(run), newest_checkpoint(run), error)


def stopped_after(steps, gap, run, workers=1):
    """What `timeout` does, but when `steps` are done: a signal to the process, and `gap` seconds later to its group."""
    process = subprocess.Popen(command_of(run, workers), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                               errors="replace", start_new_session=True)
    end = time.monotonic() + PATIENCE
    while last_step(run) < steps and process.poll() is None and time.monotonic() < end:
        time.sleep(0.002)
    process.send_signal(signal.SIGTERM)
    time.sleep(gap)
    for number in (signal.SIGTERM, signal.SIGCONT):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break  # saved and gone already
    return outcome_of(process, run, f"{workers} worker(s), after {steps} steps, {gap * 1000:.0f} ms apart")


def stopped_by_timeout(seconds, run, workers=1):
    """`timeout` itself."""
    command = ["timeout", "--preserve-status", "--signal=TERM", f"{seconds:.3f}", *command_of(run, workers)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace")
    return outcome_of(process, run, f"{workers} worker(s), after {seconds:.2f} s")


def survey(folder, count, workers=1, seed=1):
    """The outcomes of `count` runs that are stopped at random moments, with two signals at once or nearly so."""
    moments = random.Random(seed)
    for number in range(count):
        steps = moments.choice([1, 2, 3, 10, 50, 300])
        gap = moments.choice([0.0, 0.0, 0.001, 0.01, 0.1, 0.3])
        yield stopped_after(steps, gap, Path(folder) / f"attack{number}", workers)
