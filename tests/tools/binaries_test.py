# SPDX-License-Identifier: Apache-2.0
"""What holds for every program and library that is built: where it looks for libraries.
tests/tools/dist_test.py looks at those that are packed."""

import os
import tempfile
import unittest
from pathlib import Path

from elf_files import binaries, faults_of_run_path, faults_of_run_paths, run_among_planted_libraries

BUILD = Path(os.environ["BALLAST_BUILD"]).resolve()


class RunPaths(unittest.TestCase):
    def test_of_all_that_is_built(self):
        found = list(binaries(BUILD))
        self.assertLessEqual({"ballast", "libballast_kernels.so", "libballast_comm.so", "kernels_tests", "text_tests",
                              "workers_tests", "example_assign"}, {path.name for path in found})
        self.assertEqual(faults_of_run_paths(found), [])

    def test_each_fault_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            program, open_to_all = Path(folder, "program"), Path(folder, "open")
            open_to_all.mkdir()
            open_to_all.chmod(0o777)
            for element in ("", "lib", "./lib", "$ORIGINAL", str(open_to_all), f"{open_to_all}/lib", "$ORIGIN/open",
                            tempfile.gettempdir() + "/not-there"):
                self.assertEqual(len(list(faults_of_run_path(program, [element]))), 1, element)
            self.assertEqual(list(faults_of_run_path(program, ["$ORIGIN", "$ORIGIN/../lib/..", "/usr/lib", folder])), [])

    def test_a_library_in_the_current_folder_is_not_run(self):
        for name in ("ballast", "text_tests", "example_assign", "libballast_kernels.so", "libballast_comm.so"):
            with self.subTest(name=name):
                result = run_among_planted_libraries(BUILD / name)
                self.assertEqual((result.returncode, result.stderr), (0, ""))
