# SPDX-License-Identifier: Apache-2.0
"""The PyTorch twin, wherever a torch can be imported: its recorded losses are what it gives, and `bench step` runs it."""

import json
import os
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

SOURCE = Path(os.environ["BALLAST_SOURCE"])
BALLAST = Path(os.environ["BALLAST_BUILD"]) / "ballast"
SCRIPT = SOURCE / "benchmarks" / "twin" / "record_losses.py"


def pythons():
    yield from (SOURCE / ".deps" / "twin" / "bin" / "python", sys.executable, "python3")
    cache = (BALLAST.parent / "CMakeCache.txt").read_text()
    found = re.search(r"^Libtorch_FOUND_FOLDER:INTERNAL=(.+)$", cache, re.MULTILINE)
    if found and "site-packages" in found[1]:  # ENVIRONMENT/lib/pythonX.Y/site-packages/torch
        yield Path(found[1]).parents[3] / "bin" / "python"


def python_with_torch():
    for python in pythons():
        found = shutil.which(python) and subprocess.run([python, "-c", "import torch, numpy, scipy"], capture_output=True)
        if found and found.returncode == 0:
            return python
    raise unittest.SkipTest("no Python with torch, numpy and scipy here: `make twin` makes one")


class Twin(unittest.TestCase):
    def test_recorded_losses_are_the_twins(self):
        recorded = json.loads((SOURCE / "tests" / "golden" / "twin_losses.json").read_text())
        for key in ("losses", "base_losses"):
            self.assertEqual(len(recorded[key]), recorded["training"]["steps"])
        python = python_with_torch()
        fresh = json.loads(subprocess.run([python, SCRIPT], capture_output=True, check=True).stdout)
        for key in ("shape", "experts", "training"):
            self.assertEqual(fresh[key], recorded[key])
        for key in ("losses", "base_losses"):
            for step, (was, now) in enumerate(zip(recorded[key], fresh[key])):
                self.assertAlmostEqual(was, now, delta=1e-5, msg=f"{key}, step {step} with {python}")

    def test_recorded_losses_of_optimizers_are_the_twins(self):
        recorded = json.loads((SOURCE / "tests" / "golden" / "optimizer_losses.json").read_text())
        script = SCRIPT.parent / "record_optimizers.py"
        fresh = json.loads(subprocess.run([python_with_torch(), script], capture_output=True, check=True).stdout)
        for run in ("dense", "base", "partly_frozen", "adam_partly_frozen"):
            self.assertEqual(len(recorded[run]["losses"]), recorded["training"]["steps"])
            for step, (was, now) in enumerate(zip(recorded[run]["losses"], fresh[run]["losses"])):
                self.assertAlmostEqual(was, now, delta=1e-9, msg=f"{run}, step {step}")

    def test_its_auction_is_balanced_and_near_the_best(self):
        python = python_with_torch()
        program = """
import torch
from base_layer import auction
from record_losses import best_assignment
torch.manual_seed(1)
centres = torch.randn(5, 16)
for scores in (torch.randn(96, 8), 5 + 0.1 * torch.randn(96, 8) + torch.randn(8), torch.ones(96, 8),
               centres[torch.randint(5, (96,))] @ torch.randn(16, 8) + 0.01 * torch.randn(96, 8)):
    found, best = auction(scores), best_assignment(scores)
    assert torch.bincount(found, minlength=8).tolist() == [12] * 8
    value = [scores.double().gather(1, e.unsqueeze(1)).sum().item() for e in (found, best)]
    # Within epsilon, a fiftieth of the range, of the best for each token.
    assert value[1] - 96 * (scores.max() - scores.min()).item() / 50 - 1e-3 <= value[0] <= value[1] + 1e-3, value
"""
        result = subprocess.run([python, "-c", program], cwd=SCRIPT.parent, capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_steps_are_measured_beside_it(self):
        python = python_with_torch()
        for experts in ([], ["--experts", "4,2"]):
            command = [BALLAST, "bench", "step", "--size", "32,16,4,2,8,4", "--rounds", "2", "--steps", "2", "--device", "cpu",
                       "--python", python, "--json", *experts]
            result = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, result.stderr)
            found = json.loads(result.stdout)
            self.assertRegex(found["twin"], r"^\d+\.\d+")
            (size,) = found["sizes"]
            self.assertAlmostEqual(size["speedup"], size["twin_step_ms"] / size["step_ms"])
            self.assertAlmostEqual(size["twin_tokens_per_second"], 32 / (size["twin_step_ms"] / 1e3))
            if experts:
                self.assertGreater(size["twin_assign_ms"], 0)
                self.assertLess(size["twin_assign_ms"], size["twin_step_ms"])
            else:
                self.assertNotIn("twin_assign_ms", size)


if __name__ == "__main__":
    unittest.main()
