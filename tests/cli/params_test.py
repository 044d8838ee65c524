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

# Shared, of one expert, in all: as the paper prints them; None: not printed.
PAPER = {
    "dense_1.5b": (1.5e9, 0, 1.5e9),
    "dense_3b": (3e9, 0, 3e9),
    "dense_6b": (6e9, 0, 6e9),
    "base_44b": (1.3e9, 335e6, 44e9),
    "base_x2": (1.3e9, 335e6, 44e9),
    "base_x5": (1.3e9, 335e6, 44e9),
    "base_top": (1.3e9, 335e6, 44e9),
    "base_small": (1.5e9, 135e6, 18.8e9),
    "base_large": (840e6, 911e6, 117e9),
    "moe_52b": (0.91e9, None, 52.5e9),  # shared: as we read it; the paper says 1B
    "switch_52b": (0.91e9, None, 52.5e9),
    "moe_44b": (1.3e9, 335e6, 44e9),
    "switch_44b": (1.3e9, 335e6, 44e9),
}

KEYS = ["system", "shared", "per_expert", "total", "active", "trained", "flops_per_token", "vocabulary", "layers", "experts",
        "experts_of_token", "router", "placement", "base_layers", "sublayers", "workers", "model_parallel", "replicas",
        "experts_per_worker", "parameters_per_worker", "memory_per_worker"]

SYSTEMS = {
    "paper_base_44b": "BASE x1",
    "paper_base_small": "BASE x1, small experts",
    "paper_base_top": "BASE Top",
    "paper_base_x3": "BASE x3",
    "paper_dense_1.5b": "dense",
    "paper_dense_6b": "dense, model parallel x4",
    "paper_moe_44b": "Sparsely Gated MoE x1",
    "paper_moe_52b": "Sparsely Gated MoE in every other feed-forward",
    "paper_switch_52b": "Switch in every other feed-forward",
}

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
                if per_expert is not None:
                    self.assertAlmostEqual(size["per_expert"], per_expert, delta=0.05 * per_expert)
                self.assertAlmostEqual(size["total"], total, delta=0.05 * total)
                self.assertEqual(size["total"], size["shared"] + size["experts"] * size["per_expert"])
                self.assertEqual(size["active"], size["shared"] + size["experts_of_token"] * size["per_expert"])
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

    def test_a_worker_of_two_that_share_a_model(self):
        whole = self.counted(*SMALL)
        self.assertEqual((whole["workers"], whole["model_parallel"], whole["replicas"]), (1, 1, 1))
        half = self.counted(*SMALL, "--model-parallel=2")
        self.assertEqual((half["workers"], half["model_parallel"], half["replicas"]), (2, 2, 1))
        self.assertEqual(half["total"], whole["total"])
        # Attention, feed-forwards and the 11 tokens (6 and 5) are divided; norms, positions and output biases are not.
        block = (3 * 8 * 8 + 3 * 8 + 8 * 8) // 2 + 8 + (8 * 12 + 12 + 12 * 8) // 2 + 8 + 4 * 8
        self.assertEqual(half["parameters_per_worker"], 6 * 8 + 16 * 8 + 4 * block + 2 * 8)
        self.assertEqual(half["memory_per_worker"]["fp32"]["total"], 16 * half["parameters_per_worker"])
        more = self.counted(*SMALL, "--training.model_parallel=2", "--workers=8", "--training.batch=8")
        self.assertEqual((more["workers"], more["model_parallel"], more["replicas"]), (8, 2, 4))
        self.assertEqual(more["parameters_per_worker"], half["parameters_per_worker"])
        paper = self.counted(CONFIGS / "paper_dense_6b.toml", "--workers", 128)
        self.assertEqual((paper["model_parallel"], paper["replicas"]), (4, 32))
        self.assertAlmostEqual(paper["parameters_per_worker"] / paper["total"], 1 / 4, delta=0.001)

    def test_one_word_chooses_the_scale_of_a_file(self):
        for scale, expected in {"paper": (24, 128, 51200), "gpu": (12, 32, 8192), "laptop": (6, 8, 1024)}.items():
            size = self.counted(CONFIGS / "paper_switch_52b.toml", "--scale", scale)
            self.assertEqual((size["layers"], size["experts"], size["vocabulary"]), expected)
            self.assertEqual(size["system"], "Switch in every other feed-forward")
        over = self.counted(CONFIGS / "paper_switch_52b.toml", "--scale", "laptop", "--experts.count", 16)
        self.assertEqual(over["experts"], 16)
        self.assertIn("it has: paper", self.refused(CONFIGS / "first_run.toml", "--scale=gpu", says="first_run.toml"))
        self.refused("--scale=gpu", says="--config")
        self.refused(CONFIGS / "paper_base_44b.toml", "--scale=huge", says="laptop")

    def test_a_folder_is_a_row_for_each_file(self):
        presets = {p["name"]: p for p in self.counted(CONFIGS)["presets"]}
        self.assertEqual(sorted(presets), sorted(p.stem for p in CONFIGS.glob("*.toml")))
        for name, system in SYSTEMS.items():
            self.assertEqual(presets[name]["system"], system)
        one = self.counted(CONFIGS / "paper_moe_52b.toml")
        for key in ["total", "shared", "per_expert", "active", "flops_per_token"]:
            self.assertEqual(presets["paper_moe_52b"][key], one[key])
        laptop = ballast(CONFIGS, "--scale", "laptop")
        self.assertEqual(laptop.returncode, 0, laptop.stderr)
        self.assertIn("paper_switch_44b", laptop.stdout)
        self.assertNotIn("gpt2_124m", laptop.stdout)
        self.assertIn("gpt2_124m.toml has no scale laptop", laptop.stderr)
        self.refused(CONFIGS, "--workers=2", says="--workers")
        with tempfile.TemporaryDirectory() as folder:
            self.refused(folder, says="no config file")
            (Path(folder) / "bad.toml").write_text("[laptop.model]\nwidht = 3\n")
            self.refused(folder, says="model.width")

    def test_experts_are_divided_among_workers_and_the_rest_is_not(self):
        one = self.counted(*SMALL, "--experts.layers=1", "--experts.count=8")
        two = self.counted(*SMALL, "--experts.layers=1", "--experts.count=8", "--workers=2", "--training.batch=8")
        self.assertEqual(one["parameters_per_worker"], one["total"])
        self.assertEqual(two["parameters_per_worker"], two["shared"] + 4 * two["per_expert"])

    def test_a_dense_model_has_no_experts(self):
        size = self.counted(*SMALL)
        self.assertEqual((size["experts"], size["per_expert"], size["base_layers"], size["sublayers"]), (0, 0, [], 0))
        self.assertEqual((size["system"], size["router"], size["placement"], size["experts_of_token"]), ("dense", None, None, 0))
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
        moe = ballast(CONFIGS / "paper_moe_52b.toml", "--workers", 128).stdout
        for words in ["Sparsely Gated MoE in every other feed-forward", "916M", "52.5B", "12 MoE layers", "two experts",
                      "in place of every other of 24 feed-forwards"]:
            self.assertIn(words, moe)
        some = ballast(*SMALL, "--experts.layers=3", "--experts.placement=replace", "--experts.router=switch").stdout
        self.assertIn("Switch in 3 of 4 feed-forwards", some)
        self.assertIn("in place of the feed-forwards of blocks 1, 2 and 4 of 4", some)
        self.assertIn("2 to a replica", ballast(CONFIGS / "paper_dense_3b.toml", "--workers", 128).stdout)
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
        self.refused("--model-parallel=2", "--workers=3", says="training.model_parallel")
        self.refused("--model-parallel=3", says="model.heads")
        self.refused(*SMALL, "--model-parallel=2", "--model.vocabulary=1", says="model.vocabulary")
        self.refused("--experts.layers=1", "--experts.router=switch", "--experts.test_routing=priced", says="experts.test_routing")
        self.refused("--experts.layers=1", "--experts.router=sparsely_gated", "--experts.count=1", says="experts.count")
        self.refused("--experts.layers=1", "--workers=3", "--training.batch=3", says="experts.count")


if __name__ == "__main__":
    unittest.main()
