# SPDX-License-Identifier: Apache-2.0
"""A folder made by `make dist` runs after it was moved, and needs nothing of the machine that built it."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

BUILD = Path(os.environ["BALLAST_BUILD"])
CHECKOUT = Path(os.environ["BALLAST_SOURCE"])


def libtorch_of_build():
    cache = (BUILD / "CMakeCache.txt").read_text()
    return re.search("^Libtorch_FOUND_FOLDER:INTERNAL=(.*)$", cache, re.MULTILINE).group(1)


class Dist(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        top = Path(folder.name).resolve()
        subprocess.run([CHECKOUT / "tools/dist", BUILD, top / "packed"], check=True, capture_output=True)
        (packed,) = (path for path in (top / "packed").iterdir() if path.is_dir())
        cls.folder = top / "elsewhere"
        shutil.move(packed, cls.folder)

    def launch(self, *command, **environment):
        return subprocess.run(
            [self.folder / command[0], *command[1:]],
            env={"PATH": "/usr/bin:/bin", **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )

    def test_it_runs_with_its_own_libraries(self):
        result = self.launch("ballast", "doctor", "--json", LIBTORCH=libtorch_of_build())
        self.assertEqual(result.returncode, 0, result.stderr)
        machine = json.loads(result.stdout)
        self.assertEqual(Path(machine["cuda"]["plugin"]["path"]).parent, self.folder / "lib")
        self.assertEqual(Path(machine["libtorch"]["path"]).parent, Path(libtorch_of_build()).resolve() / "lib")

    def test_every_library_is_its_own_or_every_machines(self):
        libtorch = str(Path(libtorch_of_build()).resolve().parent)
        environment = {**os.environ, "LD_LIBRARY_PATH": libtorch_of_build() + "/lib"}
        every_machines = re.compile(r"/(ld-linux|lib(c|m|dl|rt|pthread|util|stdc\+\+|gcc_s|gomp))[-.\w]*\.so")
        for program in [self.folder / "bin/ballast", *(self.folder / "bin/tests").iterdir()]:
            output = subprocess.run(["ldd", program], env=environment, capture_output=True, text=True).stdout
            for name, path in re.findall(r"^\s*(\S+) => (\S+)", output, re.MULTILINE):
                if "cu" in name:
                    continue  # CUDA's libraries come with libtorch, by its own run path
                known = path.startswith((str(self.folder), libtorch)) or every_machines.search(path)
                self.assertTrue(known, f"{program.name} takes {name} from {path}")

    def test_a_test_program_runs(self):
        result = self.launch("run", str(self.folder / "bin/tests/system_tests"), LIBTORCH=libtorch_of_build())
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_a_libtorch_that_is_not_there_is_named(self):
        result = self.launch("ballast", "doctor", LIBTORCH="/nowhere")
        self.assertEqual(result.returncode, 2, result.stdout)
        self.assertIn("/nowhere", result.stderr)

    def test_without_any_libtorch_it_says_what_to_do(self):
        programs = self.folder / "programs-without-python"
        programs.mkdir()
        for name in ("bash", "dirname", "realpath", "sed", "basename"):
            (programs / name).symlink_to(shutil.which(name))
        result = self.launch("ballast", "doctor", PATH=str(programs))
        self.assertEqual(result.returncode, 2, result.stdout)
        self.assertIn("set LIBTORCH", result.stderr)

    def test_another_libtorch_is_refused(self):
        other = self.folder / "other-libtorch"
        (other / "lib").mkdir(parents=True)
        (other / "lib/libtorch_cpu.so").touch()
        (other / "version.py").write_text("__version__ = '2.7.1+cu128'\n")
        result = self.launch("ballast", "doctor", LIBTORCH=str(other))
        self.assertEqual(result.returncode, 2)
        self.assertIn("2.7.1", result.stderr)
