# SPDX-License-Identifier: Apache-2.0
"""`ballast params` tells how large a model is, from its configuration alone."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

BALLAST = Path(os.environ["BALLAST_BUILD"]) / "ballast"
CONFIGS = Path(os.environ["BALLAST_SOURCE"]) / "configs"

# Shared, of one expert, in all: as the paper prints them.
PAPER = {
    "base_44b": (1.3e9, 335e6, 44e9),
    "base_x2": (1.3e9, 335e6, 44e9),
    "base_top": (1.3e9, 335e6, 44e9),
    "base_small": (1.5e9, 135e6, 18.8e9),
    "base_large": (840e6, 911e6, 117e9),
    "dense_1.5b": (1.5e9, 0, 1.5e9),
}

KEYS = ["shared", "per_expert", "total", "active", "flops_per_token", "vocabulary", "layers", "experts", "base_layers",
        "sublayers", "workers", "experts_per_worker", "parameters_per_worker", "memory_per_worker"]

SMALL = "--model.vocabulary=11 --model.width=8 --model.layers=4 --model.heads=2 --model.hidden=12 --model.context=16".split()


def ballast(*arguments):
    return subprocess.run([BALLAST, "params", *map(str, arguments)], capture_output=True, encoding="utf-8")


class Params(unittest.TestCase):
    def counted(self, *arguments):
        result = ballast(*arguments, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def refused(self, *arguments, says):
        result = ballast(*arguments)
        self.assertEqual(result.returncode, 2, result.stdout)
        self.assertEqual(result.stdout, "")
        self.assertIn(says, result.stderr)
        return result.stderr

    def test_the_papers_models_have_the_papers_sizes(self):
        for name, (shared, per_expert, total) in PAPER.items():
            with self.subTest(name):
                size = self.counted(CONFIGS / f"paper_{name}.toml")
                self.assertEqual(list(size), KEYS)
                # The paper rounds, and does not say how many blocks and sublayers each model has.
                self.assertAlmostEqual(size["shared"], shared, delta=0.05 * shared)
                self.assertAlmostEqual(size["per_expert"], per_expert, delta=0.05 * per_expert)
                self.assertAlmostEqual(size["total"], total, delta=0.05 * total)
                self.assertEqual(size["total"], size["shared"] + size["experts"] * size["per_expert"])
                self.assertEqual(size["active"], size["shared"] + size["per_expert"])
                # Six for each weight of a matrix, and some for attention.
                self.assertAlmostEqual(size["flops_per_token"] / size["active"], 6, delta=0.7)

    def test_a_worker_of_the_papers_128(self):
        size = self.counted(CONFIGS / "paper_base_44b.toml", "--workers", 128)
        self.assertEqual((size["layers"], size["base_layers"], size["experts"], size["sublayers"]), (24, [12], 128, 10))
        self.assertEqual((size["workers"], size["experts_per_worker"]), (128, 1))
        self.assertEqual(size["parameters_per_worker"], size["active"])
        memory = size["memory_per_worker"]
        self.assertEqual(list(memory), ["fp32", "bf16"], "what training.precision auto may be")
        held = size["parameters_per_worker"]
        self.assertEqual(memory["fp32"], {"weights": 4 * held, "gradients": 4 * held, "adam": 8 * held, "total": 16 * held})
        # In bf16, beside the master weights.
        self.assertEqual(memory["bf16"], {"weights": 6 * held, "gradients": 2 * held, "adam": 8 * held, "total": 16 * held})
        self.assertEqual(self.counted(CONFIGS / "paper_base_x2.toml")["base_layers"], [8, 16])
        self.assertEqual(self.counted(CONFIGS / "paper_base_top.toml")["base_layers"], [24])

    def test_experts_are_divided_among_workers_and_the_rest_is_not(self):
        one = self.counted(*SMALL, "--experts.layers=1", "--experts.count=8")
        two = self.counted(*SMALL, "--experts.layers=1", "--experts.count=8", "--workers=2", "--training.batch=8")
        self.assertEqual(one["parameters_per_worker"], one["total"])
        self.assertEqual(two["parameters_per_worker"], two["shared"] + 4 * two["per_expert"])

    def test_a_dense_model_has_no_experts(self):
        size = self.counted(*SMALL)
        self.assertEqual((size["experts"], size["per_expert"], size["base_layers"], size["sublayers"]), (0, 0, [], 0))
        self.assertEqual(size["total"], size["shared"])
        block = 4 * 8 * 8 + 2 * 8 * 12
        self.assertEqual(size["shared"], 11 * 8 + 16 * 8 + 4 * (block + 4 * 8 + 12 + 8 + 4 * 8) + 2 * 8)
        self.assertEqual(size["flops_per_token"], 6 * (4 * (block + 8 * 16) + 11 * 8))

    def test_knobs_come_from_the_file_and_then_from_the_command_line(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "small.toml"
            path.write_text("[model]\nvocabulary = 11\nwidth = 8\nheads = 2\nlayers = 3\n")
            self.assertEqual(self.counted(path)["layers"], 3)
            self.assertEqual(self.counted("--config", path, "--model.layers", 5)["layers"], 5)

    def test_memory_is_of_the_precision_that_is_asked_for(self):
        self.assertEqual(list(self.counted(*SMALL, "--training.device=cpu")["memory_per_worker"]), ["fp32"])
        self.assertEqual(list(self.counted(*SMALL, "--training.device=cuda")["memory_per_worker"]), ["bf16"])
        size = self.counted(*SMALL, "--training.precision=fp64")
        self.assertEqual(size["memory_per_worker"]["fp64"]["total"], 32 * size["total"])

    def test_people_see_where_layers_stand_and_what_a_worker_holds(self):
        result = ballast(CONFIGS / "paper_base_x2.toml", "--workers", 64)
        self.assertEqual(result.returncode, 0, result.stderr)
        for words in ["1.32B", "336M", "44.3B", "after blocks 8 and 16 of 24", "64 workers", "2 experts", "gradients", "Adam"]:
            self.assertIn(words, result.stdout)
        dense = ballast(*SMALL).stdout
        self.assertNotIn("expert", dense)
        self.assertIn("after the last of 24 blocks", ballast(CONFIGS / "paper_base_top.toml").stdout)

    def test_the_vocabulary_of_the_built_in_corpus_is_known(self):
        self.assertEqual(self.counted(CONFIGS / "first_run.toml")["vocabulary"], 1024)
        self.assertEqual(self.counted()["vocabulary"], 257)

    def test_a_vocabulary_that_only_the_data_knows_must_be_given(self):
        message = self.refused("--data.train", "data/mine", says="model.vocabulary")
        self.assertIn("--model.vocabulary 50304", message)
        self.assertEqual(self.counted("--data.train", "data/mine", "--model.vocabulary", 300)["vocabulary"], 300)

    def test_what_train_refuses_is_refused(self):
        self.refused("no.toml", says="no.toml")
        self.refused("--model.heads=3", says="model.heads")
        self.refused("--model.widht=8", says="--model.width")
        self.refused("--model.width=0", says="model.width")
        self.refused("--experts.layers=2", "--experts.placement=top", says="experts.placement")
        self.refused("--experts.layers=20", says="experts.layers")
        self.refused("--workers=0", says="at least 1")
        self.refused("--experts.layers=1", "--workers=3", "--training.batch=3", says="experts.count")


if __name__ == "__main__":
    unittest.main()
