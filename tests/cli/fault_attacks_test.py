# SPDX-License-Identifier: Apache-2.0
"""System calls that fail or fall short, memory that is not there: nothing damaged is left, and there is always a word."""

import collections
import errno
import os
import shutil
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import fault_attacks
from in_folder import ballast


class FaultAttacks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="ballast-test-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)

    def check(self, outcomes, told):
        self.assertEqual(fault_attacks.faults_of(outcomes), [])
        kinds = collections.Counter(outcome.kind for outcome in outcomes)
        self.assertGreaterEqual(kinds["told"], told, kinds)

    def attack(self, name, calls, kinds=("fail",)):
        """On `calls` calls of a command, spread over all of them."""
        subject = fault_attacks.Subject(name, self.folder)
        every = max(1, subject.calls // calls)
        return self.outcomes(subject, fault_attacks.calls_to_attack(subject, every, kinds))

    def outcomes(self, subject, attacks):
        return [subject.attack(self.folder / "place", label, **settings) for label, settings in attacks]

    def test_a_checkpoint_that_was_there_is_never_lost(self):
        self.check(self.attack("resume", 5, ("stays",)), told=4)

    def test_what_cannot_be_deleted_does_not_end_a_training(self):
        trained = [*fault_attacks.RESUME, "--checkpoint.every=1", "--checkpoint.keep_last=1"]
        subject = fault_attacks.Subject("resume", self.folder, trained)
        first = subject.names.index("unlinkat") + 1
        place = self.folder / "place"
        outcome = subject.attack(place, "a file that another machine reads", at=first, kind="fail", errno=errno.ENOTEMPTY)
        self.assertEqual(outcome.kind, "harmless", outcome)
        left = {path.name for path in (place / "run/checkpoints").iterdir()}
        self.assertIn("step_00000006", left)
        self.assertEqual(len(left), 2, left)  # and one that could not go
        again = ballast(*trained, "--training.steps=7", cwd=place)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual({path.name for path in (place / "run/checkpoints").iterdir()}, {"step_00000007"})

    def test_an_export_that_failed_can_be_done_again(self):
        self.check(self.attack("export", 4), told=2)

    def test_a_report_that_failed_can_be_done_again(self):
        self.check(self.attack("report", 3), told=1)

    def test_data_that_were_not_finished_are_not_there(self):
        self.check(self.attack("prepare", 3), told=2)

    def attack_memory(self, name, count):
        subject = fault_attacks.Subject(name, self.folder)
        return self.outcomes(subject, fault_attacks.allocations_to_attack(subject, count))

    def test_memory_that_is_not_there_is_told(self):
        self.check(self.attack_memory("resume", 4), told=1)

    def test_no_file_is_left_for_which_there_was_no_memory(self):
        with unittest.mock.patch.dict(os.environ, BALLAST_FAULT_LARGE="4096"):  # a page's buffer grows in steps
            self.check(self.attack_memory("report", 10), told=2)


if __name__ == "__main__":
    unittest.main()
