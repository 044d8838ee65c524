# SPDX-License-Identifier: Apache-2.0
"""A run that is killed again and again ends with the bits of one that was not."""

import json
import random
import re
import signal
import subprocess
import time

from in_folder import BALLAST, InFolder

# A model so small that starting the program takes longer than training it.
TINY = (
    "--model.width=16 --model.layers=1 --model.heads=2 --model.context=32 --training.batch=4 --training.threads=1 "
    "--training.validate_every=0 --training.validate_batches=2 --training.last_validate_batches=2 --training.sample_tokens=8 --data.builtin_bytes=60000 "
    "--training.log_every=50"
).split()


class KilledRuns(InFolder):
    def weights(self, run, step):
        folder = self.folder / run / "checkpoints" / f"step_{step:08d}"
        return [(folder / name).read_bytes() for name in ("model.safetensors", "optimizer.safetensors")]

    def train(self, run, *more, steps=300):
        return ["train", *TINY, f"--training.steps={steps}", "--checkpoint.every=20", "--run", run, *more]

    def newest_step(self, run):
        """The last step that the run's log tells of."""
        metrics = self.folder / run / "metrics.jsonl"
        lines = metrics.read_bytes().splitlines() if metrics.exists() else []
        steps = re.findall(rb'"step":(\d+)', lines[-1]) if lines else []
        return int(steps[0]) if steps else 0

    def kill_at_a_random_moment(self, command, run):
        """Starts the program and kills it: some times while it starts, else some steps after its last checkpoint."""
        saved = [int(folder.name[5:13]) for folder in (self.folder / run / "checkpoints").glob("step_*[0-9]")]
        goal = max(saved, default=0) + random.randint(1, 60)
        patience = random.uniform(0.0, 0.4) if random.random() < 0.25 else 60
        process = subprocess.Popen([BALLAST, *command], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + patience
        while self.newest_step(run) < goal and time.monotonic() < end and process.poll() is None:
            time.sleep(0.001)
        process.kill()
        self.assertEqual(process.wait(), -signal.SIGKILL, "the run ended before it was killed")

    def check_kills(self, kills):
        steps = 80 * kills + 100  # a kill comes at most 60 steps after a checkpoint, and those are 20 apart
        self.run_well(*self.train("straight", steps=steps))
        random.seed(7)
        for _ in range(kills):
            self.kill_at_a_random_moment(self.train("killed", "--resume", "auto", steps=steps), "killed")
        self.run_well(*self.train("killed", "--resume", "auto", steps=steps))
        starts = [start["step"] for start in json.loads((self.folder / "killed" / "run.json").read_text())["starts"]]
        self.assertGreaterEqual(sum(step > 0 for step in starts), kills // 5, f"too few starts went on from a checkpoint: {starts}")
        self.assertEqual(self.weights("killed", steps), self.weights("straight", steps))
        self.assertEqual(self.losses("killed"), self.losses("straight"))
        self.assertEqual(sorted(self.losses("killed")), list(range(1, steps + 1)))
