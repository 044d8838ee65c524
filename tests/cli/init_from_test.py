# SPDX-License-Identifier: Apache-2.0
"""`train --init-from`: a new run with the shape and the weights of another model, dense or upcycled."""

import tomllib
import unittest

from in_folder import InFolder
from safetensors.numpy import load_file

SHAPE = "--model.width=24 --model.layers=2 --model.heads=3 --model.context=16".split()
TRAINING = (
    "--training.threads=1 --training.batch=8 --training.validate_every=0 --training.validate_batches=2 --training.last_validate_batches=2 --training.sample_tokens=0 "
    "--data.builtin_bytes=60000 --optimizer.warmup_steps=2"
).split()
STILL = ["--training.steps=1", "--optimizer.learning_rate=0"]  # the weights are those it started from
REPLACED = "--experts.layers=2 --experts.count=4 --experts.placement=replace".split()
COPIES = [*REPLACED, "--upcycle=copy"]


class InitFrom(InFolder):
    def setUp(self):
        super().setUp()
        self.run_well("train", *SHAPE, *TRAINING, "--training.steps=30", "--optimizer.learning_rate=5e-3", "--run", "dense")
        self.dense = self.validation("dense")["valid_loss"]

    def start(self, run, *words, source="dense"):
        result = self.run_well("train", *TRAINING, *STILL, *words, "--init-from", source, "--run", run)
        return self.validation(run)["valid_loss"], result.stderr

    def config(self, run):
        return tomllib.loads((self.folder / run / "config.toml").read_text())

    def test_the_shape_comes_along_and_only_what_is_said_changes(self):
        loss, _ = self.start("same")
        self.assertAlmostEqual(loss, self.dense, places=6)
        self.assertEqual(self.config("same")["model"], self.config("dense")["model"])
        (self.folder / "more.toml").write_text("[experts]\nlayers = 1\ncount = 4\n[model]\nheads = 3\n")
        loss, _ = self.start("sparse", "--config", "more.toml")
        self.assertAlmostEqual(loss, self.dense, places=5)
        self.assertEqual(self.config("sparse")["model"], self.config("dense")["model"])
        loss, _ = self.start("again", source="sparse")
        self.assertAlmostEqual(loss, self.validation("sparse")["valid_loss"], places=5)
        self.assertEqual(self.config("again")["experts"], self.config("sparse")["experts"])
        self.refused("train", *TRAINING, "--init-from", "dense", "--model.width=48", "--run", "wide", says=["another configuration"])
        self.refused("train", *TRAINING, "--init-from", "nothing", "--run", "none", says=["nothing"])

    def test_a_run_goes_on_though_what_it_started_from_is_gone(self):
        (self.folder / "more.toml").write_text("[experts]\nlayers = 1\ncount = 4\n")
        start = ["train", *TRAINING, "--config", "more.toml", "--init-from", "dense", "--run", "sparse"]
        self.run_well(*start, "--training.steps=2")
        (self.folder / "dense").rename(self.folder / "elsewhere")
        self.run_well(*start, "--resume", "auto", "--training.steps=4")
        self.assertEqual(max(self.losses("sparse")), 4)

    def test_a_folder_of_hugging_faces_is_taken_as_it_is(self):
        self.run_well("export", "dense", "--format", "hf", "--out", "theirs")
        loss, _ = self.start("from theirs", source="theirs")
        self.assertAlmostEqual(loss, self.dense, places=5)
        left = {path.name for path in (self.folder / "from theirs").iterdir()}
        self.assertFalse({name for name in left if "tmp" in name or "initial" in name}, left)
        sparse, _ = self.start("sparse from theirs", "--experts.layers=1", "--experts.count=4", source="theirs")
        self.assertAlmostEqual(sparse, self.dense, places=5)

    def test_copies_of_feed_forwards_compute_what_these_did(self):
        gates = ["--experts.router=sparsely_gated", *COPIES]
        loss, said = self.start("copies", *gates, "--upcycle-noise=0")
        self.assertIn("left out: block.0 feed-forward, block.1 feed-forward", said)
        self.assertAlmostEqual(loss, self.dense, places=5)
        noisy, _ = self.start("noisy", *gates)
        self.assertNotEqual(noisy, loss)
        self.assertAlmostEqual(noisy, self.dense, delta=0.01)
        self.run_well("export", "noisy", "--out", "exported")
        tensors = load_file(self.folder / "exported" / "model.safetensors")
        one, other = (tensors[f"layer.1.expert.{expert}.sublayer.0.up.weight"] for expert in (0, 3))
        self.assertFalse((one == other).all(), "experts can part")
        self.assertLess(abs(one - other).max(), 0.1 * abs(one).max())
        # By two workers each has half of the experts, with the same noise.
        both, _ = self.start("by two", *gates, "--workers", 2)
        self.assertAlmostEqual(both, noisy, places=5)

    def test_single_experts_start_near_the_dense_model(self):
        untrained = {"base": "--experts.router=base", "switch": "--experts.router=switch",
                     "sigmoid": "--experts.gate=sigmoid"}
        for run, knob in untrained.items():
            with self.subTest(run):
                loss, _ = self.start(run, knob, *COPIES)
                fresh, _ = self.start(f"{run} fresh", knob, *REPLACED)
                self.assertLess(abs(loss - self.dense), 0.3 * abs(fresh - self.dense))

    def test_what_cannot_be_copied_is_refused(self):
        train = ["train", *TRAINING, "--run", "none"]
        self.refused(*train, "--upcycle=copy", says=["--init-from"])
        self.refused(*train, "--init-from", "dense", "--upcycle=copy", says=["experts.placement replace"])
        self.refused(*train, "--init-from", "dense", *COPIES, "--experts.hidden=12", says=["experts.hidden"])
        self.start("sparse", *COPIES)
        self.refused(*train, "--init-from", "sparse", *COPIES, says=["block.0.feed_forward.up.weight", "to copy"])
        self.assertFalse((self.folder / "none").exists())


if __name__ == "__main__":
    unittest.main()
