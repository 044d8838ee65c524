# SPDX-License-Identifier: Apache-2.0
"""Our tokenizer and Hugging Face's: the same ids, the same merges, each reads the other's files."""
import json
import os
import pathlib
import random
import subprocess
import tempfile
import unittest

from nasty_text import END_OF_TEXT, NASTY, code_points, nasty_text
from tokenizers import AddedToken, ByteLevelBPETokenizer, Tokenizer, decoders, models, pre_tokenizers, trainers

BALLAST = os.path.join(os.environ["BALLAST_BUILD"], "ballast")
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())


def hugging_face(tokens, merges=(), added=(END_OF_TEXT,)):
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    for token in added:
        tokenizer.add_special_tokens([token])
    return tokenizer


class TokenizerTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def path(self, name):
        return str(self.folder / name)

    def bench(self, text, *options):
        """Runs `ballast bench tokenizer` on a text (str or bytes)."""
        path = self.folder / "text"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        command = [BALLAST, "bench", "tokenizer", "--json", "--repeats", "1", "--text", str(path), *options]
        result = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        return json.loads(result.stdout)

    def ids(self, tokenizer, text):
        return self.bench(text, "--tokenizer", tokenizer, "--print-ids")["ids"]

    def train(self, text, vocabulary_size, name="trained"):
        self.bench(text, "--train", "--vocab-size", str(vocabulary_size), "--save", self.path(name))
        return self.path(name)

    def assert_same_ids(self, ours, theirs, text):
        expected, actual = theirs.encode(text).ids, self.ids(ours, text)
        if actual != expected:
            differ = next((i for i, (a, b) in enumerate(zip(actual, expected)) if a != b), min(len(actual), len(expected)))
            around = slice(max(0, differ - 5), differ + 5)
            self.fail(f"ids differ at {differ}: ours {actual[around]}, theirs {expected[around]}, "
                      f"text {theirs.decode(expected[around], skip_special_tokens=False)!r}")

    def test_same_boundaries_around_every_code_point(self):
        # Merges across every possible boundary, so that a wrong boundary shows in the ids.
        alphabet = pre_tokenizers.ByteLevel(add_prefix_space=False)
        neighbours = [alphabet.pre_tokenize_str(c)[0][0] for c in "a1! \n"]
        ascii_and_high = [c for c in ALPHABET if not "!" <= c <= "~"]  # more than the bytes from 0x80 on
        merges = [pair for n in neighbours for c in ascii_and_high for pair in ((n, c), (c, n))]
        merges += [(a, b) for a in neighbours for b in neighbours]
        merges = list(dict.fromkeys(merges))
        theirs = hugging_face(ALPHABET + list(dict.fromkeys(a + b for a, b in merges)), merges)
        theirs.save(self.path("tokenizer.json"))
        for template in ("a{0}1{0}!{0} {0}\n", " {0} {0}a{0}{0}1 {0}!\n{0}\n"):
            text = "".join(template.format(chr(c)) for c in code_points())
            self.assert_same_ids(self.path("tokenizer.json"), theirs, text)

    def test_same_ids_on_nasty_text(self):
        ours = self.train(nasty_text(0, 20000), 1500)
        theirs = Tokenizer.from_file(ours + "/tokenizer.json")
        self.assert_same_ids(ours, theirs, nasty_text(1, 100000))
        # Short ones: each ends in another way. Before a special token a text ends as it does alone, which some show.
        short = [nasty_text(seed, seed % 10 + 1) for seed in range(2, 202)]
        self.assert_same_ids(ours, theirs, END_OF_TEXT.join(short))
        for text in short[:10]:
            self.assert_same_ids(ours, theirs, text)

    def test_same_ids_on_a_megabyte_without_a_space(self):
        letters = random.Random(0)
        words = ["".join(letters.choices("abcdefgh", weights=range(1, 9), k=12)) for _ in range(5000)]
        ours = self.train(" ".join(words) + " " + nasty_text(0, 5000), 2000)
        theirs = Tokenizer.from_file(ours + "/tokenizer.json")
        self.assert_same_ids(ours, theirs, "".join(letters.choices("abcdefgh", k=1 << 20)))
        self.assert_same_ids(ours, theirs, "a" * (1 << 20))
        self.assert_same_ids(ours, theirs, "\u6f22\u5b57" * (1 << 17))

    def test_round_trip_of_any_bytes(self):
        noise = random.Random(0).randbytes(100000)
        ours = self.train(nasty_text(0, 5000).encode() + noise, 1000)
        for tokenizer in (ours, "bytes"):
            for text in (noise, nasty_text(1, 5000).encode()[1:-1], b"\xff", b"\xe4\xb8", bytes(range(256))):
                self.assertTrue(self.bench(text, "--tokenizer", tokenizer)["round_trip"])

    def test_added_tokens_are_found_alike(self):
        theirs = hugging_face(ALPHABET, added=[
            END_OF_TEXT, AddedToken("ab", normalized=False), AddedToken("abc", normalized=False),
            AddedToken("bcd", normalized=True), AddedToken("  ", normalized=True), AddedToken("\u00e9x", normalized=False),
            AddedToken("ca", normalized=True, special=False), AddedToken("<|", normalized=False)])
        theirs.save(self.path("tokenizer.json"))
        parts = ["a", "b", "c", "d", " ", "\n", "\u00e9", "x", "<", "|", END_OF_TEXT]
        self.assert_same_ids(self.path("tokenizer.json"), theirs, nasty_text(0, 50000, parts))
        for seed in range(8):
            self.assert_same_ids(self.path("tokenizer.json"), theirs, nasty_text(seed, 8, parts))

    def test_same_merges_as_the_hugging_face_trainer(self):
        texts = [nasty_text(3, 20000, [p for p in NASTY if p != END_OF_TEXT])]
        for seed, letters in enumerate(["ab", "abc", "a", "\u6f22\u5b57\u00e9", "abcdefghij"]):
            choose = random.Random(seed)
            texts.append(" ".join("".join(choose.choices(letters, k=choose.randint(1, 25))) for _ in range(300)))
        for text in texts:
            for size in (257, 258, 300, 1200):
                theirs = hugging_face([], added=[])
                theirs.train_from_iterator([text], trainers.BpeTrainer(
                    vocab_size=size - 1, initial_alphabet=ALPHABET, show_progress=False))
                theirs.add_special_tokens([END_OF_TEXT])
                with self.subTest(text=text[:40], size=size):
                    ours = self.train(text, size)
                    model = json.loads(pathlib.Path(ours, "tokenizer.json").read_text(encoding="utf-8"))["model"]
                    their_merges = json.loads(theirs.to_str())["model"]["merges"]
                    self.assertEqual([merge.split(" ") for merge in model["merges"]], their_merges)
                    self.assertEqual(model["vocab"], theirs.get_vocab())

    def test_hugging_face_reads_what_we_save(self):
        ours = self.train(nasty_text(0, 20000), 1000)
        text = nasty_text(5, 5000)
        expected = self.ids(ours, text)
        files = [f"{ours}/vocab.json", f"{ours}/merges.txt"]
        pair = Tokenizer(models.BPE.from_file(*files))
        pair.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        for theirs in (Tokenizer.from_file(f"{ours}/tokenizer.json"), pair, ByteLevelBPETokenizer(*files)):
            theirs.add_special_tokens([END_OF_TEXT])
            self.assertEqual(theirs.get_vocab_size(), 1000)
            self.assertEqual(theirs.token_to_id(END_OF_TEXT), 999)
            self.assertEqual(theirs.encode(text).ids, expected)
        self.assertEqual(Tokenizer.from_file(f"{ours}/tokenizer.json").decode(expected, skip_special_tokens=False), text)

    def test_we_read_what_hugging_face_saves(self):
        theirs = ByteLevelBPETokenizer()
        theirs.train_from_iterator([nasty_text(0, 20000)], vocab_size=800, special_tokens=[END_OF_TEXT],
                                   show_progress=False)
        theirs.save(self.path("tokenizer.json"))
        (self.folder / "pair").mkdir()
        theirs.save_model(self.path("pair"))
        text = nasty_text(6, 5000)
        for name in ("tokenizer.json", "pair"):
            self.assertEqual(self.ids(self.path(name), text), theirs.encode(text).ids)
        fingerprints = {self.bench("x", "--tokenizer", self.path(name))["fingerprint"] for name in ("tokenizer.json", "pair")}
        self.assertEqual(len(fingerprints), 1)

    def test_the_byte_tokenizer_as_a_file(self):
        self.bench("x", "--tokenizer", "bytes", "--save", self.path("bytes"))
        theirs = Tokenizer.from_file(self.path("bytes/tokenizer.json"))
        text = nasty_text(7, 5000)
        self.assertEqual(theirs.encode("a\u00e9" + END_OF_TEXT).ids, [97, 0xC3, 0xA9, 256])
        self.assert_same_ids("bytes", theirs, text)
        self.assert_same_ids(self.path("bytes"), theirs, text)

    def test_mistakes_end_with_code_2_and_say_what(self):
        (self.folder / "text").write_text("some text")
        for options, message in (
                (["--tokenizer", self.path("nowhere")], "no tokenizer at"),
                (["--tokenizer", str(self.folder)], "holds no tokenizer"),
                (["--train", "--vocab-size", "256"], "at least 257"),
                (["--text", self.path("nothing")], "nothing")):
            command = [BALLAST, "bench", "tokenizer", "--text", self.path("text")]
            if options[0] == "--text":
                command = command[:3]
            result = subprocess.run(command + options, capture_output=True, text=True, check=False)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn(message, result.stderr)


if __name__ == "__main__":
    unittest.main()
