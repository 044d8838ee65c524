# SPDX-License-Identifier: Apache-2.0
"""The memory of a run: predicted at its start, measured at its end."""

import json
import os
import re
import unittest
from pathlib import Path

from in_folder import InFolder

CONFIGS = Path(os.environ["BALLAST_SOURCE"]) / "configs"

# Half a GB of activations: what a process has anyway counts for little.
LARGE = (
    "--model.width=256 --model.layers=5 --model.heads=4 --model.context=256 --training.batch=16 --training.device=cpu "
    "--training.validate_every=0 --training.validate_batches=1 --training.sample_tokens=0 --data.builtin_bytes=60000 "
    "--training.steps=2 --checkpoint.every=0"
).split()
SIZE = r"[\d.]+ [kMG]?B"


class Memory(InFolder):
    def test_it_is_told_before_and_after(self):
        result = self.run_well("train", "--run", "told", *LARGE, "--training.batch=4", "--training.steps=1")
        start = re.search(
            rf"^predicted memory: ({SIZE}) \(weights {SIZE}, gradients {SIZE}, optimizer {SIZE}, activations {SIZE}, buffers {SIZE}\)$",
            result.stderr,
            re.MULTILINE,
        )
        self.assertIsNotNone(start, result.stderr)
        self.assertLess(start.start(), result.stderr.index("step 1/1"))
        self.assertRegex(result.stderr, rf"step 1/1 .*\| memory now {SIZE} \|")
        end = re.search(rf"^  peak memory +{SIZE}\n  predicted memory +({SIZE})$", result.stdout, re.MULTILINE)
        self.assertIsNotNone(end, result.stdout)
        self.assertEqual(start[1], end[1])
        plan = self.run_well("plan", *(word for word in LARGE if word.startswith("--model")), "--training.batch=4", "--device=cpu",
                             "--flops=1e11", "--bandwidth=1e10", "--model.vocabulary=1024")
        self.assertIn("Predicted memory of a worker", plan.stdout)

    def test_validations_of_a_base_model_take_no_more_each_time(self):
        # Each would add some MB if what the machine keeps of a product went by an expert's tokens.
        result = self.run_well("train", "--run", "often", "--config", CONFIGS / "first_run.toml", "--data.builtin_bytes=3000000",
                               "--training.steps=60", "--training.validate_every=5", "--training.log_every=5", "--training.sample_tokens=0",
                               "--training.last_validate_batches=1", "--checkpoint.every=0", "--optimizer.warmup_steps=5")
        taken = [float(size) * {"k": 1e3, "M": 1e6}[unit]
                 for size, unit in re.findall(r"^step .*\| memory now ([\d.]+) ([kM])B \|", result.stderr, re.MULTILINE)]
        self.assertEqual(len(taken), 13)
        self.assertLess(taken[-1] - taken[3], 10e6, taken)

    def test_the_prediction_is_near_the_peak(self):
        for name, arguments in {"dense": [], "base": ["--experts.layers=1", "--experts.count=8", "--experts.sublayers=1"]}.items():
            out = json.loads(self.run_well("train", "--run", name, *LARGE, *arguments, "--json").stdout)
            # 10 % apart where it was measured; another heap (a sanitizer's) may double it.
            self.assertLess(out["predicted_memory"] / 2, out["peak_memory"], name)
            self.assertLess(out["peak_memory"], 2 * out["predicted_memory"], name)

    def test_a_run_that_makes_no_step_has_no_peak(self):
        self.run_well("train", "--run", "done", *LARGE, "--training.batch=4", "--training.steps=1")
        result = self.run_well("train", "--run", "done", "--resume", "auto", "--json")
        self.assertIsNone(json.loads(result.stdout)["peak_memory"])


if __name__ == "__main__":
    unittest.main()
