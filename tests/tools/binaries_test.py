# SPDX-License-Identifier: Apache-2.0
"""What holds for every program and library that is built: where it looks for libraries, and what it does
before main(). tests/tools/dist_test.py looks at those that are packed."""

import os
import re
import tempfile
import unittest
from pathlib import Path

from elf_files import binaries, dynamic, faults_of_run_path, faults_of_run_paths, output_of, run_among_planted_libraries

BUILD = Path(os.environ["BALLAST_BUILD"]).resolve()


class RunPaths(unittest.TestCase):
    def test_of_all_that_is_built(self):
        found = list(binaries(BUILD))
        self.assertLessEqual({"ballast", "libballast_kernels.so", "libballast_comm.so", "kernels_tests", "text_tests",
                              "workers_tests", "exact_digest"}, {path.name for path in found})
        self.assertEqual(faults_of_run_paths(found), [])

    def test_each_fault_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            program, open_to_all = Path(folder, "program"), Path(folder, "open")
            open_to_all.mkdir()
            open_to_all.chmod(0o777)
            for element in ("", "lib", "./lib", "$ORIGINAL", str(open_to_all), f"{open_to_all}/lib", "$ORIGIN/open",
                            tempfile.gettempdir() + "/not-there"):
                self.assertEqual(len(list(faults_of_run_path(program, [element]))), 1, element)
            self.assertEqual(list(faults_of_run_path(program, ["$ORIGIN", "$ORIGIN/lib/..", "/usr/lib", folder])), [])

    def test_a_library_in_the_current_folder_is_not_run(self):
        for name in ("ballast", "text_tests", "exact_digest"):
            with self.subTest(name=name):
                result = run_among_planted_libraries(BUILD / name)
                self.assertEqual((result.returncode, result.stderr), (0, ""))


class OnednnLimit(unittest.TestCase):
    """ballast/system/onednn_limit.h: what every binary with libtorch does before main()."""

    def test_every_binary_with_libtorch_holds_it(self):
        with_libtorch = [path for path in binaries(BUILD) if any(name.startswith("libtorch") for name in dynamic(path, "NEEDED"))]
        self.assertLessEqual({"ballast", "libballast_kernels.so", "libballast_comm.so", "kernels_tests", "comm_tests",
                              "worker_scenario", "training_workers_tests"}, {path.name for path in with_libtorch})
        for path in with_libtorch:
            needs = [path, *(BUILD / name for name in dynamic(path, "NEEDED") if name.startswith("libballast_"))]
            held = any(" ballast_limit_onednn\n" in output_of("nm", file) for file in needs)
            self.assertTrue(held, f"{path.name} would start oneDNN without a limit")

    def isa_of_onednn(self, *limit):
        environment = {k: v for k, v in os.environ.items() if k not in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")}
        said = output_of(BUILD / "onednn_isa", *limit, env={**environment, "ONEDNN_VERBOSE": "1"})
        return re.search(r"^onednn_verbose,.*info,cpu,isa:(.*)$", said, re.MULTILINE).group(1)

    def test_a_constructor_is_early_enough(self):
        self.assertEqual(self.isa_of_onednn("SSE41"), "Intel SSE4.1")
        self.assertNotEqual(self.isa_of_onednn(), "Intel SSE4.1")
