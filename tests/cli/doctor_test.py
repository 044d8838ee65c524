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
            {"version", "hardware", "libtorch", "cuda", "nccl", "mpi", "programs", "disk", "missing"},
        )
        self.assertEqual(set(machine["libtorch"]), {"version", "path", "threads", "cpu_capability", "onednn"})
        self.assertEqual(set(machine["libtorch"]["onednn"]), {"max_cpu_isa", "reason"})
        self.assertEqual(set(machine["cuda"]), {"usable", "plugin", "driver", "devices"})
        self.assertEqual(set(machine["cuda"]["plugin"]), {"path", "loaded", "reason"})
        self.assertEqual(set(machine["programs"]), {"mpirun", "gnuplot"})
        for item in machine["missing"]:
            self.assertEqual(set(item), {"name", "needed_for", "how_to_get"})

    def test_what_it_says_is_so(self):
        with tempfile.TemporaryDirectory() as folder:
            machine = json.loads(doctor("--json", cwd=folder))
            self.assertEqual(Path(machine["disk"]["path"]), Path(folder).resolve())
        self.assertEqual(machine["hardware"]["cores"], len(os.sched_getaffinity(0)))
        self.assertTrue(Path(machine["libtorch"]["path"]).is_file())
        self.assertRegex(machine["version"], r"^\d+\.\d+\.\d+")
        plugin = machine["cuda"]["plugin"]
        self.assertEqual(plugin["loaded"], plugin["reason"] is None)
        self.assertEqual(plugin["loaded"] or "there is no" not in plugin["reason"], Path(plugin["path"]).exists())

    def test_a_program_that_is_not_there_is_missing_and_one_that_is_there_is_not(self):
        with tempfile.TemporaryDirectory() as folder:
            machine = json.loads(doctor("--json", PATH=folder))
            self.assertIsNone(machine["programs"]["gnuplot"])
            self.assertIn("gnuplot", [item["name"] for item in machine["missing"]])

            gnuplot = Path(folder) / "gnuplot"
            shutil.copy("/bin/true", gnuplot)
            machine = json.loads(doctor("--json", PATH=folder))
            self.assertEqual(machine["programs"]["gnuplot"], str(gnuplot))
            self.assertNotIn("gnuplot", [item["name"] for item in machine["missing"]])

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
        for words in ("libtorch", "CUDA plugin", "apt-get install gnuplot-nox"):
            self.assertIn(words, table)


if __name__ == "__main__":
    unittest.main()
