# SPDX-License-Identifier: Apache-2.0
"""An hour of training by two workers, with validations, checkpoints and samples: memory stays flat, files stay bounded,
and the workers stay alike to the bit.

    BALLAST_MINUTES=60 BALLAST_BUILD=build/release BALLAST_SOURCE=$PWD tools/python_test tests/long/long_run_test.py
"""

import collections
import os
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(os.environ["BALLAST_SOURCE"]) / "tests/cli"))
from in_folder import BALLAST, InFolder  # noqa: E402
from worker_attacks import Job, steps_of  # noqa: E402

MINUTES = float(os.environ.get("BALLAST_MINUTES", "60"))
KEPT = 3
# Workers compare all they share every 100 steps, and end the run where it is not equal to the bit.
RUN = (
    "--workers 2 --model.width=64 --model.layers=4 --model.heads=4 --model.context=64 --experts.layers=1 --experts.count=8 "
    "--experts.sublayers=1 --training.batch=16 --training.threads=1 --training.device=cpu --training.steps=100000000 "
    "--training.validate_every=200 --training.validate_batches=4 --training.last_validate_batches=4 --training.sample_every=100 "
    f"--training.sample_tokens=32 --training.compare_every=100 --checkpoint.every=100 --checkpoint.keep_last={KEPT} "
    f"--training.log_every=100 --data.builtin_bytes=3000000 --training.max_time={MINUTES}m --deadline 1800 --quiet"
).split()
Sample = collections.namedtuple("Sample", "minute steps memory checkpoints log_bytes files")


def resident(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)


class LongRun(InFolder):
    def sample(self, minute, job):
        run = self.folder / "run"
        files = {str(path.relative_to(run)): path.stat().st_size
                 for path in run.rglob("*") if path.is_file() and "checkpoints" not in path.parts}
        logs = sum(size for name, size in files.items() if name.startswith(("metrics", "samples", "tensorboard")))
        checkpoints = [path.name for path in (run / "checkpoints").glob("step_*[0-9]")]
        return Sample(minute, steps_of(self.folder, "run"), [resident(pid) for pid in job.started()], len(checkpoints), logs, set(files))

    def watch(self, job):
        """A sample each minute, or each sixtieth of the time where it is shorter."""
        pause, samples, start = min(60, MINUTES), [], time.monotonic()
        while job.process.poll() is None:
            time.sleep(pause)
            try:
                samples.append(self.sample((time.monotonic() - start) / 60, job))
                print(samples[-1][:5], file=sys.stderr, flush=True)
            except (OSError, ProcessLookupError):
                continue  # a file that is being replaced, or the end
        return [sample for sample in samples if len(sample.memory) == 2 and sample.steps > 0]

    def test_nothing_grows(self):
        job = Job([BALLAST, "train", *RUN, "--run", "run"], self.folder)
        self.addCleanup(job.kill)
        samples = self.watch(job)
        ended = job.end()
        self.assertEqual(ended.code, 0, ended.errors[-2000:])  # also: the workers did not differ
        self.assertEqual(ended.left, [])
        self.assertGreaterEqual(len(samples), 20)
        begun = samples[len(samples) // 10]  # all that is made once is there: a validation, a sample, a checkpoint
        self.assertGreaterEqual(begun.steps, 200, "too slow a machine: give it more minutes")
        for worker in (0, 1):
            highest = max(sample.memory[worker] for sample in samples[len(samples) // 10 :])
            self.assertLessEqual(highest, 1.02 * begun.memory[worker], f"worker {worker}")
        self.assertLessEqual(max(sample.checkpoints for sample in samples), KEPT + 1)  # one more until the oldest is gone
        self.assertEqual(samples[-1].files, begun.files)
        middle, last = samples[len(samples) // 2], samples[-1]
        early = middle.log_bytes / middle.steps
        late = (last.log_bytes - middle.log_bytes) / (last.steps - middle.steps)
        self.assertLessEqual(late, 1.05 * early, "bytes of logs a step")


if __name__ == "__main__":
    unittest.main()
