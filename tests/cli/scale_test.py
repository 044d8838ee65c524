# SPDX-License-Identifier: Apache-2.0
"""One word chooses among the sizes of a config file, and a run's record holds what came out."""

import os
import tomllib
import unittest
from pathlib import Path

from in_folder import InFolder

CONFIGS = Path(os.environ["BALLAST_SOURCE"]) / "configs"

TWO_SIZES = """
[model]
width = 512
[training]
batch = 4
[laptop.model]
width = 8
layers = 1
heads = 2
context = 16
[laptop.data]
builtin_bytes = 100_000
[laptop.training]
steps = 2
validate_batches = 1
sample_tokens = 0
"""


class Scale(InFolder):
    def setUp(self):
        super().setUp()
        (self.folder / "sizes.toml").write_text(TWO_SIZES)

    def resolved(self, *arguments):
        return tomllib.loads(self.run_well("train", *arguments, "--print-config").stdout)

    def test_train_reads_the_sizes_that_are_asked_for(self):
        preset = CONFIGS / "paper_moe_52b.toml"
        for scale, width, replaced in [("paper", 2048, 12), ("gpu", 512, 6), ("laptop", 64, 3)]:
            config = self.resolved(preset, "--scale", scale)
            self.assertEqual((config["model"]["width"], config["experts"]["layers"]), (width, replaced))
            self.assertEqual(config["experts"]["router"], "sparsely_gated")
        self.assertEqual(self.resolved(preset), self.resolved(preset, "--scale", "paper"))
        self.assertEqual(self.resolved(preset, "--scale=laptop", "--model.width=32")["model"]["width"], 32)

    def test_a_run_keeps_the_sizes_and_goes_on_with_or_without_the_file(self):
        self.run_well("train", "sizes.toml", "--scale", "laptop")
        stored = tomllib.loads((self.folder / "runs/sizes-laptop/config.toml").read_text())
        self.assertEqual((stored["model"]["width"], stored["training"]["batch"]), (8, 4))
        self.assertNotIn("laptop", stored)
        again = ["train", "--run", "runs/sizes-laptop", "--resume", "auto"]
        self.run_well(*again, "--training.steps=3")
        self.run_well(*again, "--training.steps=4", "--config", "sizes.toml", "--scale", "laptop")
        self.assertEqual(list(self.losses("runs/sizes-laptop")), [1, 2, 3, 4])
        self.refused(*again, "--config", "sizes.toml", says="model.width: 8 -> 512")

    def test_workers_that_are_started_read_the_same_sizes(self):
        self.run_well("train", "sizes.toml", "--scale", "laptop", "--workers", 2, "--run", "two")
        self.assertEqual(tomllib.loads((self.folder / "two/config.toml").read_text())["model"]["width"], 8)

    def test_what_cannot_be_chosen_is_refused(self):
        self.refused("train", "sizes.toml", "--scale", "gpu", says=["sizes.toml", "it has: paper, laptop"])
        self.refused("train", "sizes.toml", "--scale", "small", says="laptop")
        self.refused("train", "--scale", "laptop", says="--config FILE")
        (self.folder / "wrong.toml").write_text("[model]\nwidth = 8\n[gpu.model]\nwidht = 3\n")
        self.refused("train", "wrong.toml", says=["wrong.toml, line 4", "model.width"])


if __name__ == "__main__":
    unittest.main()
