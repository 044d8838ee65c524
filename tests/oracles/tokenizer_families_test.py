# SPDX-License-Identifier: Apache-2.0
"""The tokenizers of today's model families: ids and text as Hugging Face `tokenizers` has them."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from nasty_text import code_points, nasty_text, random_texts
from tokenizer_families import ALPHABET, DEEPSEEK, FAMILIES, LLAMA3, O200K, QWEN2, splits
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

REAL = ("gpt2", "llama3", "qwen2", "olmoe", "llama2", "mistral")  # the others show one part each
TOOL = os.path.join(os.environ["BALLAST_BUILD"], "tokenizer_tool")


class FamiliesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def ours(self, tokenizer, texts):
        """All that tokenizer_tool tells of the texts (str or bytes)."""
        path = self.folder / "tokenizer.json"
        tokenizer.save(str(path))
        hexes = [(t if isinstance(t, bytes) else t.encode()).hex() for t in texts]
        done = subprocess.run([TOOL, str(path)], input=json.dumps(hexes).encode(), capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return json.loads(done.stdout)

    def compare(self, tokenizer, texts):
        ours = self.ours(tokenizer, texts)
        encoded = tokenizer.encode_batch(texts, add_special_tokens=False)
        for text, theirs, ids, decoded in zip(texts, encoded, ours["ids"], ours["decoded"], strict=True):
            if ids != theirs.ids:
                differ = next((i for i, (a, b) in enumerate(zip(ids, theirs.ids)) if a != b), min(len(ids), len(theirs.ids)))
                self.fail(f"ids differ at {differ} in {text[:200]!r}: ours "
                          f"{[tokenizer.id_to_token(i) for i in ids[differ:differ + 9]]}, "
                          f"theirs {theirs.tokens[differ:differ + 9]}")
            self.assertEqual(bytes.fromhex(decoded).decode(errors="replace"),
                             tokenizer.decode(theirs.ids, skip_special_tokens=False), repr(text[:200]))
        return ours

    def test_ids_and_text_of_each_family(self):
        for name, make in FAMILIES.items():
            with self.subTest(name):
                tokenizer = make()
                added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
                count = 3000 if name in REAL else 600
                texts = [nasty_text(1, 10000), *(nasty_text(seed, seed % 9 + 1) for seed in range(2, 100)),
                         *random_texts(7, count, added), "", " ", "  ", "\n", "a", "\u2581", "\u2581a \u2581", "a" * 5000]
                self.compare(tokenizer, texts)

    def test_boundaries_around_every_code_point(self):
        # Merges across every possible boundary, so that a wrong boundary shows in the ids.
        alphabet = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        neighbours = [alphabet.pre_tokenize_str(c)[0][0] for c in "aA1! \n'"]
        high = [c for c in ALPHABET if not "!" <= c <= "~"]
        merges = [pair for n in neighbours for c in high for pair in ((n, c), (c, n))]
        merges = list(dict.fromkeys(merges + [(a, b) for a in neighbours for b in neighbours]))
        tokens = ALPHABET + list(dict.fromkeys(a + b for a, b in merges))
        tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens(["<|endoftext|>"])
        points = list(code_points(sample=101))
        templates = ("a{0}1{0}!{0} {0}\n", " {0} {0}A{0}{0}1 {0}!\n{0}\n", "'{0}'s{0} A{0}a{0}'LL")
        for patterns in ((LLAMA3,), (QWEN2,), (O200K,), DEEPSEEK):
            tokenizer.pre_tokenizer = splits(*patterns)
            for template in templates if patterns == (LLAMA3,) else templates[2:]:
                texts = ["".join(template.format(chr(c)) for c in points[i:i + 5000]) for i in range(0, len(points), 5000)]
                with self.subTest(patterns=patterns, template=template):
                    self.compare(tokenizer, texts)

    def test_normal_forms_of_every_code_point(self):
        points = list(code_points(sample=101))
        for form in ("NFC", "NFD", "NFKC", "NFKD"):
            tokenizer = FAMILIES[form]()
            for template in ("{0}", "e{0}\u0301", "\u0345{0}\u0334", "\u0323{0}\u0307a"):
                with self.subTest(form=form, template=template):
                    self.compare(tokenizer, ["".join(template.format(chr(c)) for c in points[i:i + 2000])
                                             for i in range(0, len(points), 2000)])

    def test_bytes_that_are_not_utf8_come_back(self):
        texts = [b"\xff", b"\xe4\xb8", b"a\xc3 \xc3\xa9\xf5\n", bytes(range(256)), "\u6f22".encode()[1:] + b" \xed\xa0\x80 x"]
        for name in ("gpt2", "llama3", "qwen2", "olmoe", "o200k", "deepseek", "llama2", "mistral", "cut words"):
            decoded = self.ours(FAMILIES[name](), texts)["decoded"]
            for text, again in zip(texts, decoded, strict=True):
                self.assertEqual(bytes.fromhex(again), text, name)

    def test_what_stands_around_a_text(self):
        for name, make in FAMILIES.items():
            tokenizer = make()
            plain = tokenizer.encode("some text", add_special_tokens=False).ids
            framed = tokenizer.encode("some text").ids
            ours = self.ours(tokenizer, ["some text"])
            self.assertEqual(ours["begin"] + plain + ours["end"], framed, name)

    def test_pieces_of_a_text_give_the_ids_of_the_whole(self):
        pieces = ["The first", " piece ends.", " The  next\n\nhas lines", "\nand 123", " 45,\n\u6f22\u5b57", "  end"]
        for name in ("gpt2", "llama3", "qwen2", "olmoe", "llama2", "mistral", "always", "never", "cut words"):
            tokenizer = FAMILIES[name]()
            ours = self.ours(tokenizer, pieces)
            ids = sum(ours["continued"][1:], ours["ids"][0])
            self.assertEqual(ids, tokenizer.encode("".join(pieces), add_special_tokens=False).ids, name)

    def test_end_of_text(self):
        for name, end in (("llama3", "<|end_of_text|>"), ("qwen2", "<|endoftext|>"), ("llama2", "</s>")):
            tokenizer = FAMILIES[name]()
            self.assertEqual(self.ours(tokenizer, [])["end_of_text"], tokenizer.token_to_id(end))


if __name__ == "__main__":
    unittest.main()
