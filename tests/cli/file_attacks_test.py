# SPDX-License-Identifier: Apache-2.0
"""Damaged and hostile files: none changes a result without a word, none ends the program but by a message."""

import collections
import shutil
import tempfile
import unittest
from pathlib import Path

import file_attacks
import file_bombs
from attacked_files import KINDS, make_subject


class FileAttacks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = Path(tempfile.mkdtemp(prefix="ballast-test-"))
        cls.addClassCleanup(shutil.rmtree, folder, ignore_errors=True)
        cls.subject = make_subject(folder)

    def assert_no_fault(self, outcomes, caught):
        self.assertEqual(file_attacks.faults_of(outcomes), [])
        kinds = collections.Counter(outcome.kind for outcome in outcomes)
        self.assertGreaterEqual(kinds["caught"], caught, kinds)

    def test_no_damaged_file_changes_a_result_in_silence(self):
        self.assert_no_fault(list(file_attacks.attack(self.subject, range(len(KINDS)))), caught=15)  # one of each kind

    def test_no_deep_file_crashes_the_program(self):
        self.assert_no_fault(file_bombs.bomb(self.subject, 12), caught=6)


if __name__ == "__main__":
    unittest.main()
