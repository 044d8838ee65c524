# SPDX-License-Identifier: Apache-2.0
"""cluster/train.sbatch on a real Slurm of three nodes: nodes that are lost, the time limit and a cancelled job leave a run
that goes on, with the losses of an undisturbed one to the bit."""

import os
import re
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

import slurm_cluster
from slurm_cluster import Cluster, wait_until

sys.path.insert(0, str(Path(os.environ["BALLAST_SOURCE"]) / "tests/cli"))
from in_folder import BALLAST, InFolder  # noqa: E402

SCRIPT = Path(os.environ["BALLAST_SOURCE"]) / "cluster/train.sbatch"
TINY = (
    "--model.width=16 --model.layers=2 --model.heads=2 --model.context=16 --training.threads=1 --training.batch=8 "
    "--training.validate_every=0 --training.validate_batches=2 --training.last_validate_batches=2 --training.sample_tokens=8 --data.builtin_bytes=60000 "
    "--training.log_every=50 --checkpoint.every=50 --experts.layers=1 --experts.count=8 --deadline 20s"
).split()

ENDS = "COMPLETED CANCELLED FAILED TIMEOUT NODE_FAIL".split()


def setUpModule():
    if why := slurm_cluster.what_is_missing():
        raise unittest.SkipTest(why)


class Jobs(InFolder):
    quiet_losses = {}  # of a run that nobody disturbed

    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp(prefix="ballast-slurm-")
        cls.addClassCleanup(shutil.rmtree, folder)
        cls.cluster = Cluster(folder, nodes=3)
        cls.addClassCleanup(cls.cluster.close)

    def setUp(self):
        super().setUp()
        self.cluster.environment["BALLAST"] = str(BALLAST)
        self.jobs = []

    def tearDown(self):
        for job in self.jobs:
            self.cluster.call("scancel", job)
            wait_until(lambda: self.state(job) in ENDS, f"job {job} does not end")

    def submit(self, run, steps, *options):
        self.jobs.append(self.cluster.submit(*options, SCRIPT, run, *TINY, f"--training.steps={steps}", folder=self.folder))
        return self.jobs[-1]

    def state(self, job):
        return self.cluster.job(job).get("JobState")

    def log(self, job):
        return (self.folder / f"ballast-{job}.log").read_text()

    def last_step(self, run):
        metrics = self.folder / run / "metrics.jsonl"
        found = re.findall(r'"step":\s*(\d+)', metrics.read_text()) if metrics.exists() else []
        return int(found[-1]) if found else 0

    def wait_for_step(self, run, step):
        wait_until(lambda: self.last_step(run) >= step, f"no step {step}")

    def wait_for_end(self, job, seconds=300):
        wait_until(lambda: self.state(job) in ENDS, f"job {job} does not end", seconds)
        self.assertEqual(self.state(job), "COMPLETED", self.log(job))

    def start_now(self, job):
        """Slurm leaves a job that is queued again alone for two minutes."""
        wait_until(lambda: self.cluster.job(job).get("Restarts") == "1", f"job {job} is not queued again", 120)

        def is_started():
            self.cluster.call("scontrol", "update", f"JobId={job}", "StartTime=now")
            return self.state(job) in ("RUNNING", "COMPLETED")

        wait_until(is_started, f"job {job} does not start", 200)

    def undisturbed(self, steps):
        if not self.quiet_losses:
            self.wait_for_end(self.submit("undisturbed", steps))
            self.quiet_losses.update(self.losses("undisturbed"))
        self.assertEqual(len(self.quiet_losses), steps)
        return self.quiet_losses

    def check_lost_node(self, choose, steps=300):
        expected = self.undisturbed(steps)
        job = self.submit("disturbed", steps)
        self.wait_for_step("disturbed", 120)
        found = self.cluster.job(job)
        batch_host = found["BatchHost"]
        self.assertEqual(found["NumNodes"], "2")
        lost = choose(batch_host, set(self.cluster.call("scontrol", "show", "hostnames", found["NodeList"]).split()))
        self.cluster.power_off(lost)
        self.assertLess(self.last_step("disturbed"), steps, "the run was over too soon")
        self.start_now(job)
        self.wait_for_end(job)
        self.assertEqual(self.cluster.job(job)["Restarts"], "1", self.log(job))
        self.assertRegex(self.log(job), "resuming from .*step_0")
        self.assertNotIn(lost, self.cluster.job(job)["NodeList"])
        self.assertEqual(self.losses("disturbed"), expected, "to the bit")
        self.cluster.start_node(int(lost[-1]))

    def test_a_job_goes_on_after_its_second_node_was_lost(self):
        self.check_lost_node(lambda batch_host, nodes: (nodes - {batch_host}).pop())

    def test_a_job_goes_on_after_the_node_of_its_script_was_lost(self):
        self.check_lost_node(lambda batch_host, nodes: batch_host)

    def test_at_its_time_limit_a_job_saves_and_is_queued_again(self):
        job = self.submit("timed", 10**6, "--time=1", "--signal=B:USR1@10")
        self.start_now(job)
        wait_until(lambda: "resuming from" in self.log(job), "it does not go on")
        log = self.log(job)
        stopped = int(re.search(r"Stopped after (\d+)", log)[1])
        resumed = int(re.search(r"resuming from .*step_0*(\d+)", log)[1])
        self.assertEqual(resumed, stopped, log)
        self.wait_for_step("timed", stopped + 100)
        losses = self.losses("timed")
        self.assertEqual(sorted(losses), list(range(1, len(losses) + 1)), "each step once")

    def test_a_job_that_is_cancelled_saves_and_is_not_queued_again(self):
        job = self.submit("cancelled", 10**6)
        self.wait_for_step("cancelled", 60)
        self.cluster.call("scancel", job)
        wait_until(lambda: self.state(job) == "CANCELLED", "not cancelled")
        wait_until(lambda: "CG" not in self.cluster.call("squeue", "--noheader", "--format=%t"), "does not end")
        newest = max(path.name for path in (self.folder / "cancelled/checkpoints").iterdir())
        self.assertEqual(int(newest.removeprefix("step_")), max(self.losses("cancelled")), self.log(job))
        self.assertEqual(self.cluster.job(job)["Restarts"], "0")

    def test_workers_of_one_machine_stay_on_it_and_save_when_the_script_tells_them(self):
        command = f"{BALLAST} train --workers 4 --run one {' '.join(TINY)} --training.steps=1000000"
        script = self.folder / "one_machine"
        script.write_text(f"#!/bin/bash\n#SBATCH --nodes=2 --output=ballast-%j.log\n{command} &\n"
                          "trap 'kill -USR1 $!' USR1\nwait $!\nwait $!\n")
        self.jobs.append(self.cluster.submit(script, folder=self.folder))
        self.wait_for_step("one", 10)
        self.cluster.call("scancel", "--signal=USR1", "--batch", self.jobs[-1])
        self.wait_for_end(self.jobs[-1])
        self.assertIn("Stopped after", self.log(self.jobs[-1]))


if __name__ == "__main__":
    unittest.main()
