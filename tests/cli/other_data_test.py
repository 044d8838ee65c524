# SPDX-License-Identifier: Apache-2.0
"""A run goes on with the data and the tokenizer it was trained on, wherever they lie, and with no others unless told to."""

import json
import shutil
import struct
import unittest

from in_folder import TINY, InFolder


class OtherData(InFolder):
    def setUp(self):
        super().setUp()
        self.write_text("one.txt", 1)
        self.write_text("two.txt", 2)

    def write_text(self, name, factor):
        text = "".join(f"line {factor * i} of {i * i} things, of {name}\n" for i in range(800))
        (self.folder / name).write_text(text)

    def prepare(self, text, out, *more):
        self.run_well("prepare", text, "--out", out, "--overwrite", *more)

    def train(self, *more, run="run", steps=2):
        return ["train", *TINY, f"--training.steps={steps}", "--run", run, *more]

    def resume(self, *more, run="run", steps=4):
        return ["train", f"--training.steps={steps}", "--run", run, "--resume", "auto", *more]

    def manifest(self, step, run="run"):
        return json.loads((self.folder / run / f"checkpoints/step_{step:08d}/manifest.json").read_text())

    def test_other_data_in_the_same_folder_is_refused_with_both_named(self):
        self.prepare("one.txt", "data")
        self.run_well(*self.train("--data", "data"))
        before = {entry["role"]: entry["fingerprint"] for entry in self.manifest(2)["data"]}
        self.assertEqual(sorted(before), ["tokenizer", "train", "valid"])
        self.prepare("two.txt", "data")
        refused = self.refused(*self.resume(), says=["run was trained on other data", "training data: data (", "--allow-other-data"])
        self.assertIn(before["train"], refused.stderr)
        self.assertNotIn("tokenizer:", refused.stderr)
        self.assertEqual(len(json.loads((self.folder / "run/run.json").read_text())["starts"]), 1)
        self.run_well(*self.resume("--allow-other-data"))
        now = {entry["role"]: entry["fingerprint"] for entry in self.manifest(4)["data"]}
        self.assertNotEqual(now["train"], before["train"])
        self.run_well(*self.resume(steps=6))  # what it goes on with is its data from now on

    def test_another_tokenizer_is_refused_and_leaves_the_runs_own(self):
        bpe = ["--tokenizer", "bpe", "--vocab-size", "280"]
        self.prepare("one.txt", "data", *bpe)
        self.run_well(*self.train("--data", "data"))
        kept = (self.folder / "run/tokenizer/tokenizer.json").read_bytes()
        self.prepare("two.txt", "data", *bpe)
        self.refused(*self.resume(), says=["tokenizer: of the data (bpe of 280 tokens, fingerprint ", "is not the tokenizer of the data"])
        self.assertEqual((self.folder / "run/tokenizer/tokenizer.json").read_bytes(), kept)

    def test_an_edited_tokenizer_in_the_run_is_refused(self):
        self.prepare("one.txt", "data", "--tokenizer", "bpe", "--vocab-size", "280")
        self.run_well(*self.train("--data", "data"))
        file = self.folder / "run/tokenizer/tokenizer.json"
        edited = json.loads(file.read_text())
        edited["model"]["merges"][3], edited["model"]["merges"][4] = edited["model"]["merges"][4], edited["model"]["merges"][3]
        file.write_text(json.dumps(edited))
        says = ["run/tokenizer", "fingerprint"]
        self.refused(*self.resume(), says=says)
        self.refused("generate", "run", "--max-tokens", "4", says=says)
        self.refused("eval", "run", says=says)
        self.refused("export", "run", "--out", "export", says=says)
        chosen = self.run_well("generate", "run", "--max-tokens", "4", "--tokenizer", "run/tokenizer")
        self.assertIn("is not the one that", chosen.stderr)
        self.run_well(*self.resume("--allow-other-data"))
        self.run_well("generate", "run", "--max-tokens", "4")  # it was written again, from the data

    def test_an_exports_tokenizer_is_compared_too(self):
        self.prepare("one.txt", "data", "--tokenizer", "bpe", "--vocab-size", "280")
        self.prepare("two.txt", "other", "--tokenizer", "bpe", "--vocab-size", "280")
        self.run_well(*self.train("--data", "data"))
        self.run_well("export", "run", "--out", "export")
        shutil.copy(self.folder / "other/tokenizer.json", self.folder / "export/tokenizer/tokenizer.json")
        self.refused("generate", "export", "--max-tokens", "4", says=["export/tokenizer", "fingerprint"])

    def test_data_that_was_moved_is_the_same_data(self):
        self.prepare("one.txt", "data")
        self.run_well(*self.train("--data", "data"))
        (self.folder / "data").rename(self.folder / "elsewhere")
        self.refused(*self.resume(), says="data does not exist")
        self.run_well(*self.resume("--data", "elsewhere"))
        self.run_well(*self.resume(steps=5))  # it knows the new place
        self.prepare("one.txt", "again")  # made anew, and equal
        self.run_well(*self.resume("--data", "again", steps=6))

    def test_token_files_of_other_programs_are_told_apart_by_content(self):
        tokens = [i * i % 250 for i in range(5000)]
        file = self.folder / "tokens.bin"
        file.write_bytes(struct.pack("<5000H", *tokens))
        self.run_well(*self.train("--data", "tokens.bin", "--model.vocabulary=256"))
        tokens[4321] += 1
        file.write_bytes(struct.pack("<5000H", *tokens))
        self.refused(*self.resume(), says=["training data: tokens.bin (5000 tokens, fingerprint ", "-> tokens.bin (5000 tokens"])
        tokens[4321] -= 1
        (self.folder / "moved.bin").write_bytes(struct.pack("<5000H", *tokens))
        self.run_well(*self.resume("--data", "moved.bin"))

    def test_of_a_mix_every_source_its_place_and_its_weight_count(self):
        self.prepare("one.txt", "one")
        self.prepare("two.txt", "two")
        self.run_well(*self.train("--data", "one:2,two:1"))
        self.refused(*self.resume("--data", "two:2,one:1"), says="trained on other data")
        self.refused(*self.resume("--data", "one:1,two:1"), says="of the rows")
        self.refused(*self.resume("--data", "one"), says="two:1 (")
        self.run_well(*self.resume("--data", "one:4,two:2"))

    def test_the_built_in_corpus_is_compared_and_can_be_made_again(self):
        self.run_well(*self.train("--data.builtin_bytes=60000"))
        shutil.rmtree(self.folder / "run/data")
        self.run_well(*self.resume())
        shutil.rmtree(self.folder / "run/data")
        self.prepare("one.txt", "run/data")
        self.refused(*self.resume(steps=5), says="training data: builtin (")

    def test_other_validation_data_is_refused_by_eval(self):
        self.prepare("one.txt", "data")
        self.run_well(*self.train("--data", "data"))
        self.run_well("eval", "run")
        self.prepare("two.txt", "data")
        self.refused("eval", "run", says=["validation data is not what it was", "--data"])
        self.run_well("eval", "run", "--data", "data")

    def test_weights_may_be_trained_on_other_data(self):
        self.prepare("one.txt", "one")
        self.prepare("two.txt", "two")
        self.run_well(*self.train("--data", "one"))
        self.run_well(*self.train("--data", "two", "--init-from", "run", run="tuned"))
        self.run_well(*self.resume(run="tuned"))

    def test_workers_refuse_together(self):
        self.prepare("one.txt", "data")
        self.run_well(*self.train("--data", "data", "--workers", "2"))
        self.prepare("two.txt", "data")
        refused = self.refused(*self.resume("--workers", "2"), says="run was trained on other data")
        self.assertEqual(refused.stderr.count("trained on other data"), 1, refused.stderr)
        self.run_well(*self.resume("--workers", "2", "--allow-other-data"))


if __name__ == "__main__":
    unittest.main()
