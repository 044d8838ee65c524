# SPDX-License-Identifier: Apache-2.0
"""cmake/ListSuites.cmake makes one CTest test of each suite, with its labels, and tells which failed."""

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

CHECKOUT = Path(os.environ["BALLAST_SOURCE"])

# Answers as a program of GoogleTest's: a list, or a run in which all tests of the suite Broken fail.
PROGRAM = """#!/bin/sh
if [ "$1" = --gtest_list_tests ]; then
  [ "$2" = '--gtest_filter=-*Cuda.*' ] || exit 1
  echo 'Running main() from gtest_main.cc'
  for suite in %s; do printf '%%s.\\n  Claim\\n  Other/0  # GetParam() = 1.5\\n' "$suite"; done
else
  echo "ran $1"
  [ "$1" != '--gtest_filter=Broken.*' ]
fi
"""


class Suites(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="with a space ")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.program = self.folder / "room_tests"
        (self.folder / "CTestTestfile.cmake").write_text(
            f"include([[{CHECKOUT}/cmake/ListSuites.cmake]])\n"
            f"ballast_list_suites([[{self.program}]] room/ -*Cuda.* room TIMEOUT 60)\n"
        )

    def build(self, *suites):
        self.program.write_text(PROGRAM % " ".join(suites))
        self.program.chmod(0o755)

    def ctest(self, *arguments):
        return subprocess.run(["ctest", *arguments], cwd=self.folder, capture_output=True, text=True, timeout=60)

    def listed(self, *arguments):
        return re.findall(r"Test +#\d+: (\S+)", self.ctest("-N", *arguments).stdout)

    def test_each_is_a_test_and_those_that_are_long_can_be_left_out(self):
        self.build("Plain", "Each/Plain", "Typed/0", "AttackLong", "Each/AttackLong", "TypedLong/0", "Longer")
        short, long = ["room/Plain", "room/Each/Plain", "room/Typed/0", "room/Longer"], ["room/AttackLong", "room/Each/AttackLong", "room/TypedLong/0"]
        self.assertCountEqual(self.listed(), short + long)
        self.assertCountEqual(self.listed("-L", "^room$"), short + long)
        self.assertCountEqual(self.listed("-L", "^long$"), long)
        self.assertCountEqual(self.listed("-LE", "^long$"), short)

    def test_the_one_that_fails_is_named(self):
        self.build("Plain", "Broken")
        result = self.ctest("--output-on-failure")
        self.assertNotEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"room/Broken +\(Failed\)")
        self.assertIn("ran --gtest_filter=Broken.*", result.stdout)
        self.assertRegex(result.stdout, r"room/Plain \.+ +Passed")

    def test_a_new_suite_is_found_and_a_program_that_is_not_built_fails(self):
        self.assertEqual(self.listed(), ["room/NOT_BUILT"])
        self.assertNotEqual(self.ctest().returncode, 0)
        self.build("Plain")
        self.assertEqual(self.listed(), ["room/Plain"])
        self.build("Plain", "More")
        self.assertCountEqual(self.listed(), ["room/Plain", "room/More"])
