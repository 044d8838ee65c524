# SPDX-License-Identifier: Apache-2.0
"""`ballast doctor` tells the truth about this machine, for people and for programs."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

BALLAST = Path(os.environ["BALLAST_BUILD"]) / "ballast"


def doctor(*arguments, cwd=None, **environment):
    return subprocess.run(
        [BALLAST, "doctor", *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=cwd,
        env={**os.environ, **environment},
    ).stdout


class Doctor(unittest.TestCase):
    def test_json_has_every_documented_key(self):
        machine = json.loads(doctor("--json"))
        self.assertEqual(
            set(machine),
            {"version", "hardware", "libtorch", "cuda", "nccl", "mpi", "parquet", "programs", "disk", "missing"},
        )
        self.assertEqual(set(machine["libtorch"]), {"version", "path", "threads", "cpu_capability", "onednn"})
        self.assertEqual(set(machine["libtorch"]["onednn"]), {"max_cpu_isa", "reason"})
        self.assertEqual(set(machine["cuda"]), {"usable", "plugin", "driver", "devices"})
        self.assertEqual(set(machine["cuda"]["plugin"]), {"path", "loaded", "reason"})
        self.assertEqual(set(machine["parquet"]["plugin"]), {"path", "loaded", "reason"})
        self.assertEqual(set(machine["programs"]), {"mpirun", "rsvg-convert"})
        for item in machine["missing"]:
            self.assertEqual(set(item), {"name", "needed_for", "how_to_get"})

    def test_what_it_says_is_so(self):
        with tempfile.TemporaryDirectory() as folder:
            machine = json.loads(doctor("--json", cwd=folder))
            self.assertEqual(Path(machine["disk"]["path"]), Path(folder).resolve())
        self.assertEqual(machine["hardware"]["cores"], len(os.sched_getaffinity(0)))
        self.assertTrue(Path(machine["libtorch"]["path"]).is_file())
        self.assertRegex(machine["version"], r"^\d+\.\d+\.\d+")
        for plugin in (machine["cuda"]["plugin"], machine["parquet"]["plugin"]):
            self.assertEqual(plugin["loaded"], plugin["reason"] is None)
            self.assertEqual(plugin["loaded"] or "there is no" not in plugin["reason"], Path(plugin["path"]).exists())

    def test_the_parquet_plugin_is_loaded_or_told_why_not(self):
        plugin = json.loads(doctor("--json"))["parquet"]["plugin"]
        self.assertTrue(plugin["loaded"], plugin["reason"])
        self.assertRegex(doctor(), r"(?m)^  Parquet plugin loaded from /")
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder).resolve()
            shutil.copy2(BALLAST, place)
            for library in BALLAST.parent.glob("*.so"):
                if library.name != "libballast_parquet.so":
                    (place / library.name).symlink_to(library)
            result = subprocess.run([place / "ballast", "doctor", "--json"], capture_output=True, text=True, check=True)
            machine = json.loads(result.stdout)
            self.assertFalse(machine["parquet"]["plugin"]["loaded"])
            self.assertIn("libballast_parquet.so", machine["parquet"]["plugin"]["reason"])
            (missing,) = [item for item in machine["missing"] if item["name"] == "Parquet plugin"]
            self.assertIn("tools/setup", missing["how_to_get"])

    def test_a_program_that_is_not_there_is_missing_and_one_that_is_there_is_not(self):
        with tempfile.TemporaryDirectory() as folder:
            machine = json.loads(doctor("--json", PATH=folder))
            self.assertIsNone(machine["programs"]["rsvg-convert"])
            self.assertIn("rsvg-convert", [item["name"] for item in machine["missing"]])

            program = Path(folder) / "rsvg-convert"
            shutil.copy("/bin/true", program)
            machine = json.loads(doctor("--json", PATH=folder))
            self.assertEqual(machine["programs"]["rsvg-convert"], str(program))
            self.assertNotIn("rsvg-convert", [item["name"] for item in machine["missing"]])

    def test_a_limit_of_onednn_is_told_whoever_set_it(self):
        unlimited = {"ONEDNN_MAX_CPU_ISA": "", "DNNL_MAX_CPU_ISA": ""}
        onednn = json.loads(doctor("--json", **unlimited))["libtorch"]["onednn"]
        # Ballast itself sets one exactly where there is a reason.
        self.assertEqual(onednn["max_cpu_isa"], "AVX512_CORE_BF16" if onednn["reason"] else None)
        self.assertEqual("oneDNN" in doctor(**unlimited), onednn["reason"] is not None)
        for name in unlimited:
            given = {**unlimited, name: "AVX2"}
            machine = json.loads(doctor("--json", **given))
            self.assertEqual(machine["libtorch"]["onednn"]["max_cpu_isa"], "AVX2")
            self.assertRegex(doctor(**given), r"(?m)^ +oneDNN +up to AVX2")

    def test_the_table_names_what_is_missing_and_how_to_get_it(self):
        with tempfile.TemporaryDirectory() as folder:
            table = doctor(PATH=folder)
        for words in ("libtorch", "CUDA plugin", "apt-get install librsvg2-bin"):
            self.assertIn(words, table)


if __name__ == "__main__":
    unittest.main()
