# SPDX-License-Identifier: Apache-2.0
"""`ballast prepare` on what people have: folders of all kinds of files, with splits in their names."""
import gzip
import json
import os
import pathlib
import pickle
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["BALLAST_BUILD"])


class PrepareInput(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def run_prepare(self, *arguments):
        return subprocess.run([BUILD / "ballast", "prepare", *arguments, "--out", "out", "--overwrite"], cwd=self.folder,
                              capture_output=True, text=True)

    def prepared(self, *arguments):
        result = self.run_prepare(*arguments, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def refused(self, *arguments):
        result = self.run_prepare(*arguments)
        self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
        self.assertFalse((self.folder / "out").exists())
        return result.stderr

    def text_of(self, split):
        """Of a data set of bytes, its documents."""
        data = b"".join(path.read_bytes()[80:] for path in sorted((self.folder / "out").glob(f"{split}-*.tokens")))
        tokens = json.loads((self.folder / "out/index.json").read_text())["splits"][split]["tokens"]
        ids = [int.from_bytes(data[2 * i:2 * i + 2], "little") for i in range(tokens)]
        return "".join("|" if token == 256 else chr(token) for token in ids)


class Splits(PrepareInput):
    def setUp(self):
        super().setUp()
        self.write("corpus/wiki.train.txt", "train words")
        self.write("corpus/wiki.valid.txt", "valid words")
        self.write("corpus/test/a.jsonl", '{"text": "test words"}\n')
        self.write("corpus/more.txt", "more")

    def test_names_tell_them(self):
        said = self.prepared("corpus")
        self.assertEqual({split: self.text_of(split) for split in said["splits"]},
                         {"train": "more|train words|", "valid": "valid words|", "test": "test words|"})
        self.assertEqual(said["named_files"], {"train": 1, "valid": 1, "test": 1})
        self.assertEqual(said["validation"], "named")
        self.assertEqual({name: split["input_files"] for name, split in said["splits"].items()},
                         {"train": 2, "valid": 1, "test": 1})
        self.assertEqual(said["domains"], ["corpus"])
        text = self.run_prepare("corpus").stdout
        self.assertRegex(text, r"by name +test 1 file, train 1 file, valid 1 file \(--ignore-split-names")

    def test_on_request_they_tell_nothing(self):
        said = self.prepared("corpus", "--ignore-split-names", "--valid-fraction", "0")
        self.assertEqual(self.text_of("train"), "more|test words|train words|valid words|")
        self.assertEqual((list(said["splits"]), said["named_files"]), (["train"], {}))

    def test_without_a_name_for_validation_it_is_taken_from_the_rest(self):
        self.write("many/train.txt", "".join(f"document {i}\n<|endoftext|>\n" for i in range(200)))
        self.write("many/test.txt", "".join(f"test {i}\n<|endoftext|>\n" for i in range(200)))
        said = self.prepared("many", "--valid-fraction", "0.2")
        self.assertEqual(said["validation"], "documents")
        self.assertEqual(said["splits"]["test"]["documents"], 200)
        self.assertEqual(said["splits"]["train"]["documents"] + said["splits"]["valid"]["documents"], 200)
        self.assertGreater(said["splits"]["valid"]["documents"], 20)
        self.assertNotIn("test", self.text_of("valid"))

    def test_a_vocabulary_is_not_trained_on_what_is_held_out(self):
        self.write("corpus/wiki.valid.txt", "zyzyzyzy zyzyzyzy " * 1000)
        self.write("corpus/more.txt", "abab " * 1000)
        self.prepared("corpus", "--tokenizer", "bpe", "--vocab-size", "262")
        self.assertNotIn("zy", (self.folder / "out/tokenizer.json").read_text())

    def test_validation_text_is_validation_whatever_its_name(self):
        said = self.prepared("corpus/more.txt", "--valid", "corpus/wiki.train.txt", "corpus/test")
        self.assertEqual((self.text_of("train"), self.text_of("valid")), ("more|", "train words|test words|"))
        self.assertEqual((said["validation"], said["splits"]["valid"]["input_files"]), ("given", 2))

    def test_a_file_that_is_alone_may_have_any_name(self):
        self.write("test.txt", "some words\n" * 100)
        said = self.prepared("test.txt")
        self.assertEqual((said["validation"], said["domains"], said["named_files"]), ("tail", ["test"], {}))

    def test_a_model_can_be_evaluated_on_the_test_split(self):
        self.prepared("corpus")
        self.run_ballast("prepare", "--verify", "out")
        tiny = "--model.width=8 --model.layers=1 --model.heads=1 --model.context=8 --training.batch=2 --training.steps=2"
        self.run_ballast("train", "--data", "out", "--run", "run", "--training.sample_tokens=0", *tiny.split())
        said = json.loads(self.run_ballast("eval", "run", "--data", "out", "--split", "test", "--json"))
        self.assertEqual(said["tokens"], len("test words|"))

    def run_ballast(self, *arguments):
        result = subprocess.run([BUILD / "ballast", *arguments], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout


class ValidationText(PrepareInput):
    """All inputs after --valid are validation text. The second was taken for training text once."""

    def test_it_may_be_several_files(self):
        for name in "abc":
            self.write(f"{name}.txt", name * 5)
        self.prepared("c.txt", "--valid", "a.txt", "b.txt")
        self.assertEqual((self.text_of("train"), self.text_of("valid")), ("ccccc|", "aaaaa|bbbbb|"))
        self.prepared("c.txt", "--valid", "a.txt", "--valid", "b.txt")
        self.assertEqual((self.text_of("train"), self.text_of("valid")), ("ccccc|", "aaaaa|bbbbb|"))
        self.prepared("--valid", "a.txt", "--threads", "1", "c.txt")
        self.assertEqual((self.text_of("train"), self.text_of("valid")), ("ccccc|", "aaaaa|"))

    def test_without_training_text_it_is_refused(self):
        self.write("a.txt", "a")
        self.write("b.txt", "b")
        self.assertIn("before --valid, which takes all that follows", self.refused("--valid", "a.txt", "b.txt"))


class Domains(PrepareInput):
    def test_are_inputs_files_or_folders(self):
        self.write("pile/code/a.txt", "code")
        self.write("pile/law/b.train.txt", "law")
        self.write("pile/law/b.valid.txt", "law")
        self.write("pile/c.txt", "c")
        self.assertEqual(self.prepared("pile")["domains"], ["pile"])
        self.assertEqual(self.prepared("pile", "--domains", "file")["domains"], ["c", "code/a", "law/b"])
        self.assertEqual(self.prepared("pile", "--domains", "folder")["domains"], ["pile", "code", "law"])
        index = json.loads((self.folder / "out/index.json").read_text())
        self.assertEqual([row["documents"] for row in index["splits"]["valid"]["domains"]], [0, 0, 1])
        self.assertIn("folder", self.refused_format("--domains", "author"))
        self.assertRegex(self.run_prepare("pile", "--domains", "folder").stdout, r"documents +tokens +text +domain")

    def refused_format(self, *arguments):
        return self.run_prepare("pile", *arguments).stderr


class WhatIsTaken(PrepareInput):
    def test_what_is_not_text_is_skipped_in_a_folder_and_told(self):
        self.write("mixed/a.txt", "text")
        self.write("mixed/b.jsonl.gz", gzip.compress(b'{"text": "line"}\n{"text": ""}\n'))
        self.write("mixed/paper.pdf", b"%PDF-1.4 ...")
        self.write("mixed/model.pkl", pickle.dumps({"weights": [1.0] * 100}))
        self.write("mixed/noise.bin", bytes(range(256)))
        self.write("mixed/latin.txt", "Привет, мир".encode("cp1251"))
        self.write("mixed/empty.txt", b"")
        self.write("mixed/.hidden", b"text")
        said = self.prepared("mixed")
        reasons = {pathlib.Path(row["file"]).name: row["reason"] for row in said["skipped"]}
        self.assertEqual(set(reasons), {"paper.pdf", "model.pkl", "noise.bin", "latin.txt", "empty.txt", ".hidden"})
        for name, reason in [("paper.pdf", "PDF"), ("model.pkl", "pickle"), ("noise.bin", "NUL"), ("latin.txt", "UTF-8"),
                             ("empty.txt", "empty"), (".hidden", "hidden")]:
            self.assertIn(reason, reasons[name])
        self.assertEqual(said["empty_documents"], 1)
        text = self.run_prepare("mixed").stdout
        self.assertIn("mixed/paper.pdf is a PDF", text)
        self.assertIn("skipped        6 files", text)
        self.assertIn("1 document without any text", text)
        self.assertRegex(text, r"train +2 +2 ")

    def test_given_itself_it_is_refused_by_name(self):
        self.write("paper.pdf", b"%PDF-1.4 ...")
        self.write("model.pt", pickle.dumps([1]))
        self.write("weights.safetensors", (10).to_bytes(8, "little") + b'{"a":{}}  ')
        self.write("noise", bytes(range(256)))
        for name, words in [("paper.pdf", "a PDF"), ("model.pt", "a pickle"), ("weights.safetensors", "safetensors"),
                            ("noise", "NUL bytes")]:
            self.assertIn(f"{name} is not text: it is", message := self.refused(name))
            self.assertIn(words, message)

    def test_a_bad_line_is_named(self):
        self.write("a.jsonl", '{"text": "x"}\n{"body": "y"}\n')
        self.assertIn("a.jsonl, line 2: it has no field 'text'; its fields are: body", self.refused("a.jsonl"))
        self.write("b.jsonl.gz", gzip.compress(b'{"body": 3}\n'))
        self.assertIn("b.jsonl.gz, line 1: its field 'body' is a number", self.refused("b.jsonl.gz", "--field", "body"))
        self.write("c.jsonl", '{"text": "x"}\n{"text": "cut')
        self.assertIn("c.jsonl, line 2: its JSON is damaged", self.refused("c.jsonl"))

    def test_the_format_may_be_given(self):
        self.write("lines.txt", '{"text": "one"}\n{"text": "two"}\n')
        self.write("a.jsonl", "words\n")
        self.prepared("lines.txt", "--format", "jsonl", "--valid-fraction", "0")
        self.assertEqual(self.text_of("train"), "one|two|")
        self.prepared("a.jsonl", "--format", "text", "--valid-fraction", "0")
        self.assertEqual(self.text_of("train"), "words\n|")

    def test_options_for_text_are_refused_for_builtin(self):
        self.assertIn("--field is for text of your own", self.refused("builtin", "--field", "x"))


if __name__ == "__main__":
    unittest.main()
