# SPDX-License-Identifier: Apache-2.0
"""cmake/Version.cmake finds the commit of a checkout, and does without one."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

CHECKOUT = Path(os.environ["BALLAST_SOURCE"])


def git(folder, *arguments):
    identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    command = ["git", *identity, *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


class Version(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = Path(folder.name).resolve()
        self.source = self.top / "ballast-0.1.0"
        (self.source / "ballast/system").mkdir(parents=True)
        shutil.copy(CHECKOUT / "ballast/system/version.cpp.in", self.source / "ballast/system")

    def generate(self):
        """Runs the script as the build does; the file it wrote."""
        output = self.top / "version.cpp"
        subprocess.run(
            ["cmake", f"-DSOURCE={self.source}", f"-DOUTPUT={output}", "-DBALLAST_VERSION=0.1.0",
             "-P", CHECKOUT / "cmake/Version.cmake"],
            check=True,
        )
        return output

    def commit(self):
        return re.search('commit = "(.*)"', self.generate().read_text()).group(1)

    def test_a_checkout_gives_its_commit_and_says_when_files_differ(self):
        git(self.source, "init", "-q")
        git(self.source, "add", ".")
        git(self.source, "commit", "-qm", "first")
        short = git(self.source, "rev-parse", "--short", "HEAD")
        self.assertEqual(self.commit(), short)
        with open(self.source / "ballast/system/version.cpp.in", "a") as file:
            file.write("\n")
        self.assertEqual(self.commit(), short + "-dirty")

    def test_a_tarball_has_no_commit(self):
        self.assertEqual(self.commit(), "")

    def test_a_tarball_inside_another_repository_has_no_commit(self):
        git(self.top, "init", "-q")
        git(self.top, "commit", "-q", "--allow-empty", "-m", "someone else's")
        self.assertEqual(self.commit(), "")

    def test_a_second_run_leaves_the_file_alone(self):
        before = self.generate().stat().st_mtime_ns
        self.assertEqual(self.generate().stat().st_mtime_ns, before)
