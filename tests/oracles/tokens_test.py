# SPDX-License-Identifier: Apache-2.0
"""numpy reads our token files by docs/file_formats.md, and we read what numpy writes for other programs."""
import json
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest

import numpy as np
import tokenizers

BALLAST = pathlib.Path(os.environ["BALLAST_BUILD"]) / "ballast"
READER = pathlib.Path(os.environ["BALLAST_BUILD"]) / "token_reader"

SHARD_HEADER = np.dtype([
    ("magic", "S8"), ("version", "<u4"), ("token_bytes", "<u4"), ("tokens", "<u8"), ("parts", "<u8"),
    ("documents", "<u8"), ("source_bytes", "<u8"), ("vocabulary_size", "<u4"), ("end_of_text", "<u4"),
    ("fingerprint", "<u8"), ("content_checksum", "<u8"), ("header_checksum", "<u8"),
])
DOCUMENT = np.dtype([("first_token", "<u8"), ("source_bytes", "<u8"), ("domain", "<u4"), ("kind", "<u4")])


def run(*arguments, stdin=None):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, input=stdin, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{arguments}: exit code {done.returncode}\n{done.stderr.decode()}")
    return done.stdout


def prepare(*arguments, **options):
    return json.loads(run(BALLAST, "prepare", *arguments, "--json", **options))


def read_shard(path):
    data = path.read_bytes()
    header = np.frombuffer(data, SHARD_HEADER, 1)[0]
    assert header["magic"] == b"BLSTTOK" and header["version"] == 1
    dtype = {2: "<u2", 4: "<u4"}[int(header["token_bytes"])]
    tokens = np.frombuffer(data, dtype, header["tokens"], 80)
    table = 80 + (tokens.nbytes + 7) // 8 * 8
    documents = np.frombuffer(data, DOCUMENT, header["parts"], table)
    assert table + documents.nbytes == len(data)
    return header, tokens, documents


def read_split(folder, split):
    index = json.loads((folder / "index.json").read_text())
    shards = [read_shard(folder / shard["file"]) for shard in index["splits"][split]["shards"]]
    return index, shards, np.concatenate([tokens for _, tokens, _ in shards])


def ballast_reads(path, split="train"):
    return json.loads(run(READER, path, split))


class OurShards(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        self.addCleanup(self.temporary.cleanup)
        generator = np.random.default_rng(5)
        words = ["ballast", "Köln", "日本", "x", "don't", "🙂", "1234", "--"]
        self.documents = [" ".join(generator.choice(words, generator.integers(1, 400))) for _ in range(60)]
        (self.folder / "text.txt").write_text("\n<|endoftext|>\n".join(self.documents), encoding="utf-8")

    def check(self, split_tokens, index, shards):
        split = index["splits"]["train"]
        self.assertEqual(split["tokens"], len(split_tokens))
        for (header, tokens, documents), shard in zip(shards, split["shards"], strict=True):
            for key in ["tokens", "parts", "documents", "source_bytes"]:
                self.assertEqual(int(header[key]), shard[key])
            self.assertEqual(f"{int(header['content_checksum']):016x}", shard["checksum"])
            self.assertEqual(int(documents["source_bytes"].sum()), shard["source_bytes"])
            self.assertEqual(int((documents["kind"] == 0).sum()), shard["documents"])
            self.assertLessEqual(len(tokens), 2000)
        self.assertEqual(sum(s["documents"] for s in split["shards"]), len(self.documents))

    def test_bytes(self):
        out = self.folder / "data"
        summary = prepare(self.folder / "text.txt", "--out", out, "--valid-fraction", "0", "--shard-tokens", "2000")
        self.assertEqual(summary["validation"], "none")
        index, shards, tokens = read_split(out, "train")
        self.check(tokens, index, shards)
        expected = np.concatenate([list(d.encode()) + [256] for d in self.documents])
        np.testing.assert_array_equal(tokens, expected)
        self.assertEqual(index["splits"]["train"]["source_bytes"], sum(len(d.encode()) for d in self.documents))
        found = ballast_reads(out)
        self.assertEqual((found["format"], found["end_of_text"]), ("ballast", 256))
        np.testing.assert_array_equal(found["tokens"], expected)

    def test_bpe_as_hugging_face_encodes_it(self):
        out = self.folder / "data"
        prepare(self.folder / "text.txt", "--out", out, "--valid-fraction", "0", "--shard-tokens", "2000",
                "--tokenizer", "bpe", "--vocab-size", "300")
        index, shards, tokens = read_split(out, "train")
        self.check(tokens, index, shards)
        tokenizer = tokenizers.Tokenizer.from_file(str(out / "tokenizer.json"))
        end = index["tokenizer"]["end_of_text"]
        self.assertEqual(tokenizer.token_to_id("<|endoftext|>"), end)
        expected = np.concatenate([tokenizer.encode(d).ids + [end] for d in self.documents])
        np.testing.assert_array_equal(tokens, expected)

    def test_standard_input_is_read_like_a_file(self):
        text = (self.folder / "text.txt").read_bytes()
        for tokenizer in ["bytes", "bpe"]:
            common = ["--tokenizer", tokenizer] + (["--vocab-size", "300"] if tokenizer == "bpe" else [])
            prepare(self.folder / "text.txt", "--out", self.folder / f"file-{tokenizer}", *common)
            prepare("text=-", "--out", self.folder / f"pipe-{tokenizer}", *common, stdin=text)
            for one in sorted((self.folder / f"file-{tokenizer}").iterdir()):
                other = self.folder / f"pipe-{tokenizer}" / one.name
                self.assertEqual(one.read_bytes(), other.read_bytes(), one.name)

    def test_builtin_corpus_tells_its_entropy_floor(self):
        out = self.folder / "builtin"
        summary = prepare("builtin", "--builtin-bytes", "200kB", "--out", out, "--seed", "3")
        for split in ["train", "valid"]:
            index, _, tokens = read_split(out, split)
            nats = index["splits"][split]["nats"]
            self.assertAlmostEqual(nats, sum(d["nats"] for d in index["splits"][split]["domains"]), places=6)
            self.assertAlmostEqual(summary["splits"][split]["floor_nats_per_token"], nats / len(tokens), places=12)
            self.assertAlmostEqual(ballast_reads(out, split)["floor_per_token"], nats / len(tokens), places=12)
            self.assertAlmostEqual(summary["splits"][split]["floor_bits_per_byte"],
                                   nats / np.log(2) / index["splits"][split]["source_bytes"], places=12)


class ForeignFiles(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        self.addCleanup(self.temporary.cleanup)
        self.generator = np.random.default_rng(6)

    def expect(self, path, kind, tokens, split="train"):
        found = ballast_reads(path, split)
        self.assertEqual(found["format"], kind)
        np.testing.assert_array_equal(found["tokens"], tokens)

    def test_llmc(self):
        for magic, version, dtype, vocabulary in [(20240520, 1, np.uint16, 50257), (20240801, 7, np.uint32, 128256)]:
            tokens = self.generator.integers(0, vocabulary, 1000).astype(dtype)
            header = np.zeros(256, dtype=np.int32)
            header[:3] = magic, version, len(tokens)
            (self.folder / "shard.bin").write_bytes(header.tobytes() + tokens.tobytes())
            self.expect(self.folder / "shard.bin", "llm.c", tokens)

    def test_nanogpt(self):
        train, valid = (self.generator.integers(0, 50257, n).astype(np.uint16) for n in (1000, 100))
        train.tofile(self.folder / "train.bin")
        valid.tofile(self.folder / "val.bin")
        self.expect(self.folder / "train.bin", "nanoGPT", train)
        self.expect(self.folder, "nanoGPT", train)
        self.expect(self.folder, "nanoGPT", valid, "valid")

    def test_megatron_and_fairseq(self):
        types = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64,
                 8: np.uint16, 9: np.uint32, 10: np.uint64}
        for code, dtype in types.items():
            sequences = [self.generator.integers(0, 100, n).astype(dtype) for n in (5, 0, 17, 1, 200)]
            sizes = np.array([len(s) for s in sequences], dtype=np.int32)
            ends = np.cumsum(sizes.astype(np.int64) * np.dtype(dtype).itemsize)
            pointers = np.concatenate([[0], ends[:-1]]).astype(np.int64)
            (self.folder / "data.bin").write_bytes(b"".join(s.tobytes() for s in sequences))
            head = b"MMIDIDX\x00\x00" + struct.pack("<QBQ", 1, code, len(sizes))
            arrays = sizes.tobytes() + pointers.tobytes()
            bounds = np.arange(len(sizes) + 1, dtype=np.int64)
            megatron = head + struct.pack("<Q", len(bounds)) + arrays + bounds.tobytes()
            for kind, index in [("Megatron", megatron), ("fairseq", head + arrays)]:
                (self.folder / "data.idx").write_bytes(index)
                self.expect(self.folder / "data.idx", kind, np.concatenate(sequences))
                self.expect(self.folder / "data", kind, np.concatenate(sequences))


if __name__ == "__main__":
    unittest.main()
