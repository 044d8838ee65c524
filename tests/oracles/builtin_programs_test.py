# SPDX-License-Identifier: Apache-2.0
"""The programs of the built-in corpus print in Python what their comments say."""
import contextlib
import io
import os
import pathlib
import subprocess
import unittest

BUILD = pathlib.Path(os.environ["BALLAST_BUILD"])


class BuiltinProgramsTest(unittest.TestCase):
    def test_prints_what_the_comments_say(self):
        subprocess.run([BUILD / "text_tests", "--gtest_filter=CorpusTruth.WritesProgramsForPython"], check=True,
                       stdout=subprocess.DEVNULL)
        programs = (BUILD / "oracle" / "builtin_programs.txt").read_text().split("<|endoftext|>\n")[:-1]
        self.assertGreater(len(programs), 150)
        for program in programs:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(program, {})
            said = [line.split("  # ")[1] for line in program.splitlines() if line.startswith("print(")]
            self.assertEqual(printed.getvalue().splitlines(), said, program)


if __name__ == "__main__":
    unittest.main()
