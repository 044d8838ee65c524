# SPDX-License-Identifier: Apache-2.0
"""A job with workers ends in time, with a message and without leaving a process, whatever is stopped or killed when; and goes
on where it may. BALLAST_ATTACKS=10 tries ten times as many moments."""

import ipaddress
import random
import signal
import unittest

import worker_attacks
from in_folder import InFolder
from worker_attacks import TIMES, WORKERS

LOST = 75
GAVE_UP = r"ballast: (worker \d of \d )?gave up after waiting [\d.]+ seconds"


class AttackedJobs(InFolder):
    def setUp(self):
        super().setUp()
        self.random = random.Random(1)

    def quiet(self, *more):
        outcome = worker_attacks.undisturbed(self.folder, "quiet", *more)
        self.assertEqual(outcome.code, 0, outcome.errors)
        return self.losses("quiet")

    def assert_ended(self, outcome, codes, what):
        self.assertIn(outcome.code, codes, f"{what}\n{outcome.errors}")
        self.assertEqual(outcome.left, [], f"{what}\n{outcome.errors}")

    def moments(self, number):
        """(name of a run, worker, moment within the first half second)"""
        for i in range(number * TIMES):
            yield f"run-{i}", self.random.randrange(WORKERS), self.random.uniform(0, 0.5)

    def test_a_worker_stopped_at_the_start_is_named_within_the_deadline(self):
        for run, worker, moment in self.moments(2):
            with self.subTest(worker=worker, moment=moment):
                outcome = worker_attacks.stop_at_the_start(self.folder, run, worker, moment)
                self.assert_ended(outcome, [LOST], f"worker {worker} after {moment:.3f} s")
                self.assertRegex(outcome.errors, GAVE_UP)
                self.assertRegex(outcome.errors, rf"worker {worker} (is stopped|does not answer)|a worker that is just being started is stopped")

    def test_after_a_worker_stopped_at_the_start_it_starts_again(self):
        expected = self.quiet()
        for run, worker, moment in self.moments(1):
            with self.subTest(worker=worker, moment=moment):
                outcome = worker_attacks.stop_at_the_start(self.folder, run, worker, moment, "--max-restarts", 3)
                self.assert_ended(outcome, [0], f"worker {worker} after {moment:.3f} s")
                self.assertRegex(outcome.errors, GAVE_UP)
                self.assertIn("starting again (1 of 3)", outcome.errors)
                self.assertEqual(self.losses(run), expected, "to the bit")

    def test_a_worker_of_peoples_own_mpirun_stopped_at_the_start(self):
        for run, worker, moment in self.moments(1):
            with self.subTest(worker=worker, moment=moment):
                outcome = worker_attacks.stop_at_the_start_of_mpirun(self.folder, run, worker, moment)
                self.assertNotIn(outcome.code, (0, -1), outcome.errors)
                self.assertEqual(outcome.left, [], f"worker {worker} after {moment:.3f} s\n{outcome.errors}")
                self.assertRegex(outcome.errors, GAVE_UP)

    def test_after_mpirun_was_killed_it_goes_on(self):
        expected = self.quiet()
        for run, worker, moment in self.moments(2):
            with self.subTest(worker=worker, moment=moment):
                step = self.random.randrange(1, 30)
                outcome = worker_attacks.kill_mpirun(self.folder, run, step, "--max-restarts", 1)
                self.assert_ended(outcome, [0], f"mpirun killed after step {step}")
                self.assertIn("mpirun was ended by signal 9, and so were all workers; starting again (1 of 1)", outcome.errors)
                self.assertEqual(self.losses(run), expected, "to the bit")

    def test_after_a_worker_was_killed_it_goes_on(self):
        divided = "--training.shard_optimizer=true"  # a checkpoint then has parts of all workers
        expected = self.quiet(divided)
        for run, worker, _ in self.moments(2):
            step = self.random.randrange(1, 30)
            with self.subTest(worker=worker, step=step):
                outcome = worker_attacks.kill_a_worker(self.folder, run, worker, step, divided, "--max-restarts", 1)
                self.assert_ended(outcome, [0], f"worker {worker} killed after step {step}")
                self.assertEqual(self.losses(run), expected, "to the bit")

    def test_without_restarts_a_killed_mpirun_is_the_end_of_all(self):
        outcome = worker_attacks.kill_mpirun(self.folder, "run", 3)
        self.assert_ended(outcome, [128 + signal.SIGKILL], "mpirun killed")

    def test_a_stopped_worker_is_gone_after_the_job_was_asked_to_stop(self):
        for run, worker, moment in self.moments(1):
            with self.subTest(worker=worker, moment=moment):
                outcome = worker_attacks.stop_a_worker_then_the_job(self.folder, run, worker, moment, step=5)
                self.assert_ended(outcome, [0], f"worker {worker} {moment:.3f} s before")
                self.assertIn("Stopped after", outcome.output)

    def test_a_worker_stopped_at_the_start_is_gone_after_the_job_was_asked_to_stop(self):
        for run, worker, moment in self.moments(1):
            with self.subTest(worker=worker, moment=moment):
                outcome = worker_attacks.stop_a_worker_then_the_job(self.folder, run, worker, moment)
                self.assert_ended(outcome, [0, LOST, 128 + signal.SIGTERM], f"worker {worker} {moment:.3f} s before")

    def test_a_stopped_worker_is_gone_after_the_launcher_was_killed(self):
        outcome = worker_attacks.stop_a_worker_and_kill_the_launcher(self.folder, "run", 1, 3)
        self.assert_ended(outcome, [-signal.SIGKILL], "the launcher killed")

    def test_a_link_that_goes_down_ends_workers_and_mpirun(self):
        if not worker_attacks.can_make_machines():
            self.skipTest("this user may not have network namespaces")
        outcome = worker_attacks.cut_the_link(self.folder, "run")
        self.assertNotIn(outcome.code, (0, -1), outcome.errors)
        self.assertRegex(outcome.errors, GAVE_UP)
        self.assertIn("left: \n", outcome.output)

    def test_nothing_listens_beyond_this_machine(self):
        for how in ("launcher", "mpirun"):
            command = worker_attacks.training(how, steps=100000)
            job = (worker_attacks.launched(self.folder, how, steps=100000) if how == "launcher" else
                   worker_attacks.Job([*worker_attacks.MPIRUN, "-n", WORKERS, *command], self.folder))
            worker_attacks.wait_until(lambda: worker_attacks.steps_of(self.folder, how) >= 1, "no step")
            # An mpirun of people's own listens as they let it (docs/workers.md).
            pids = job.processes() if how == "launcher" else job.started()
            found = worker_attacks.listening_addresses(pids)
            job.kill()
            job.end()
            self.assertGreaterEqual(len(found), WORKERS, "the workers' own ports")
            for address, port in found:
                self.assertTrue(ipaddress.ip_address(address).is_loopback, f"{how}: {address}:{port} of {found}")


if __name__ == "__main__":
    unittest.main()
