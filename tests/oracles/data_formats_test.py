# SPDX-License-Identifier: Apache-2.0
"""`ballast prepare` on files that Python's own libraries wrote: what it makes of them is what it makes of the same
documents as plain text, to the byte."""
import bz2
import gzip
import io
import json
import os
import pathlib
import random
import subprocess
import tempfile
import unittest

import pyarrow
import pyarrow.parquet
import zstandard

BALLAST = pathlib.Path(os.environ["BALLAST_BUILD"]) / "ballast"


def make_documents():
    """Of all sizes, in several scripts, with everything that JSON escapes; the last of two megabytes."""
    choice = random.Random(7)
    words = ["plain", "words", "Grüße", "你好", "привет", "👋🏽", 'quo"ted', "back\\slash", "tab\there", "\u2028", "\x7f", "\x01"]
    documents = []
    for i in range(300):
        text = "".join(choice.choice(words) + choice.choice([" ", "\n", "  ", "\r\n"]) for _ in range(choice.randrange(1, 200)))
        documents.append(f"document {i}: {text}end")
    documents.append(" ".join(str(choice.random()) for _ in range(110_000)))
    return documents


DOCUMENTS = make_documents()


def plain(documents=DOCUMENTS):
    return "".join(document + "\n<|endoftext|>\n" for document in documents).encode()


def json_lines(field="text", ascii_only=True, documents=DOCUMENTS):
    lines = (json.dumps({"id": i, field: document, "meta": {"tags": [1, None]}}, ensure_ascii=ascii_only)
             for i, document in enumerate(documents))
    return "".join(line + "\n" for line in lines).encode()


class Formats(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def run_prepare(self, name, *more, environment=()):
        out = self.folder / "out"
        return subprocess.run([BALLAST, "prepare", f"corpus={self.folder / name}", "--out", out, "--overwrite", "--json", *more],
                              capture_output=True, text=True, env={**os.environ, **dict(environment)})

    def prepared(self, name, content, *more):
        """What `prepare` made of a file with that content: its files, and what it said."""
        if content is not None:
            (self.folder / name).write_bytes(content)
        result = self.run_prepare(name, *more)
        self.assertEqual(result.returncode, 0, result.stderr)
        said = json.loads(result.stdout)
        return {path.name: path.read_bytes() for path in (self.folder / "out").iterdir()}, said

    made_of_plain_text = {}  # by options: the same for all tests

    def expected(self, *more):
        if more not in self.made_of_plain_text:
            self.made_of_plain_text[more] = self.prepared("plain.txt", plain(), *more)[0]
        return self.made_of_plain_text[more]

    def refusal(self, name, content, *more):
        (self.folder / name).write_bytes(content)
        result = self.run_prepare(name, *more)
        self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
        self.assertIn(name, result.stderr)
        self.assertFalse((self.folder / "out").exists())
        return result.stderr


class Compressed(Formats):
    def test_gzip_zstd_and_json_lines_hold_the_same_text(self):
        expected = self.expected()
        for ascii_only in (True, False):
            lines = json_lines(ascii_only=ascii_only)
            self.assertEqual(self.prepared("a.jsonl", lines)[0], expected)
            self.assertEqual(self.prepared("a.jsonl.gz", gzip.compress(lines))[0], expected)
            self.assertEqual(self.prepared("a.jsonl.zst", zstandard.compress(lines))[0], expected)
        self.assertEqual(self.prepared("a.txt.gz", gzip.compress(plain()))[0], expected)
        self.assertEqual(self.prepared("a.txt.zst", zstandard.compress(plain()))[0], expected)
        self.assertEqual(self.prepared("a.ndjson", json_lines("content"), "--field", "content")[0], expected)

    def test_with_a_vocabulary_trained_on_it_too(self):
        bpe = ["--tokenizer", "bpe", "--vocab-size", "400", "--valid-fraction", "0.1"]
        self.assertEqual(self.prepared("a.jsonl.gz", gzip.compress(json_lines()), *bpe)[0], self.expected(*bpe))

    def test_several_members_and_frames(self):
        text = plain()
        cuts = [0, 1, 1000, 1000, len(text) // 2, len(text)]
        parts = [text[begin:end] for begin, end in zip(cuts, cuts[1:])]
        expected = self.expected()
        self.assertEqual(self.prepared("a.gz", b"".join(map(gzip.compress, parts)))[0], expected)
        self.assertEqual(self.prepared("a.zst", b"".join(map(zstandard.compress, parts)))[0], expected)

    def test_cut_off_at_any_place_it_is_refused(self):
        for name, packed in [("a.txt.gz", gzip.compress(plain(DOCUMENTS[:50]))),
                             ("a.jsonl.zst", zstandard.compress(json_lines(documents=DOCUMENTS[:50])))]:
            for size in (3, 20, len(packed) // 2, len(packed) - 4, len(packed) - 1):
                with self.subTest(name=name, size=size, of=len(packed)):
                    self.refusal(name, packed[:size])

    def test_changed_bytes_of_gzip_are_found(self):
        packed = gzip.compress(plain(DOCUMENTS[:50]))
        choice = random.Random(3)
        for _ in range(6):
            at = choice.randrange(10, len(packed))  # the header's time and system are not checked by anyone
            damaged = bytearray(packed)
            damaged[at] ^= 1 << choice.randrange(8)
            with self.subTest(at=at):
                self.refusal("a.txt.gz", bytes(damaged))

    def test_standard_input_may_be_packed_lines(self):
        expected = self.expected()
        for content in (json_lines(), gzip.compress(json_lines())):
            out = self.folder / "out"
            result = subprocess.run([BALLAST, "prepare", "corpus=-", "--format", "jsonl", "--out", out, "--overwrite"],
                                    input=content, capture_output=True)
            self.assertEqual(result.returncode, 0, result.stderr.decode())
            self.assertEqual({path.name: path.read_bytes() for path in out.iterdir()}, expected)

    def test_what_is_not_read_is_refused_by_its_name(self):
        self.assertIn("bzip2", self.refusal("a.bz2", bz2.compress(plain())))
        self.assertIn("does not start like gzip", self.refusal("b.jsonl.gz", json_lines()))


class Parquet(Formats):
    def write(self, name, columns, **how):
        pyarrow.parquet.write_table(pyarrow.table(columns), self.folder / name, **how)

    def test_each_row_is_a_document_however_it_was_written(self):
        expected = self.expected()
        columns = {"id": range(len(DOCUMENTS)), "text": DOCUMENTS}
        for how in ({}, {"compression": "gzip"}, {"compression": "zstd", "row_group_size": 7}, {"compression": "none"},
                    {"use_dictionary": False, "data_page_version": "2.0"}, {"compression": "lz4"}, {"compression": "brotli"},
                    {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY", "id": "PLAIN"}},
                    {"write_page_checksum": True, "data_page_size": 1000}):
            with self.subTest(how=how):
                self.write("a.parquet", columns, **how)
                self.assertEqual(self.prepared("a.parquet", None)[0], expected)

    def test_kinds_of_strings(self):
        expected = self.expected()
        for kind in (pyarrow.large_string(), pyarrow.binary(), pyarrow.string_view(),
                     pyarrow.dictionary(pyarrow.int32(), pyarrow.string())):
            with self.subTest(kind=str(kind)):
                self.write("a.parquet", {"text": pyarrow.array(DOCUMENTS).cast(kind)})
                self.assertEqual(self.prepared("a.parquet", None)[0], expected)
        required = pyarrow.schema([pyarrow.field("text", pyarrow.string(), nullable=False)])
        pyarrow.parquet.write_table(pyarrow.table({"text": DOCUMENTS}, schema=required), self.folder / "a.parquet")
        self.assertEqual(self.prepared("a.parquet", None)[0], expected)

    def test_the_column_is_chosen_by_field(self):
        self.write("part-0", {"text": ["no"] * len(DOCUMENTS), "content": DOCUMENTS})  # known by its first bytes
        self.assertEqual(self.prepared("part-0", None, "--field", "content")[0], self.expected())
        self.write("a.parquet", {"record": [{"body": document, "n": 1} for document in DOCUMENTS]})
        self.assertEqual(self.prepared("a.parquet", None, "--field", "record.body")[0], self.expected())

    def test_empty_rows_are_counted(self):
        self.write("a.parquet", {"text": ["", *DOCUMENTS, ""]}, row_group_size=100)
        files, said = self.prepared("a.parquet", None)
        self.assertEqual((files, said["empty_documents"]), (self.expected(), 2))

    def test_a_vocabulary_is_trained_on_it(self):
        bpe = ["--tokenizer", "bpe", "--vocab-size", "400"]
        self.write("a.parquet", {"text": DOCUMENTS})
        self.assertEqual(self.prepared("a.parquet", None, *bpe)[0], self.expected(*bpe))

    def bytes_of(self, columns, **how):
        buffer = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.table(columns), buffer, **how)
        return buffer.getvalue()

    def test_mistakes_are_named(self):
        good = self.bytes_of({"text": DOCUMENTS, "n": range(len(DOCUMENTS))})
        self.assertIn("has no column 'body'; its columns are: text, n", self.refusal("a.parquet", good, "--field", "body"))
        self.assertIn("its column 'n' holds INT64", self.refusal("a.parquet", good, "--field", "n"))
        lists = self.bytes_of({"text": [["a", "b"]]})
        self.assertIn("lists of", self.refusal("a.parquet", lists, "--field", "text.list.element"))
        nulls = self.bytes_of({"text": ["a"] * 99 + [None, "b"]})
        self.assertIn("row 100: its 'text' is null", self.refusal("a.parquet", nulls))
        self.assertIn("does not start like Parquet", self.refusal("a.parquet", b"text"))
        self.assertIn("not compressed", self.refusal("a.parquet.gz", gzip.compress(good)))
        self.assertIn("no text in", self.refusal("a.parquet", self.bytes_of({"text": pyarrow.array([], pyarrow.string())})))

    def test_cut_off_or_changed_it_is_refused(self):
        whole = self.bytes_of({"text": DOCUMENTS[:50]}, write_page_checksum=True)
        for size in (4, 12, len(whole) // 2, len(whole) - 1):
            with self.subTest(size=size):
                self.refusal("a.parquet", whole[:size])
        # Of the pages every byte counts. The schema's own words are not checked by anyone.
        choice = random.Random(5)
        for _ in range(6):
            at = choice.randrange(100, len(whole) // 2)
            damaged = bytearray(whole)
            damaged[at] ^= 1 << choice.randrange(8)
            with self.subTest(at=at):
                self.refusal("a.parquet", bytes(damaged))

    def test_memory_does_not_grow_with_the_row_group(self):
        table = pyarrow.table({"text": ["".join(f"row {i} says {j * i % 104729}\n" for j in range(1000)) for i in range(4000)]})
        self.assertGreater(table.nbytes, 60_000_000)
        pyarrow.parquet.write_table(table, self.folder / "a.parquet", row_group_size=10**6, use_dictionary=False)
        process = subprocess.Popen([BALLAST, "prepare", self.folder / "a.parquet", "--out", self.folder / "out"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0, process.communicate()[1])
        process.stderr.close()
        self.assertLess(usage.ru_maxrss * 1024, 500_000_000)

    def test_the_plugin_is_loaded_for_parquet_alone(self):
        self.write("a.parquet", {"text": DOCUMENTS})
        (self.folder / "a.txt").write_bytes(plain())
        for name, loads in (("a.parquet", True), ("a.txt", False)):
            result = self.run_prepare(name, environment={"LD_DEBUG": "files"}.items())
            self.assertEqual(("libballast_parquet.so" in result.stderr), loads, name)
            self.assertEqual(("libarrow.so" in result.stderr), loads, name)


if __name__ == "__main__":
    unittest.main()
