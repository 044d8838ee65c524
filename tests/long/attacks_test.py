# SPDX-License-Identifier: Apache-2.0
"""The attacks of tests/cli, many times over: nothing lost, nothing hung, nothing damaged that was taken for sound."""

import collections
import os
import sys
import unittest
from pathlib import Path

os.environ.setdefault("BALLAST_ATTACKS", "10")  # before worker_attacks is read
sys.path.insert(0, str(Path(os.environ["BALLAST_SOURCE"]) / "tests/cli"))
import fault_attacks  # noqa: E402
import file_attacks  # noqa: E402
import file_bombs  # noqa: E402
from attacked_files import make_subject  # noqa: E402
from in_folder import InFolder  # noqa: E402
from killed_runs import KilledRuns  # noqa: E402
from signal_attacks import survey  # noqa: E402
from worker_attacks_test import AttackedJobs  # noqa: E402, F401  its tests run here


class Kills(KilledRuns):
    def test_killed_at_sixty_random_moments_it_ends_with_the_same_bits(self):
        self.check_kills(60)


class Timeouts(InFolder):
    def test_fifty_runs_are_saved(self):
        bad = [outcome for workers, count in ((1, 35), (2, 15))
               for outcome in survey(self.folder / f"of{workers}", count, workers=workers) if not outcome.is_good()]
        self.assertEqual(bad, [])


class Files(InFolder):
    def check(self, outcomes):
        self.assertEqual(file_attacks.faults_of(outcomes), [])
        print(collections.Counter(outcome.kind for outcome in outcomes), file=sys.stderr)

    def test_no_damage_of_five_hundred_files_is_taken_for_sound(self):
        self.check(list(file_attacks.attack(make_subject(self.folder), range(500))))

    def test_none_of_forty_deep_files_crashes_the_program(self):
        self.check(file_bombs.bomb(make_subject(self.folder), 40))


class Faults(InFolder):
    def test_no_call_and_no_allocation_that_fails_does_harm(self):
        outcomes = list(fault_attacks.survey(self.folder, every=1, memory=500))
        self.assertEqual(fault_attacks.faults_of(outcomes), [])
        print(collections.Counter((outcome.command, outcome.kind) for outcome in outcomes), file=sys.stderr)


if __name__ == "__main__":
    unittest.main()
