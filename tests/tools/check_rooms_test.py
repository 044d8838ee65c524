# SPDX-License-Identifier: Apache-2.0
"""tools/check_rooms.py finds each kind of fault, and none in this checkout."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CHECKOUT = Path(os.environ["BALLAST_SOURCE"])
sys.path.insert(0, str(CHECKOUT / "tools"))
import check_rooms  # noqa: E402

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"
TABLE = """# ballast_room(ghost)
ballast_room(system LINK fmt::fmt)
ballast_room(kernels SHARED TORCH)
ballast_room(model TORCH
  DEPENDS system kernels LINK fmt::fmt)
ballast_room(pages STOREY studio DEPENDS model)
"""


class CheckRooms(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        self.write("ballast/CMakeLists.txt", TABLE)
        self.write("ballast/system/file.h", SPDX)
        self.write("ballast/kernels/gemm.cpp", SPDX + "#include <vector>\n")
        self.write("ballast/kernels/gemm.h", SPDX)
        self.write("ballast/model/model.cpp", SPDX + '#include "ballast/system/file.h"\n#include "ballast/kernels/gemm.h"\n')
        self.write("ballast/studio/pages/page.cpp", SPDX + '#include "ballast/model/model.h"\n')
        self.write("tests/model/model_test.cpp", SPDX)

    def tearDown(self):
        self.folder.cleanup()

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def assert_one_fault(self, *words):
        faults = list(check_rooms.check(self.root))
        self.assertEqual(len(faults), 1, faults)
        for word in words:
            self.assertIn(word, faults[0])

    def test_a_sound_tree_has_no_fault(self):
        self.assertEqual(list(check_rooms.check(self.root)), [])

    def test_this_checkout_has_no_fault(self):
        self.assertEqual(list(check_rooms.check(CHECKOUT)), [])

    def test_the_table_is_read_as_cmake_reads_it(self):
        self.assertEqual(
            check_rooms.read_rooms(TABLE),
            {"system": [], "kernels": [], "model": ["system", "kernels"], "pages": ["model"]},
        )
        self.assertEqual(check_rooms.read_storeys(TABLE), {"pages": "studio"})

    def test_a_wrong_arrow_is_found(self):
        self.write("ballast/system/file.cpp", SPDX + '#include "ballast/model/model.h"\n')
        self.assert_one_fault("ballast/system/file.cpp", "system does not DEPEND on model")

    def test_angle_brackets_hide_no_arrow(self):
        self.write("ballast/system/file.cpp", SPDX + "#include <vector>\n#include <ballast/model/model.h>\n")
        self.assert_one_fault("ballast/system/file.cpp", "system does not DEPEND on model")

    def test_kernels_includes_no_other_room(self):
        self.write("ballast/kernels/a_cuda.cu", SPDX + '  #  include "ballast/system/file.h"\n')
        self.assert_one_fault("a_cuda.cu", "kernels does not DEPEND on system")

    def test_an_include_without_its_room_is_found(self):
        self.write("ballast/model/a.cpp", SPDX + '#include "model.h"\n')
        self.assert_one_fault("a.cpp", "model.h")

    def test_an_arrow_to_a_later_room_is_found(self):
        self.write("ballast/CMakeLists.txt", TABLE.replace("LINK fmt::fmt)", "DEPENDS model)", 1))
        self.write("ballast/system/file.cpp", SPDX + '#include "ballast/model/model.h"\n')
        self.assert_one_fault("system DEPENDS on model")

    def test_an_arrow_that_no_include_uses_is_found(self):
        self.write("ballast/model/model.cpp", SPDX + '#include "ballast/system/file.h"\n')
        self.assert_one_fault("model DEPENDS on kernels, and includes nothing of it")

    def test_a_folder_that_is_no_room_is_found(self):
        self.write("ballast/attic/a.txt", "")
        self.assert_one_fault("ballast/attic")

    def test_a_room_on_the_wrong_storey_is_found(self):
        for path in ("ballast/studio/attic", "ballast/studio/system", "ballast/pages"):
            self.write(f"{path}/a.txt", "")
            self.assert_one_fault(path)
            (self.root / path / "a.txt").unlink()
            (self.root / path).rmdir()

    def test_a_wrong_arrow_between_storeys_is_found(self):
        self.write("ballast/studio/pages/a.cpp", SPDX + '#include "ballast/system/file.h"\n')
        self.assert_one_fault("studio/pages/a.cpp", "pages does not DEPEND on system")
        self.write("ballast/studio/pages/a.cpp", SPDX)
        self.write("ballast/model/a.cpp", SPDX + '#include "ballast/studio/pages/page.h"\n')
        self.assert_one_fault("ballast/model/a.cpp", "model does not DEPEND on pages")

    def test_a_long_file_is_found(self):
        self.write("ballast/model/model.h", SPDX + "\n" * 399)
        self.assertEqual(list(check_rooms.check(self.root)), [])
        self.write("ballast/model/model.h", SPDX + "\n" * 400)
        self.assert_one_fault("model.h", "401 lines")

    def test_a_long_line_of_a_page_is_found(self):
        self.write("docs/page.md", "é" * 120 + "\n")
        self.assertEqual(list(check_rooms.check(self.root)), [])
        self.write("benchmarks/results/page.md", "short\n" + "é" * 121 + "\n")
        self.assert_one_fault("benchmarks/results/page.md:2", "121 columns")

    def test_a_long_function_is_found(self):
        def function(head, lines):
            return f'{SPDX}#define OPEN {{\nnamespace a {{\n{head} {{\n' + "  f('{', \"}\");  // {\n" * (lines - 2) + "}\n}\n"

        for head in ("int A::f(int x) const", "template <class T>\n__global__ void __launch_bounds__(32) f(T x)", "A::A(int x)\n    : x_{x}, y_(2)",
                     "struct B {\n  int f() { return 1; }\n};\nauto f() -> std::vector<int>"):
            around = head.count("\n") if "struct" not in head else 0
            self.write("ballast/model/model.cpp", function(head, 60 - around))
            self.assertEqual([fault for fault in check_rooms.check(self.root) if "lines" in fault], [], head)
            self.write("ballast/model/model.cpp", function(head, 61 - around))
            faults = [fault for fault in check_rooms.check(self.root) if "lines" in fault]
            self.assertEqual(len(faults), 1, head)
            self.assertRegex(faults[0], r"ballast/model/model.cpp:\d+: (f|A::f|A::A) has 61 lines, more than 60")

    def test_device_code_outside_the_plugin_is_found(self):
        self.write("ballast/kernels/a.cpp", SPDX + "// __global__ in words\n__global__ void f();\n")
        self.assert_one_fault("a.cpp", "__global__")

    def test_a_cuda_file_that_the_plugin_would_miss_is_found(self):
        self.write("ballast/kernels/a.cu", SPDX)
        self.assert_one_fault("a.cu", "_cuda.cu")

    def test_a_loop_that_would_have_one_thread_is_found(self):
        self.write("ballast/kernels/a.cpp", SPDX + "at::parallel_for(0, 9, 1, f);\n")
        self.write("cli/main.cpp", SPDX + "at::parallel_for(0, 9, 1, f);\n")
        self.assert_one_fault("cli/main.cpp", "parallel_ranges")

    def test_a_reader_that_takes_any_depth_is_found(self):
        for call in ("nlohmann::json::parse(a)", "ordered_json::parse(a)", "Json::sax_parse(a, b)", "toml::parse(a)"):
            self.write("ballast/system/json.cpp", SPDX + "return json::parse(text);\n")
            self.write("tests/model/model_test.cpp", SPDX + f"{call};\n")
            self.write("cli/main.cpp", SPDX + f"// {call}\n{call};\n")
            self.assert_one_fault("cli/main.cpp", "any depth")

    def test_platform_switches_are_found(self):
        for line in ("#ifdef USE_CUDA", "# if defined(HAVE_MPI)", "#ifndef BALLAST_NCCL", "#elif __CUDACC__"):
            self.write("cli/main.cpp", SPDX + line + "\n")
            self.assert_one_fault("main.cpp", "preprocessor switch")

    def test_other_switches_are_not_platform_switches(self):
        self.write("cli/main.cpp", SPDX + "#ifdef COMPILER\n#endif  // CUDA\n// #ifdef CUDA\n")
        self.assertEqual(list(check_rooms.check(self.root)), [])

    def test_a_test_that_would_never_run_is_found(self):
        for path in ("tests/model/model.cpp", "tests/modle/a_test.cpp", "tests/a_test.cpp", "tests/cli/a_test.cpp"):
            self.write(path, SPDX)
            self.assert_one_fault(path)
            (self.root / path).unlink()

    def test_a_program_named_in_cmake_is_no_test(self):
        self.write("tests/model/writer.cpp", SPDX)
        self.assert_one_fault("tests/model/writer.cpp")
        self.write("tests/CMakeLists.txt", "add_executable(writer model/writer.cpp)\n")
        self.assertEqual(list(check_rooms.check(self.root)), [])

    def test_the_emulator_names_what_it_compiles_itself(self):
        for name in ("machine.cpp", "machine_test.cpp", "words/ballast/model/words_cuda.cuh"):
            self.write(f"tests/emulator/{name}", SPDX)
        self.assert_one_fault("tests/emulator/machine.cpp")
        self.write("tests/emulator/CMakeLists.txt", "add_library(emulator machine.cpp)\n")
        self.assertEqual(list(check_rooms.check(self.root)), [])

    def test_a_missing_licence_line_is_found(self):
        self.write("ballast/model/model.h", "#pragma once\n")
        self.assert_one_fault("model.h", "SPDX")

    def test_what_only_tests_use_is_found(self):
        self.write("ballast/system/disk.cpp", SPDX + "int64_t free_bytes(int disk) { return disk; }\nDisk::Disk() {}\n")
        for header in ("int64_t free_bytes(int disk);", "class Disk {\n public:\n  Disk();\n};", "constexpr int kDisks = 2;",
                       "struct {\n  double seconds = 0;\n} watch;", "using Disks = std::vector<int>;"):
            name = re.search(r"free_bytes|Disks?|kDisks|seconds", header).group()
            self.write("ballast/system/disk.h", f"{SPDX}// {name} is in words.\n{header}\n")
            self.write("tests/system/disk_test.cpp", f"{SPDX}{name} used({name}(1), {name});\n")
            users = [SPDX + f'log("of {name}");  // {name}\n', SPDX + f"return {name}(1), watch;\n"]
            self.write("cli/main.cpp", users[0] + "watch;\n")
            self.assert_one_fault("ballast/system/disk.h", f"uses {name};")
            self.write("cli/main.cpp", users[1])
            self.assertEqual(list(check_rooms.check(self.root)), [], header)

    def test_an_override_is_no_use(self):
        self.write("ballast/system/disk.h", SPDX + "  virtual void fill(int bytes) = 0;\n")
        self.write("ballast/system/tape.h", SPDX + "  void fill(int bytes) override;\n")
        self.write("ballast/system/tape.cpp", SPDX + "void Tape::fill(int bytes) {}\n")
        faults = list(check_rooms.check(self.root))
        self.assertEqual(len(faults), 2, faults)
        self.write("cli/main.cpp", SPDX + "  disk->fill(3);\n")
        self.assertEqual(list(check_rooms.check(self.root)), [])

    def test_what_is_used_in_its_own_source_or_looked_up_by_name_is_used(self):
        self.write("ballast/system/disk.h", SPDX + "int spin();\nstruct Drive {\n};\nDrive drive();\n")
        self.write("ballast/system/disk_cuda.cpp", SPDX + 'int spin() { return 1; }\nint twice = 2 * spin();\nfind("drive");\n')
        self.assertEqual(list(check_rooms.check(self.root)), [])

    def test_a_name_that_says_nothing_is_found(self):
        self.write("ballast/model/utils.h", SPDX)
        self.assert_one_fault("utils.h")

    def test_the_program_fails_on_a_fault(self):
        command = [sys.executable, str(CHECKOUT / "tools/check_rooms.py"), str(self.root)]
        self.assertEqual(subprocess.run(command, capture_output=True).returncode, 0)
        self.write("ballast/system/file.cpp", SPDX + '#include "ballast/model/model.h"\n')
        self.assertEqual(subprocess.run(command, capture_output=True).returncode, 1)
