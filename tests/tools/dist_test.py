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

import pyarrow
import pyarrow.parquet
from elf_files import binaries, faults_of_run_paths, run_among_planted_libraries, run_path

BUILD = Path(os.environ["BALLAST_BUILD"])
CHECKOUT = Path(os.environ["BALLAST_SOURCE"])


def libtorch_of_build():
    cache = (BUILD / "CMakeCache.txt").read_text()
    return re.search("^Libtorch_FOUND_FOLDER:INTERNAL=(.*)$", cache, re.MULTILINE).group(1)


EVERY_MACHINES = re.compile(r"/(ld-linux|lib(c|m|dl|rt|pthread|util|stdc\+\+|gcc_s|gomp))[-.\w]*\.so")


def pack(place, *options):
    """Packed into `place`, and moved: where it is then."""
    subprocess.run([CHECKOUT / "tools/dist", *options, BUILD, place / "packed"], check=True, capture_output=True)
    (packed,) = (path for path in (place / "packed").iterdir() if path.is_dir())
    return Path(shutil.move(packed, place / "elsewhere"))


def setUpModule():
    """Packed once, for all."""
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    Packed.folder = pack(Path(folder.name).resolve())


class Packed(unittest.TestCase):
    def launch(self, *command, cwd=None, **environment):
        return subprocess.run(
            [self.folder / command[0], *command[1:]],
            env={"PATH": "/usr/bin:/bin", **environment},
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def programs_without_python(self):
        """A folder with what the launcher calls, for the PATH."""
        programs = self.folder / "programs-without-python"
        if not programs.exists():
            programs.mkdir()
            for name in ("bash", "dirname", "realpath", "sed", "basename"):
                (programs / name).symlink_to(shutil.which(name))
        return str(programs)


class Dist(Packed):
    def test_it_runs_with_its_own_libraries(self):
        result = self.launch("ballast", "doctor", "--json", LIBTORCH=libtorch_of_build())
        self.assertEqual(result.returncode, 0, result.stderr)
        machine = json.loads(result.stdout)
        self.assertEqual(Path(machine["cuda"]["plugin"]["path"]).parent, self.folder / "lib")
        self.assertEqual(Path(machine["libtorch"]["path"]).parent, Path(libtorch_of_build()).resolve() / "lib")

    def test_every_library_is_its_own_or_every_machines(self):
        libtorch = str(Path(libtorch_of_build()).resolve().parent)
        environment = {**os.environ, "LD_LIBRARY_PATH": libtorch_of_build() + "/lib"}
        for program in [self.folder / "bin/ballast", *(self.folder / "bin/tests").iterdir()]:
            output = subprocess.run(["ldd", program], env=environment, capture_output=True, text=True).stdout
            for name, path in re.findall(r"^\s*(\S+) => (\S+)", output, re.MULTILINE):
                if "cu" in name:
                    continue  # CUDA's libraries come with libtorch, by its own run path
                known = str(Path(path).resolve()).startswith((str(self.folder), libtorch)) or EVERY_MACHINES.search(path)
                self.assertTrue(known, f"{program.name} takes {name} from {path}")

    def test_run_paths_are_relative_to_each_file(self):
        packed = list(binaries(self.folder))
        self.assertLessEqual({"ballast", "libballast_kernels.so", "kernels_tests", "libzstd.so.1"}, {path.name for path in packed})
        self.assertEqual(faults_of_run_paths(packed), [])
        for path in packed:
            for element in run_path(path):
                self.assertTrue(element.startswith("$ORIGIN"), f"{path}: {element}")

    def test_a_library_in_the_current_folder_is_not_run(self):
        result = run_among_planted_libraries(self.folder / "bin/ballast", LD_LIBRARY_PATH=libtorch_of_build() + "/lib")
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_a_torch_in_the_current_folder_is_not_taken(self):
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder, "torch/lib/libtorch_cpu.so")
            library.parent.mkdir(parents=True)
            library.touch()
            Path(folder, "torch/__init__.py").touch()
            result = self.launch("ballast", "--help", cwd=folder)
            self.assertNotIn(folder, result.stderr)
            # One that is named may be there, and is found from everywhere.
            Path(folder, "given").symlink_to(libtorch_of_build())
            result = self.launch("ballast", "doctor", "--json", cwd=folder, LIBTORCH="given")
            self.assertEqual(result.returncode, 0, result.stderr)

    def test_a_test_program_runs(self):
        result = self.launch("run", str(self.folder / "bin/tests/experts_tests"), "--gtest_filter=Dispatch*", LIBTORCH=libtorch_of_build())
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertNotIn("Running 0 tests", result.stdout)

    def test_programs_without_a_test_for_a_gpu_stay_at_home(self):
        packed = {path.name for path in (self.folder / "bin/tests").iterdir()}
        self.assertLessEqual({"kernels_tests", "experts_tests", "training_tests", "workers_tests"}, packed)
        self.assertNotIn("text_tests", packed)

    def test_parquet_is_read_with_the_libraries_that_were_packed(self):
        with tempfile.TemporaryDirectory() as folder:
            pyarrow.parquet.write_table(pyarrow.table({"text": ["some words"] * 10}), Path(folder, "a.parquet"))
            result = self.launch("ballast", "prepare", "a.parquet", "--out", "out", cwd=folder, LIBTORCH=libtorch_of_build(),
                                 LD_DEBUG="files")
            self.assertEqual(result.returncode, 0, result.stderr)
            found = set(re.findall(r"calling init: (\S*/lib(?:arrow|parquet|ballast_parquet)\.\S*)", result.stderr))
            self.assertEqual({Path(path).parent.resolve() for path in found}, {self.folder / "lib"})
            self.assertEqual(len(found), 3)

    def test_bench_finds_its_twin(self):
        result = self.launch("ballast", "bench", "step", "--size", "32,16,1,2,8,4", "--device", "cpu", "--python", "/bin/false",
                             LIBTORCH=libtorch_of_build())
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("/bin/false ended unexpectedly", result.stderr)

    def test_a_libtorch_that_is_not_there_is_named(self):
        result = self.launch("ballast", "doctor", LIBTORCH="/nowhere")
        self.assertEqual(result.returncode, 2, result.stdout)
        self.assertIn("/nowhere", result.stderr)

    def test_without_any_libtorch_it_says_what_to_do(self):
        result = self.launch("ballast", "doctor", PATH=self.programs_without_python())
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


class Inside(Packed):
    """With libtorch inside, for the CPU."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pack(Path(folder.name).resolve(), "--inside", "libtorch", "--no-archive")

    def test_it_trains_where_there_is_no_libtorch_and_no_python(self):
        path = self.programs_without_python()
        machine = json.loads(self.launch("ballast", "doctor", "--json", PATH=path).stdout)
        self.assertEqual(Path(machine["libtorch"]["path"]), self.folder / "libtorch/lib/libtorch_cpu.so")
        result = self.launch("ballast", "train", "--config", "configs/first_run.toml", "--run", "trained", "--training.steps", "2",
                             "--data.builtin_bytes", "200000", cwd=self.folder, PATH=path)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue((self.folder / "trained/metrics.jsonl").exists())

    def test_nothing_is_taken_from_this_machine(self):
        environment = {"LD_LIBRARY_PATH": str(self.folder / "libtorch/lib")}
        for file in binaries(self.folder):
            output = subprocess.run(["ldd", file], env=environment, capture_output=True, text=True).stdout
            for name, path in re.findall(r"^\s*(\S+) => (\S+)", output, re.MULTILINE):
                own = path.startswith(str(self.folder)) or (EVERY_MACHINES.search(path) and "gomp" not in name)
                mpi = file.name == "libballast_mpi.so"  # which needs the mpirun there, and is loaded for it alone
                self.assertTrue(own or mpi, f"{file.name} takes {name} from {path}")

    def test_nothing_is_there_for_a_gpu(self):
        names = {path.name for path in self.folder.rglob("*")}
        self.assertFalse(names & {"libballast_cuda.so", "libtorch_cuda.so", "gpu_check", "tests"})

    def test_a_libtorch_that_is_named_comes_first(self):
        result = self.launch("ballast", "doctor", "--json", LIBTORCH=libtorch_of_build())
        self.assertEqual(Path(json.loads(result.stdout)["libtorch"]["path"]).parent, Path(libtorch_of_build()).resolve() / "lib")

    def test_what_cannot_be_inside_is_refused(self):
        for options in (["--inside", "python"], ["--insid"]):
            result = subprocess.run([CHECKOUT / "tools/dist", *options], capture_output=True, text=True)
            self.assertEqual(result.returncode, 2)
            self.assertIn(options[-1], result.stderr)


class GpuCheck(Packed):
    """What it does where no GPU can be seen."""

    def check(self, *arguments, path="/usr/bin:/bin"):
        return self.launch("gpu_check", *arguments, LIBTORCH=libtorch_of_build(), CUDA_VISIBLE_DEVICES="", PATH=path)

    def test_help_names_every_option(self):
        result = self.check("--help")
        self.assertEqual(result.returncode, 0, result.stderr)
        for option in ["--tests", "--sanitize", "--time"]:
            self.assertIn(option, result.stdout)
        self.assertEqual(self.check("--tsets").returncode, 2)

    def test_tests_of_a_pattern(self):
        result = self.check("--tests", "Dispatch*")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertRegex(result.stdout, r"gpu_check: [1-9]\d* tests passed")
        result = self.check("--tests", "Nothing.*")
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("no test was found", result.stdout)

    def test_every_measurement_is_tried_and_those_that_fail_are_named(self):
        result = self.check("--time", str(self.folder / "times"))
        self.assertEqual(result.returncode, 1, result.stdout)
        for name in ["kernels", "assignment", "layer", "step_base", "step_124m", "step_1.3b"]:
            self.assertIn(f"gpu_check: FAILED: {name}\n", result.stdout)
        self.assertEqual(list((self.folder / "times").iterdir()), [])

    def test_what_the_sanitizer_finds_is_a_failure(self):
        programs = self.folder / "sanitizers"
        programs.mkdir()
        for status in [0, 9]:
            sanitizer = programs / "compute-sanitizer"
            sanitizer.write_text(f'#!/bin/sh\necho "sanitized: $PYTORCH_NO_CUDA_MEMORY_CACHING $*"\nexit {status}\n')
            sanitizer.chmod(0o755)
            result = self.check("--sanitize", path=f"{programs}:/usr/bin:/bin")
            self.assertEqual(result.returncode, 1 if status else 0, result.stdout)
            for room in ["kernels", "experts"]:
                self.assertRegex(result.stdout, f"sanitized: 1 --tool memcheck --error-exitcode [1-9].*/{room}_tests ")
                self.assertEqual(f"FAILED: {room}_tests" in result.stdout, status != 0)
