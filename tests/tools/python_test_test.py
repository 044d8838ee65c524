# SPDX-License-Identifier: Apache-2.0
"""tools/python_test passes only where tests ran and passed."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

CHECKOUT = Path(os.environ["BALLAST_SOURCE"])
CASE = "import unittest\nclass Case(unittest.TestCase):\n  def test(self): self.assertTrue({})\n"


class PythonTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        (self.root / "tools").mkdir()
        shutil.copy(CHECKOUT / "tools/python_test", self.root / "tools")

    def run_test(self, text):
        file = self.root / "case_test.py"
        file.write_text(text)
        return subprocess.run([self.root / "tools/python_test", file], capture_output=True, text=True)

    def test_fails_without_the_environment_and_says_what_to_do(self):
        result = self.run_test(CASE.format("True"))
        self.assertEqual(result.returncode, 2)
        self.assertIn("run tools/setup --tests", result.stderr)

    def test_passes_and_fails_with_the_tests_in_the_file(self):
        (self.root / ".deps").symlink_to(CHECKOUT / ".deps")
        self.assertEqual(self.run_test(CASE.format("True")).returncode, 0)
        self.assertEqual(self.run_test(CASE.format("False")).returncode, 1)
        self.assertEqual(self.run_test("import no_such_module\n").returncode, 1)

    def test_a_file_without_tests_fails(self):
        (self.root / ".deps").symlink_to(CHECKOUT / ".deps")
        result = self.run_test("print('nothing here')\n")
        self.assertEqual(result.returncode, 1)
        self.assertIn("holds no tests", result.stderr)
