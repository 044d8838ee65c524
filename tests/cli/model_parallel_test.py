# SPDX-License-Identifier: Apache-2.0
"""Models that several workers hold together (model parallel), as people use them."""

import json
import os
import shutil
import signal
import subprocess
import unittest

import numpy
from in_folder import BALLAST, InFolder
from safetensors.numpy import load_file
from workers_test import wait_for_steps, workers_of

# The vocabulary of bytes is 257, which nothing divides.
TINY = (
    "--model.width=16 --model.layers=2 --model.heads=4 --model.context=16 --training.threads=1 --training.batch=8 "
    "--training.validate_every=0 --training.validate_batches=2 --training.last_validate_batches=2 --training.sample_tokens=8 --data.builtin_bytes=60000 "
    "--training.log_every=50 --optimizer.learning_rate=5e-3 --optimizer.warmup_steps=5"
).split()
EXPERTS = "--experts.layers=1 --experts.count=8 --experts.sublayers=1 --experts.groups=8".split()
SYSTEMS = {"dense": [], "base": EXPERTS, "switch": [*EXPERTS, "--experts.router=switch", "--experts.placement=replace"]}
# Workers, and how many of them hold a model together. tests/training divides all systems in all ways.
DIVISIONS = {"dense": [(4, 2)], "base": [(2, 2), (4, 2), (4, 4)], "switch": [(4, 2)]}


class ModelParallel(InFolder):
    def tensors(self, run, step):
        manifest = json.loads((self.folder / run / "checkpoints" / f"step_{step:08}" / "manifest.json").read_text())
        return {entry["name"]: (entry["dtype"], entry["shape"]) for entry in manifest["tensors"]}

    def test_divisions_give_the_same_losses_text_and_evaluation(self):
        fp64 = ["--training.precision=fp64", "--training.steps=10"]
        for name, system in SYSTEMS.items():
            self.run_well("train", *TINY, *system, *fp64, "--run", name)
            for workers, parallel in DIVISIONS[name]:
                run = f"{name}-{workers}-{parallel}"
                result = self.run_well("train", *TINY, *system, *fp64, "--run", run, "--workers", workers, "--model-parallel", parallel)
                self.assertIn(f"model parallel x{parallel}", result.stderr)
                self.assert_losses_near(run, self.losses(name), 1e-9)
                self.assertEqual(self.tensors(run, 10), self.tensors(name, 10))
            self.evaluate_and_generate(name)

    def evaluate_and_generate(self, run):
        def result_of(*arguments):
            return json.loads(self.run_well(*arguments, "--precision", "fp64", "--json").stdout)

        alone = result_of("eval", run)
        ask = ["generate", run, "--prompt", "The", "--max-tokens", 40, "--samples", 3]
        texts = result_of(*ask)["completions"]
        for workers, parallel in DIVISIONS[run]:
            divided = ["--workers", workers, "--model-parallel", parallel]
            other = result_of("eval", run, *divided)
            self.assertAlmostEqual(other["loss"], alone["loss"], delta=1e-9)
            self.assertEqual(other["tokens"], alone["tokens"])
            for a, b in zip(other["routings"], alone["routings"], strict=True):
                self.assertEqual([layer["loads"] for layer in a["layers"]], [layer["loads"] for layer in b["layers"]])
            self.assertEqual(result_of(*ask, *divided)["completions"], texts)
        audit = result_of("eval", run, "--audit", "--workers", 4, "--model-parallel", 2)
        self.assertTrue(audit["passed"])
        plain = result_of("eval", run, "--audit")
        for key in ("windows", "cuts", "routes", "logits"):
            self.assertEqual(audit["audits"][0][key], plain["audits"][0][key], key)

    def test_a_run_that_was_killed_goes_on_divided_otherwise(self):
        # The learning rate stays: it does not depend on how many steps are planned.
        common = ["train", *TINY, *EXPERTS, "--training.precision=fp64", "--checkpoint.every=5", "--optimizer.warmup_steps=0",
                  "--optimizer.final_learning_rate=1"]
        process = subprocess.Popen([BALLAST, *common, "--training.steps=100000", "--run", "killed", "--workers", "2", "--training.model_parallel=2"],
                                   cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
        wait_for_steps(self, "killed", 12, process)
        os.kill(workers_of("killed")[1], signal.SIGKILL)
        _, errors = process.communicate(timeout=60)
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("worker 1", errors)
        step = max(int(path.name[5:]) for path in (self.folder / "killed" / "checkpoints").glob("step_*[0-9]"))
        self.assertGreaterEqual(step, 10)
        for workers, parallel in ((4, 4), (4, 1), (1, 1), (4, 2)):
            again = self.run_well("train", "--run", "killed", "--resume", "auto", "--workers", workers, "--model-parallel", parallel,
                                  "--training.steps", step + 3)
            self.assertIn(f"step_{step:08}", again.stderr)
            step += 3
        self.run_well(*common, "--run", "quiet", "--training.steps", step)
        self.assert_losses_near("killed", self.losses("quiet"), 1e-9)

    def test_going_on_divided_otherwise_changes_nothing(self):
        common = ["train", *TINY, *EXPERTS, "--training.precision=fp64", "--training.steps=20", "--checkpoint.every=10", "--checkpoint.keep_last=9"]
        self.run_well(*common, "--run", "one")
        for first, second in (((2, 2), (1, 1)), ((1, 1), (4, 2)), ((4, 4), (4, 2))):
            run = f"{first}-{second}"
            self.run_well(*common, "--run", run, "--workers", first[0], "--model-parallel", first[1])
            files = {path.name for path in (self.folder / run / "checkpoints" / "step_00000010").iterdir() if path.name.startswith("model")}
            parts = {f"model.{shard}-of-{first[1]}.safetensors" for shard in range(1, first[1])}
            self.assertEqual(files, {"model.safetensors", *parts})
            self.assert_same_tensors(run, "one")
            shutil.rmtree(self.folder / run / "checkpoints" / "step_00000020")
            again = self.run_well("train", "--run", run, "--resume", "auto", "--workers", second[0], "--model-parallel", second[1])
            self.assertIn("step_00000010", again.stderr)
            self.assert_losses_near(run, self.losses("one"), 1e-9)

    # As the official reader sees them.
    def assert_same_tensors(self, run, other):
        def read(name):
            files = (self.folder / name / "checkpoints" / "step_00000010").glob("*.safetensors")
            return {tensor: values for file in files for tensor, values in load_file(file).items()}

        got, expected = read(run), read(other)
        self.assertEqual(got.keys(), expected.keys())
        for name, values in expected.items():
            numpy.testing.assert_allclose(got[name], values, rtol=0, atol=1e-8, err_msg=name)

    def test_weights_go_from_a_divided_model_to_a_whole_one_and_back(self):
        self.run_well("train", *TINY, "--training.steps=5", "--run", "a", "--workers", 2, "--model-parallel", 2)
        self.run_well("export", "a", "--out", "exported")
        start = ["--training.steps=1", "--optimizer.learning_rate=0", "--training.precision=fp64"]
        for number, divided in enumerate(([], ["--workers", 4, "--model-parallel", 4])):
            self.run_well("train", *TINY, *start, "--run", f"b{number}", "--init-from", "exported", *divided)
        self.assert_losses_near("b1", self.losses("b0"), 1e-9)
        self.assertAlmostEqual(json.loads(self.run_well("eval", "exported", "--json", "--data", "a/config.toml").stdout)["loss"],
                               json.loads(self.run_well("eval", "a", "--json", "--data", "a/config.toml", "--workers", 2, "--model-parallel", 2).stdout)["loss"],
                               delta=1e-5)

    def test_what_cannot_be_divided_is_refused(self):
        self.refused("train", *TINY, "--run", "r", "--workers", 3, "--model-parallel", 2, says="3 workers cannot be divided into groups of 2")
        self.refused("train", *TINY, "--run", "r", "--model-parallel", 2, says="1 worker cannot be divided into groups of 2")
        self.refused("train", *TINY, "--run", "r", "--model.heads=1", "--workers", 2, "--model-parallel", 2, says="model.heads: 1 head cannot be divided among 2 workers")
        self.refused("train", *TINY, "--run", "r", "--model.hidden=33", "--workers", 2, "--model-parallel", 2, says="model.hidden: 33 columns")
        self.refused("train", *TINY, *EXPERTS, "--run", "r", "--experts.count=2", "--workers", 4, "--model-parallel", 2, says="experts.count: 2 experts")
        self.refused("train", *TINY, "--run", "r", "--model-parallel", 0, says="training.model_parallel: want a value from 1")
        self.assertFalse((self.folder / "r").exists(), "nothing is left behind")
        tokens = self.folder / "tokens.bin"  # of nanoGPT: five different ones, too few for four workers of two each
        tokens.write_bytes(numpy.tile(numpy.arange(5, dtype=numpy.uint16), 2000).tobytes())
        self.refused("train", *TINY, "--run", "r", "--data", tokens, "--workers", 4, "--model-parallel", 4, "--model.vocabulary=5",
                     says="model.vocabulary: 5 tokens are too few for 4 workers")
        self.assertFalse((self.folder / "r").exists(), "nothing is left behind")
        self.run_well("train", *TINY, "--training.steps=1", "--run", "r")
        for command in (["eval", "r"], ["generate", "r"]):
            self.refused(*command, "--model-parallel", 2, says="1 worker cannot be divided into groups of 2")
            self.refused(*command, "--workers", 3, "--model-parallel", 3, says="4 heads cannot be divided among 3 workers")


if __name__ == "__main__":
    unittest.main()
