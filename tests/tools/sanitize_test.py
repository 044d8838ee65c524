# SPDX-License-Identifier: Apache-2.0
"""tools/sanitize counts tests and reports, a room after the other, and runs no clean room twice."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

CHECKOUT = Path(os.environ["BALLAST_SOURCE"])
PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(small LANGUAGES CXX)
enable_testing()
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
foreach(room sound torn lost)
  add_executable(${room}_tests tests/${room}/${room}_test.cpp)
  target_compile_options(${room}_tests PRIVATE -fsanitize=address,undefined)
  target_link_options(${room}_tests PRIVATE -fsanitize=address,undefined)
  add_test(${room}/Suite ${room}_tests)
  set_tests_properties(${room}/Suite PROPERTIES LABELS ${room})
endforeach()
"""
# As googletest ends. The second room adds to the largest number, which ends no process by itself.
TESTS = '#include <cstdio>\nint main(int count, char**) { int sum = %s; std::puts("[====] 3 tests from 1 test suite ran. (0 ms total)"); return sum == 0; }'
# The third starts a program that reads what it has freed, and does not listen to it.
LOST = '#include <cstdio>\n#include <cstdlib>\nchar* kept; int main(int count, char** words) { if (count > 1) { kept = new char[9]; delete[] kept; return kept[count]; } ' \
       'std::puts("[====] 1 test from 1 test suite ran. (0 ms total)"); char call[999]; std::snprintf(call, 999, "%s x 2>/dev/null", *words); ' \
       'return std::system(call) == 0; }'
TABLE = "ballast_room(sound)\nballast_room(torn DEPENDS sound)\nballast_room(untested)\nballast_room(lost)\n"


class Sanitize(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="ballast-test-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        for name in ("tools", "ballast", "tests/sound", "tests/torn", "tests/lost"):
            (cls.folder / name).mkdir(parents=True)
        for name in ("tools/sanitize", "tools/build", "CMakePresets.json"):
            shutil.copy(CHECKOUT / name, cls.folder / name)
        (cls.folder / "CMakeLists.txt").write_text(PROJECT)
        (cls.folder / "ballast/CMakeLists.txt").write_text(TABLE)
        (cls.folder / "tests/sound/sound_test.cpp").write_text(TESTS % "count")
        (cls.folder / "tests/torn/torn_test.cpp").write_text(TESTS % "2147483647 + count")
        (cls.folder / "tests/lost/lost_test.cpp").write_text(LOST)
        (cls.folder / "tools/none.supp").touch()

    def sanitize(self, *arguments):
        return subprocess.run([self.folder / "tools/sanitize", *arguments], capture_output=True, text=True, timeout=120)

    def test_reports_are_counted_and_clean_rooms_are_kept(self):
        result = self.sanitize("asan")
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertIn("signed integer overflow", result.stdout)
        rows = [line.split()[:4] for line in result.stdout.splitlines()[1:]]
        self.assertEqual(rows[0], ["sound", "3", "0", "0"])
        self.assertEqual(rows[1][0], "torn")
        self.assertEqual(rows[1][2:], ["1", "1"], result.stdout)
        lost = next(row for row in rows if row and row[0] == "lost")
        self.assertEqual(lost[1:], ["1", "0", "1"], result.stdout)
        self.assertIn("heap-use-after-free", (self.folder / "build/asan/sanitize/lost.log.reports").read_text())
        log = self.folder / "build/asan/sanitize/sound.log"
        self.assertIn("3 tests", log.read_text())

        log.write_text("an old one")
        self.assertEqual(self.sanitize("asan", "sound").returncode, 0)
        self.assertEqual(log.read_text(), "an old one")
        self.assertEqual(self.sanitize("asan", "sound", "--again").returncode, 0)
        self.assertNotEqual(log.read_text(), "an old one")

    def test_what_is_not_there_is_refused(self):
        for words, says in (((), "which preset"), (("release",), "asan or tsan"), (("asan", "untested"), "sound torn lost"), (("--all",), "--help")):
            result = self.sanitize(*words)
            self.assertEqual(result.returncode, 2, words)
            self.assertIn(says, result.stderr)


if __name__ == "__main__":
    unittest.main()
