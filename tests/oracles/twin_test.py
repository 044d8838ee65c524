# SPDX-License-Identifier: Apache-2.0
"""The recorded losses of the PyTorch twin are what the twin gives: re-run wherever a torch can be imported."""

import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

SOURCE = Path(os.environ["BALLAST_SOURCE"])
SCRIPT = SOURCE / "benchmarks" / "twin" / "record_losses.py"


def pythons_with_torch():
    for python in (SOURCE / ".deps" / "twin" / "bin" / "python", sys.executable, "python3"):
        found = subprocess.run([python, "-c", "import torch, numpy"], capture_output=True) if Path(python).exists() or python == "python3" else None
        if found is not None and found.returncode == 0:
            yield python


class Twin(unittest.TestCase):
    def test_recorded_losses_are_the_twins(self):
        recorded = json.loads((SOURCE / "tests" / "golden" / "twin_losses.json").read_text())
        self.assertEqual(len(recorded["losses"]), recorded["training"]["steps"])
        for python in pythons_with_torch():
            fresh = json.loads(subprocess.run([python, SCRIPT], capture_output=True, check=True).stdout)
            self.assertEqual(fresh["shape"], recorded["shape"])
            self.assertEqual(fresh["training"], recorded["training"])
            for step, (was, now) in enumerate(zip(recorded["losses"], fresh["losses"])):
                self.assertAlmostEqual(was, now, delta=1e-5, msg=f"step {step} with {python}")
            return
        print("no Python with torch here (`make twin` makes one): the recorded losses stand")


if __name__ == "__main__":
    unittest.main()
