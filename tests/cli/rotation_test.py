# SPDX-License-Identifier: Apache-2.0
"""Models are read while a training saves and deletes their checkpoints."""

import json
import subprocess
import time
import unittest

from in_folder import BALLAST, TINY, InFolder


class Rotation(InFolder):
    def test_a_run_is_read_while_its_checkpoints_rotate(self):
        command = ["train", *TINY, "--data.builtin_bytes=60000", "--training.steps=1000000", "--checkpoint.every=1", "--checkpoint.keep_last=1", "--run", "run"]
        with open(self.folder / "log", "w") as log:
            training = subprocess.Popen([BALLAST, *command], cwd=self.folder, stdout=log, stderr=log)
        self.addCleanup(training.wait)
        self.addCleanup(training.kill)
        while not list((self.folder / "run/checkpoints").glob("step_*[0-9]")):
            self.assertIsNone(training.poll(), (self.folder / "log").read_text())
            time.sleep(0.02)
        steps = []
        for number in range(4):
            exported = self.run_well("export", "run", "--out", f"export{number}", "--json")
            steps.append(json.loads(exported.stdout)["step"])
            steps.append(json.loads(self.run_well("generate", "run", "--prompt", "a", "--max-tokens", "4", "--json").stdout)["step"])
            self.run_well("report", "run")
        self.run_well("eval", "run")
        self.assertIsNone(training.poll(), (self.folder / "log").read_text())
        self.assertEqual(steps, sorted(steps))
        self.assertLess(steps[0], steps[-1])


if __name__ == "__main__":
    unittest.main()
