# SPDX-License-Identifier: Apache-2.0
"""`ballast tokenize`: ids and pieces of a text, and the text of ids."""

import json
import sys
import unittest
from pathlib import Path

from in_folder import InFolder, ballast

sys.path.append(str(Path(__file__).resolve().parent.parent / "oracles"))
from tokenizer_families import FAMILIES  # noqa: E402


class Tokenize(InFolder):
    def json_of(self, *arguments, **options):
        return json.loads(self.run_well("tokenize", *arguments, "--json", **options).stdout)

    def test_bytes(self):
        result = self.run_well("tokenize", "hi\n", "--tokenizer", "bytes")
        self.assertEqual(result.stdout, "     104  h\n     105  i\n      10  \\n\n3 tokens of 3 bytes\n")
        self.assertEqual(self.json_of("h\u00e9", "--tokenizer", "bytes"), {
            "tokenizer": "bytes", "vocabulary_size": 257, "text_bytes": 3, "tokens": 3, "ids": [104, 0xC3, 0xA9],
            "pieces": ["h", "\\xc3", "\\xa9"], "begin": [], "end": []})

    def test_text_from_an_argument_a_file_and_standard_input(self):
        (self.folder / "text").write_text("some text")
        expected = list(b"some text")
        for arguments, options in ((["some text"], {}), (["--file", "text"], {}), (["--file", "-"], {"input": "some text"}),
                                   ([], {"input": "some text"})):
            found = self.json_of(*arguments, "--tokenizer", "bytes", **options)
            self.assertEqual(found["ids"], expected)
        self.assertEqual(self.run_well("tokenize", "--file", "text", "--count", "--tokenizer", "bytes").stdout, "9\n")
        self.assertEqual(self.json_of("abc", "--count", "--tokenizer", "bytes"), {"text_bytes": 3, "tokens": 3})
        self.assertEqual(self.json_of("", "--tokenizer", "bytes")["ids"], [])

    def test_hugging_face_files(self):
        text = "It's 1234 na\u00efve \u6f22\u5b57\n\n  tokens"
        for family in ("llama3", "qwen2", "llama2"):
            theirs = FAMILIES[family]()
            theirs.save(str(self.folder / "tokenizer.json"))
            for path in (".", "tokenizer.json"):
                found = self.json_of(text, "--tokenizer", path)
                self.assertEqual(found["ids"], theirs.encode(text, add_special_tokens=False).ids)
                framed = self.json_of(text, "--tokenizer", path, "--special")
                self.assertEqual(framed["ids"], theirs.encode(text).ids)
                self.assertEqual(found["begin"] + found["ids"] + found["end"], framed["ids"])
            ids = ",".join(map(str, found["ids"]))
            self.assertEqual(self.json_of("--ids", ids, "--tokenizer", ".")["text"], text)
            self.assertEqual(self.run_well("tokenize", "--ids", ids, "--tokenizer", ".").stdout, text + "\n")
            again = self.run_well("tokenize", "--ids", "-", "--tokenizer", ".", input=json.dumps(found["ids"]))
            self.assertEqual(again.stdout, text + "\n")

    def test_prepared_data_keep_the_file_they_were_prepared_with(self):
        theirs = FAMILIES["llama2"]()
        (self.folder / "llama").mkdir()
        theirs.save(str(self.folder / "llama/tokenizer.json"))
        (self.folder / "llama/tokenizer_config.json").write_text('{"eos_token":  "</s>"}')
        (self.folder / "text.txt").write_text("Some words of text.\n" * 500)
        self.run_well("prepare", "text.txt", "--tokenizer", "llama", "--out", "data")
        for name in ("tokenizer.json", "tokenizer_config.json"):
            self.assertEqual((self.folder / "data" / name).read_bytes(), (self.folder / "llama" / name).read_bytes())
        self.assertFalse((self.folder / "data/vocab.json").exists())
        self.run_well("prepare", "--verify", "data")
        self.run_well("prepare", "text.txt", "--tokenizer", "data", "--out", "data", "--overwrite")
        self.assertEqual(self.json_of("some words", "--tokenizer", "data")["ids"],
                         theirs.encode("some words", add_special_tokens=False).ids)

    def test_refusals(self):
        self.refused("tokenize", "a", says="--tokenizer is required")
        self.refused("tokenize", "a", "--tokenizer", "nowhere", says="no tokenizer at nowhere")
        self.refused("tokenize", "--file", "nothing", "--tokenizer", "bytes", says="nothing")
        self.refused("tokenize", "--ids", "1,x", "--tokenizer", "bytes", says='"x" is no token id')
        self.refused("tokenize", "--ids", "-5", "--tokenizer", "bytes", says='"-5" is no token id')
        self.refused("tokenize", "--ids", "300", "--tokenizer", "bytes", says="token id 300 is out of range")
        self.refused("tokenize", "a", "--ids", "3", "--tokenizer", "bytes", says="excludes")
        self.assertEqual(ballast("tokenize", "--help").returncode, 0)


if __name__ == "__main__":
    unittest.main()
