# SPDX-License-Identifier: Apache-2.0
"""What `make install` makes still runs after it was moved, and other people's projects build against it."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from elf_files import binaries, dynamic, faults_of_run_paths, output_of, run_path

BUILD = Path(os.environ["BALLAST_BUILD"])
CHECKOUT = Path(os.environ["BALLAST_SOURCE"])
# How projects are compiled here: no optimiser, nothing for a debugger.
QUICKLY = ("-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=")
# As a newcomer's shell has it: nothing that names a libtorch or a place of ours.
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nowhere"}


def cached(name):
    return re.search(f"^{name}:INTERNAL=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE).group(1)


def run(*command, **options):
    environment = {**ENVIRONMENT, **options.pop("environment", {})}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, **options)


def setUpModule():
    """Installed once, for all, and moved."""
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    Installed.top = Path(folder.name).resolve()
    Installed.prefix = Installed.top / "moved/to here"
    output_of("cmake", "--install", BUILD, "--strip", "--prefix", Installed.top / "first")
    Installed.prefix.parent.mkdir()
    shutil.move(Installed.top / "first", Installed.prefix)


class Installed(unittest.TestCase):
    def succeed(self, *command, **options):
        result = run(*command, **options)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout


class Prefix(Installed):
    def ballast(self, *arguments, **options):
        return self.succeed(self.prefix / "bin/ballast", *arguments, **options)

    def test_the_program_runs_with_what_is_in_its_prefix(self):
        machine = json.loads(self.ballast("doctor", "--json"))
        self.assertEqual(Path(machine["cuda"]["plugin"]["path"]).parent, self.prefix / "lib")
        libtorch = Path(cached("Libtorch_FOUND_FOLDER")).resolve()
        self.assertEqual(Path(machine["libtorch"]["path"]).resolve().parent, libtorch / "lib")
        loaded = output_of("ldd", self.prefix / "bin/ballast", env=ENVIRONMENT)
        ours = re.findall(r"libballast_\S+ => (.*) \(", loaded)
        self.assertEqual({Path(path).resolve().parent for path in ours}, {self.prefix / "lib"})

    def test_it_trains_by_a_link_on_the_path(self):
        bin, work = self.top / "bin", self.top / "work"
        bin.mkdir()
        work.mkdir()
        (bin / "ballast").symlink_to(self.prefix / "bin/ballast")
        self.succeed("ballast", "train", "--config", self.prefix / "share/ballast/configs/first_run.toml", "--run", "run",
                     "--data.builtin_bytes", "200000", "--training.steps", "2",
                     cwd=work, environment={"PATH": f"{bin}:/usr/bin:/bin"})
        rows = [json.loads(line) for line in (work / "run/metrics.jsonl").read_text().splitlines()]
        self.assertEqual(max(row["step"] for row in rows if "step" in row), 2)

    def test_benchmarks_are_there_with_their_twins(self):
        self.assertIn("assignment", self.ballast("bench", "--help"))
        result = run(self.prefix / "bin/ballast", "bench", "step", "--size", "32,16,1,2,8,4", "--device", "cpu",
                     "--python", "/bin/false")
        self.assertIn("/bin/false ended unexpectedly", result.stderr)

    def test_run_paths_name_the_prefix_first_then_what_it_was_built_with(self):
        installed = list(binaries(self.prefix))
        self.assertLessEqual({"ballast", "ballast-bench", "libballast_kernels.so", "libballast_comm.so", "libballast_experts.so",
                              "libballast_loopback.so", "libballast_mpi.so"}, {path.name for path in installed})
        self.assertEqual(faults_of_run_paths(installed), [])
        outside = {str(Path(cached("Libtorch_FOUND_FOLDER")) / "lib"), cached("Arrow_FOUND_FOLDER")}
        for path in installed:
            elements = run_path(path)
            absolute = [element for element in elements if not element.startswith("$ORIGIN")]
            self.assertTrue(elements[0].startswith("$ORIGIN"), f"{path}: {elements}")
            self.assertEqual(elements[len(elements) - len(absolute) :], absolute, path)
            self.assertLessEqual({element for element in absolute if not element.startswith("/usr/lib/")}, outside, path)  # MPI's

    def test_no_installed_text_names_the_folder_it_was_built_in(self):
        for path in [*(self.prefix / "lib/cmake").rglob("*"), *(self.prefix / "lib/pkgconfig").rglob("*")]:
            if path.is_file():
                text = path.read_text().replace(cached("Libtorch_FOUND_FOLDER"), "")
                for place in (str(BUILD), str(CHECKOUT), str(self.top)):
                    self.assertNotIn(place, text, path)

    def test_a_package_is_staged_by_destdir(self):
        stage = self.top / "stage"
        self.succeed("cmake", "--install", BUILD, "--component", "development", "--prefix", "/opt/ballast",
                     environment={"DESTDIR": str(stage)})
        self.assertTrue((stage / "opt/ballast/include/ballast/assignment/solver.h").exists())
        self.assertEqual([path.name for path in stage.iterdir()], ["opt"])


class OtherProjects(Installed):
    """Each is made outside of the checkout, and knows the moved prefix alone."""

    def configure(self, source, build, *options):
        return run("cmake", "-S", source, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={self.prefix}", *options)

    def build(self, source, *options, build=None):
        build = build or source / "build"
        result = self.configure(source, build, *options)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.succeed("cmake", "--build", build, environment={"HOME": str(Path.home())})  # where ccache keeps things
        return build

    def example(self, name):
        return Path(shutil.copytree(CHECKOUT / "examples" / name, self.top / "theirs" / f"{self._testMethodName}_{name}"))

    def project(self, *lines):
        folder = self.top / "theirs" / self._testMethodName
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "CMakeLists.txt").write_text("\n".join(["cmake_minimum_required(VERSION 3.25)", *lines, ""]))
        return folder

    def check_assign(self, program):
        self.assertRegex(self.succeed(program), r"token 3: expert 1\n(.*\n)*sum 20.5, at most 20.5\n.*\nrefused: .*0 experts")
        self.assertFalse([name for name in dynamic(program, "NEEDED") if "torch" in name or "c10" in name])

    def test_the_assignment_by_find_package(self):
        build = self.build(self.example("assignment"))
        self.check_assign(build / "assign")
        self.assertNotIn("torch", (build / "CMakeCache.txt").read_text().lower())

    def test_the_assignment_by_pkg_config(self):
        search = {"PKG_CONFIG_PATH": str(self.prefix / "lib/pkgconfig")}
        flags = self.succeed("sh", "-c", 'eval set -- "$(pkg-config --cflags --libs ballast-assignment)"; printf "%s\\n" "$@"',
                             environment=search)
        program = self.top / "by_pkg_config"
        self.succeed("g++", CHECKOUT / "examples/assignment/assign.cpp", "-o", program, *flags.splitlines())
        self.check_assign(program)

    def test_the_assignment_by_add_subdirectory(self):
        source = self.project(
            "project(theirs LANGUAGES CXX)",
            "set(BALLAST_PART assignment)",
            f"add_subdirectory([[{CHECKOUT}]] ballast)",
            # Nothing of ours is theirs.
            "get_directory_property(options COMPILE_OPTIONS)",
            "get_directory_property(links LINK_OPTIONS)",
            "get_directory_property(tests TESTS)",
            "set(leaked ${options} ${links} ${tests} ${CMAKE_CXX_STANDARD} ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})",
            "if(leaked OR TARGET Libtorch::cpu)",
            '  message(FATAL_ERROR "it leaks")',
            "endif()",
            f"add_executable(assign [[{CHECKOUT}/examples/assignment/assign.cpp]])",
            "target_link_libraries(assign PRIVATE Ballast::assignment)",
        )
        # Beside our own build: ccache tells files by their place relative to it, and has them the next time.
        with tempfile.TemporaryDirectory(dir=BUILD.parent) as build:
            self.build(source, *QUICKLY, build=Path(build))
            self.check_assign(Path(build, "assign"))

    def test_a_layer_in_a_model_of_their_own(self):
        build = self.build(self.example("layer"), *QUICKLY)
        said = self.succeed(build / "layer", environment={"OMP_NUM_THREADS": "1"})  # threads that spin would take others' cores
        losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", said)]
        self.assertEqual(losses, sorted(losses, reverse=True))
        self.assertLess(losses[-1], 0.1 * losses[0])
        self.assertIn("right: 128 of 128", said)

    def test_every_header_compiles_from_the_prefix_alone(self):
        include, libtorch = self.prefix / "include", Path(cached("Libtorch_FOUND_FOLDER")) / "include"
        headers = {str(path.relative_to(include)) for path in include.rglob("*.h")}
        plain = {header for header in headers if header.startswith(("ballast/system/", "ballast/assignment/"))}
        self.assertLessEqual({"ballast/assignment/solver.h", "ballast/system/error.h", "ballast/experts/expert_layer.h"}, headers)
        torch = ["-idirafter", libtorch, "-idirafter", libtorch / "torch/csrc/api/include"]
        for chosen, folders in ((plain, []), (headers, torch)):
            text = "".join(f"#include <{header}>\n" for header in sorted(chosen))
            self.succeed("g++", "-std=c++20", "-fsyntax-only", "-I", include, *folders, "-x", "c++", "-", input=text)

    def refusal(self, wanted, *options):
        source = self.project("project(theirs LANGUAGES NONE)", f"find_package(Ballast {wanted})")
        libraries = output_of("g++", "-print-multiarch").strip()  # where CMake looks for packages, once it knows a compiler
        result = self.configure(source, source / "build", f"-DCMAKE_LIBRARY_ARCHITECTURE={libraries}", *options)
        self.assertNotEqual(result.returncode, 0, result.stdout)
        return " ".join(result.stderr.split())

    def test_what_is_not_there_is_refused_by_name(self):
        self.assertIn("no component optimizer; it has: assignment, moe", self.refusal("REQUIRED COMPONENTS assignment optimizer"))
        self.assertIn('requested version "0.2"', self.refusal("0.2 REQUIRED"))
        self.assertIn("/nowhere", self.refusal("REQUIRED COMPONENTS moe", "-DLIBTORCH=/nowhere"))
        header = self.top / "other_libtorch/include/torch/headeronly/version.h"
        header.parent.mkdir(parents=True)
        header.write_text("#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 7\n#define TORCH_VERSION_PATCH 1\n")
        refused = self.refusal("REQUIRED COMPONENTS moe", f"-DLIBTORCH={self.top}/other_libtorch")
        self.assertIn(f"is version 2.7.1; Ballast was built with {cached('Libtorch_FOUND_VERSION')}", refused)
