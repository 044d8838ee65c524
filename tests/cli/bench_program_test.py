# SPDX-License-Identifier: Apache-2.0
"""`ballast bench` is a program of its own, ballast-bench: how it is found, and what becomes of what it says."""

import shutil
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

from in_folder import BALLAST, BUILD, ballast


class BenchProgram(unittest.TestCase):
    def test_help_lists_it_and_it_helps_itself(self):
        self.assertRegex(ballast("--help").stdout, r"\n  bench +Measure speed")
        for words in [["bench", "--help"], ["bench", "-h"]]:
            result = ballast(*words)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertIn("ballast bench [OPTIONS] SUBCOMMAND", result.stdout)
            for name in ["step", "layer", "kernels", "tokenizer", "assignment"]:
                self.assertRegex(result.stdout, rf"\n  {name} ")

    def test_mistakes_name_the_whole_command(self):
        for words, says in [([], "`ballast bench --help`"), (["step", "--sise", "1"], "`ballast bench step --help`")]:
            result = ballast("bench", *words)
            self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
            self.assertIn(says, result.stderr)
        self.assertIn("nearest is bench", ballast("bnech").stderr)

    def test_a_signal_ends_it_under_the_same_number(self):
        words = ["bench", "kernels", "--device", "cpu", "--rounds", "1000000"]
        with subprocess.Popen([BALLAST, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            while "ballast-bench" not in Path(f"/proc/{process.pid}/cmdline").read_text():
                self.assertIsNone(process.poll())
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(timeout=60), -signal.SIGTERM)

    def test_where_it_is_missing_its_place_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder).resolve()
            shutil.copy2(BALLAST, place)
            for library in BUILD.glob("*.so"):
                (place / library.name).symlink_to(library)
            result = subprocess.run([place / "ballast", "bench", "step"], capture_output=True, text=True, timeout=60)
            self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
            self.assertIn(f"{place}/ballast-bench", result.stderr)


if __name__ == "__main__":
    unittest.main()
