# SPDX-License-Identifier: Apache-2.0
"""ballast.load: logits and texts are those of the program, from runs, checkpoints and exports."""

import json
import subprocess
import tempfile
import unittest
from pathlib import Path

import package
import ballast
import numpy
import torch

KNOBS = ["--model.width", "16", "--model.layers", "2", "--model.heads", "2", "--model.context", "32", "--training.steps", "30",
         "--training.batch", "8", "--experts.layers", "1", "--experts.count", "4", "--data.builtin_bytes", "100000",
         "--training.device", "cpu", "--optimizer.average", "0.9"]


class Load(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.ballast("train", "--run", "run", *KNOBS)
        cls.ballast("export", "run", "--out", "export")
        cls.model = ballast.load(cls.folder / "run", device="cpu")

    @classmethod
    def ballast(cls, *words):
        return subprocess.run([package.BALLAST, *words], cwd=cls.folder, check=True, capture_output=True, text=True, timeout=300).stdout

    def test_what_it_tells(self):
        self.assertEqual((self.model.step, self.model.context, self.model.vocabulary), (30, 32, 257))
        self.assertEqual(self.model.config["experts"]["count"], 4)
        self.assertIn("step_", self.model.path)
        self.assertIn("30 steps", repr(self.model))

    def test_logits_are_the_programs(self):
        ids = list(range(40, 60))
        given = json.dumps({"tokens": ids, "continue": 0})
        subprocess.run([package.BUILD / "logits_tool", self.folder / "run", self.folder / "logits"], input=given,
                       capture_output=True, text=True, check=True)
        theirs = numpy.fromfile(self.folder / "logits", numpy.float32).reshape(20, 257)
        numpy.testing.assert_allclose(self.model.logits(ids).numpy(), theirs, rtol=1e-5, atol=1e-5)
        both = self.model.logits(torch.tensor([ids, ids[::-1]]))
        self.assertEqual(both.shape, (2, 20, 257))
        torch.testing.assert_close(both[0], self.model.logits(ids), rtol=1e-4, atol=1e-5)

    def test_ids_are_continued_by_the_largest_logit(self):
        text = [256, *b"Weather"]  # end-of-text stands before a document
        for _ in range(12):
            text.append(int(self.model.logits(text)[-1].argmax()))
        self.assertEqual(self.model.generate(list(b"Weather"), max_tokens=12, temperature=0, stop_at_end_of_text=False), text[8:])

    def test_texts_are_the_programs(self):
        words = ["--prompt", "Weather", "--max-tokens", "20", "--seed", "5", "--json", "--device", "cpu"]
        theirs = json.loads(self.ballast("generate", "run", *words))["completions"][0]["text"]
        self.assertEqual(self.model.generate("Weather", max_tokens=20, seed=5), theirs)
        self.assertEqual(self.model.generate(["Weather"], max_tokens=20, seed=5), [theirs])
        self.assertEqual(self.model.decode(self.model.encode("héllo")), "héllo")

    def test_exports_and_averages(self):
        exported, averaged = ballast.load(self.folder / "export"), ballast.load(self.folder / "run", average=True)
        ids = [1, 2, 3]
        torch.testing.assert_close(exported.logits(ids), self.model.logits(ids), rtol=1e-5, atol=1e-5)
        self.assertGreater((averaged.logits(ids) - self.model.logits(ids)).abs().max(), 1e-6)

    def test_threads_stay_as_they_were(self):
        self.assertEqual(torch.get_num_threads(), 1)

    def test_mistakes_are_named(self):
        self.assertRaisesRegex(ValueError, "nowhere", ballast.load, self.folder / "nowhere")
        self.assertRaisesRegex(RuntimeError, "1 to 32", self.model.logits, [0] * 33)
        self.assertRaisesRegex(RuntimeError, "0 to 256", self.model.logits, [257])
        self.assertRaisesRegex(RuntimeError, "no token 900", self.model.generate, [900])


if __name__ == "__main__":
    unittest.main()
