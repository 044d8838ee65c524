# SPDX-License-Identifier: Apache-2.0
"""Muon, schedules, the average of weights and frozen parameters, from the command line."""

import json
import math
import unittest

from in_folder import InFolder

TINY = (
    "--model.width=16 --model.layers=2 --model.heads=2 --model.context=32 --training.batch=8 --training.threads=1 "
    "--training.validate_every=0 --training.validate_batches=1 --training.sample_tokens=0 --data.builtin_bytes=100000 "
    "--training.steps=20 --optimizer.learning_rate=1e-2 --optimizer.warmup_steps=5 --checkpoint.every=0 "
    "--training.device=cpu --training.log_every=1"
).split()
EXPERTS = ["--experts.layers=1", "--experts.sublayers=1", "--experts.count=4"]


class Optimizers(InFolder):
    def train(self, run, *arguments):
        return self.run_well("train", "--run", run, *TINY, *arguments)

    def loss(self, *arguments):
        return json.loads(self.run_well("eval", *arguments, "--device=cpu", "--json").stdout)["loss"]

    def test_the_average_is_evaluated_exported_and_used(self):
        self.train("run", *EXPERTS, "--optimizer.algorithm=muon", "--optimizer.average=0.9", "--training.freeze=block.0.*")
        last, average = self.loss("run"), self.loss("run", "--average")
        self.assertNotEqual(last, average)
        self.assertAlmostEqual(last, average, delta=0.5)
        self.run_well("export", "run", "--out", "averaged", "--average")
        text = ("--data", "run/config.toml")
        self.assertAlmostEqual(self.loss("averaged", *text), self.loss("run", "--average", *text), delta=1e-6)
        self.run_well("generate", "run", "--average", "--device=cpu", "--prompt", "a", "--max-tokens", "4")
        for command in (["eval", "averaged", "--average"], ["generate", "averaged", "--average", "--prompt", "a"]):
            self.refused(*command, says="holds no average of the weights")

    def test_a_run_without_an_average_is_refused(self):
        self.train("run")
        for command in (["eval", "run"], ["generate", "run", "--prompt", "a"], ["export", "run", "--out", "x"]):
            self.refused(*command, "--average", says="optimizer.average")

    def test_schedules_are_what_they_are_called(self):
        for schedule in ("cosine", "stable"):
            self.train(schedule, f"--optimizer.schedule={schedule}", "--optimizer.decay_part=0.25",
                       "--optimizer.final_learning_rate=0.1")
            rates = {line["step"]: line["learning_rate"] for line in self.records(schedule) if "learning_rate" in line}
            self.assertAlmostEqual(rates[1], 0.002)
            for step in range(6, 21):  # the rate of step n is that after n - 1
                done = (step - 6) / 15
                fallen = (1 - math.cos(math.pi * done)) / 2 if schedule == "cosine" else max(0, (step - 1 - 15) / 5)
                self.assertAlmostEqual(rates[step], 0.01 * (1 - 0.9 * fallen), msg=f"{schedule}, step {step}")

    def test_frozen_parameters_are_counted_and_named(self):
        said = self.train("run", *EXPERTS, "--training.freeze=block.*,*_embedding").stderr
        self.assertRegex(said, r"trained: \S+ of the parameters; frozen: block\.\*, \*_embedding")
        size = ["params", *TINY, *EXPERTS, "--model.vocabulary=257", "--json"]
        whole, part = (json.loads(self.run_well(*size, *more).stdout) for more in ([], ["--training.freeze=layer.*.expert.*"]))
        self.assertEqual(whole["trained"], whole["total"])
        self.assertEqual(part["trained"], part["shared"])
        before, after = whole["memory_per_worker"]["fp32"], part["memory_per_worker"]["fp32"]
        self.assertEqual((after["weights"], after["gradients"], after["adam"]),
                         (before["weights"], 4 * part["shared"], 8 * part["shared"]))

    def test_memory_of_muon_and_of_an_average_is_counted(self):
        size = ["params", *TINY, "--model.vocabulary=257", "--json"]
        adam, muon, average = (json.loads(self.run_well(*size, *more).stdout)["memory_per_worker"]["fp32"]["adam"] for more in
                               ([], ["--optimizer.algorithm=muon"], ["--optimizer.average=0.9"]))
        matrices = 2 * (4 * 16 * 16 + 2 * 16 * 64)
        self.assertEqual(adam - muon, 4 * matrices)
        self.assertEqual(average, adam * 3 // 2)

    def test_memory_of_divided_state_is_counted(self):
        anywhere = [knob for knob in TINY if "device" not in knob]
        size = ["params", *anywhere, "--model.vocabulary=257", "--json", "--training.shard_optimizer=true", "--workers"]

        def memory(workers, *more):
            out = json.loads(self.run_well(*size, workers, *more).stdout)
            return out["shared"], out["memory_per_worker"]

        shared, alone = memory(1)
        _, four = memory(4)
        for precision in ("fp32", "bf16"):
            self.assertEqual(alone[precision]["adam"], 8 * shared)
            self.assertEqual(four[precision]["adam"], 2 * shared)
            self.assertEqual(four[precision]["gradients"], alone[precision]["gradients"])
        self.assertEqual(four["fp32"]["weights"], 4 * shared)
        self.assertEqual(four["bf16"]["weights"], 3 * shared)  # and a quarter of the master copies
        _, muon = memory(4, "--optimizer.algorithm=muon")
        matrices = 2 * (4 * 16 * 16 + 2 * 16 * 64)
        self.assertEqual(muon["fp32"]["adam"], 2 * (shared - matrices) + 4 * matrices)

    def test_names_of_nothing_are_refused(self):
        self.refused("train", "--run", "run", *TINY, "--training.freeze=blok.0.*", says="no parameter is called \"blok.0.*\"")
        self.refused("train", "--run", "run", *TINY, *EXPERTS, "--training.freeze=layer.1.expert.0.*", says="frozen together")
        self.refused("params", *TINY, "--model.vocabulary=257", "--training.freeze=token_embeddin", says="token_embedding")
        self.assertFalse((self.folder / "run").exists())


if __name__ == "__main__":
    unittest.main()
