# SPDX-License-Identifier: Apache-2.0
"""`ballast prepare` as people and programs use it."""
import gzip
import json
import lzma
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

BALLAST = pathlib.Path(os.environ["BALLAST_BUILD"]) / "ballast"


def start(*arguments):
    return subprocess.Popen([BALLAST, "prepare", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def run(*arguments):
    process = start(*arguments)
    out, err = process.communicate()
    return process.returncode, out.decode(), err.decode()


class Prepare(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.text = self.folder / "text.txt"
        self.text.write_text("".join(f"line {i} of a small text\n" for i in range(2000)))
        self.out = self.folder / "data"

    def entries(self):
        return sorted(entry.name for entry in self.folder.iterdir())

    def refused(self, *arguments):
        code, out, err = run(*arguments)
        self.assertEqual((code, out), (2, ""), err)
        return err

    def test_summary_says_what_was_made_and_what_comes_next(self):
        code, out, _ = run(self.text, "--out", self.out)
        self.assertEqual(code, 0)
        for words in ["is ready", "train", "valid", "bytes/token", "the last 1 % of the text",
                      f"ballast train --data {self.out}"]:
            self.assertIn(words, out)

    def test_json_is_one_object_and_nothing_else(self):
        code, out, _ = run(self.text, "--out", self.out, "--tokenizer", "bpe", "--vocab-size", "300", "--json")
        self.assertEqual((code, out.count("\n")), (0, 1))
        summary = json.loads(out)
        self.assertEqual(summary["tokenizer"]["vocabulary_size"], 300)
        self.assertEqual(summary["validation"], "tail")
        self.assertEqual(summary["domains"], ["text"])
        self.assertEqual(sum(split["source_bytes"] for split in summary["splits"].values()), self.text.stat().st_size)

    def test_help_has_examples(self):
        code, out, _ = run("--help")
        self.assertEqual(code, 0)
        self.assertIn("ballast prepare book.txt --out data/book", out)

    def test_validation_text_may_be_named_before_the_input(self):
        other = self.folder / "other.txt"
        other.write_text("validation")
        code, out, _ = run("--valid", other, "--out", self.out, self.text, "--json")
        self.assertEqual(code, 0)
        self.assertEqual(json.loads(out)["splits"]["valid"]["source_bytes"], 10)

    def test_mistakes_are_named_and_leave_nothing(self):
        self.assertIn("required", self.refused("--out", self.out))
        self.assertIn("--out", self.refused(self.text))
        self.assertIn("absent.txt", self.refused(self.folder / "absent.txt", "--out", self.out))
        self.assertIn("--tokenizer bpe", self.refused(self.text, "--out", self.out, "--vocab-size", "300"))
        self.assertIn("builtin", self.refused(self.text, "--out", self.out, "--seed", "3"))
        both = ["--valid", self.text, "--valid-fraction", "0.1"]
        self.assertIn("give one", self.refused(self.text, "--out", self.out, *both))
        self.assertIn("--valid-fraction is 2", self.refused(self.text, "--out", self.out, "--valid-fraction", "2"))
        self.assertIn("--shard-tokens", self.refused(self.text, "--out", self.out, "--shard-tokens", "5"))
        self.assertIn("--shard-tokens", self.refused(self.text, "--out", self.out, "--shard-tokenz", "5"))
        self.assertIn("not a data set", self.refused(self.text, "--out", self.text))
        self.assertIn("cannot find", self.refused(self.folder / "absent.txt", "--out", self.folder / "a/b/c"))
        self.assertEqual(self.entries(), ["text.txt"])

    def test_numbers_are_checked(self):
        for flag, value in [("--shard-tokens", "-1"), ("--threads", "-1"), ("--threads", "two"), ("--vocab-sample", "0"),
                            ("--vocab-size", "-300"), ("--vocab-size", "300.5"), ("--shard-tokens", "1e30"),
                            ("--shard-tokens", "5 apples")]:
            err = self.refused(self.text, "--out", self.out, "--tokenizer", "bpe", flag, value)
            self.assertIn(flag, err)
            self.assertIn(f"{value} is not a whole number", err)
        for flag, value in [("--builtin-bytes", "-5"), ("--builtin-bytes", "0"), ("--seed", "-1")]:
            err = self.refused("builtin", "--out", self.out, flag, value)
            self.assertIn(f"{flag}: {value} is not a whole number", err)
        self.assertEqual(self.entries(), ["text.txt"])

    def test_numbers_may_be_written_in_several_ways(self):
        sizes = set()
        for value in ["20000", "2e4", "20_000", "20k", "20KB", "0.02MB"]:
            code, out, err = run("builtin", "--out", self.out, "--overwrite", "--builtin-bytes", value,
                                 "--seed", "18446744073709551615", "--json")
            self.assertEqual(code, 0, err)
            sizes.add(json.loads(out)["splits"]["train"]["source_bytes"])
        self.assertEqual(len(sizes), 1, sizes)

    def test_a_foreign_file_in_the_output_is_never_deleted(self):
        self.assertEqual(run(self.text, "--out", self.out)[0], 0)
        precious = self.out / "precious.txt"
        precious.write_text("words\n" * 100)
        self.assertIn("precious.txt", self.refused(self.text, "--out", self.out, "--overwrite"))
        self.assertIn("lies within --out", self.refused(precious, "--out", self.out, "--overwrite"))
        self.assertEqual(precious.read_text(), "words\n" * 100)

    def test_standard_input_that_is_not_text_is_refused(self):
        for content in (lzma.compress(b"text " * 100), gzip.compress(b"\0" * 100)):
            process = subprocess.run([BALLAST, "prepare", "-", "--out", self.out], input=content, capture_output=True)
            self.assertEqual(process.returncode, 2)
            self.assertIn("standard input is not text: it is", process.stderr.decode())
        self.assertEqual(self.entries(), ["text.txt"])

    def test_interrupted_it_leaves_nothing(self):
        process = start("builtin", "--builtin-bytes", "20GB", "--out", self.folder / "new/data")
        staging = self.folder / "new/.data.preparing"
        deadline = time.monotonic() + 60
        while not list(staging.glob("train-*.tokens")) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out), (2, b""))
        self.assertIn("stopped; nothing was written", err.decode())
        self.assertEqual(self.entries(), ["text.txt"])

    def test_verify_reads_every_byte(self):
        _, out, _ = run(self.text, "--out", self.out, "--json")
        tokens = sum(split["tokens"] for split in json.loads(out)["splits"].values())
        shards = list(self.out.glob("*.tokens"))
        code, out, err = run("--verify", self.out, "--json")
        self.assertEqual(code, 0, err)
        size = sum(shard.stat().st_size for shard in shards)
        self.assertEqual(json.loads(out), {"verified": True, "tokens": tokens, "bytes": size})
        self.assertIn("is ok", run("--verify", self.out)[1])
        shard = self.out / "train-00000.tokens"
        content = bytearray(shard.read_bytes())
        content[len(content) // 2] ^= 1
        shard.write_bytes(content)
        self.assertIn("train-00000.tokens is damaged", self.refused("--verify", self.out, "--json"))
        self.assertIn("index.json", self.refused("--verify", self.folder))
        self.assertIn("leave out --out", self.refused("--verify", self.out, "--out", self.out))

    def test_memory_does_not_grow_with_the_text(self):
        with open(self.folder / "large.txt", "w") as file:  # one document of 100 MB
            for block in range(100):
                lines = "".join(f"line {i} of block {block} says {i * 7919 % 104729}\n" for i in range(1000))
                file.write(lines * (1_000_000 // len(lines)))
        for tokenizer in [["bytes"], ["bpe", "--vocab-size", "512", "--vocab-sample", "20MB"]]:
            process = start(self.folder / "large.txt", "--out", self.out, "--overwrite", "--tokenizer", *tokenizer)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(process.returncode, 0, process.communicate()[1])
            if "ASAN_OPTIONS" not in os.environ:  # the address sanitizer keeps what was freed
                self.assertLess(usage.ru_maxrss * 1024, 500_000_000, tokenizer)

    def test_an_output_is_replaced_only_on_request(self):
        self.assertEqual(run(self.text, "--out", self.out)[0], 0)
        before = (self.out / "index.json").read_bytes()
        self.assertIn("--overwrite", self.refused(self.text, "--out", self.out))
        self.assertEqual((self.out / "index.json").read_bytes(), before)
        self.assertEqual(run(self.text, "--out", self.out, "--overwrite", "--valid-fraction", "0")[0], 0)
        self.assertNotEqual((self.out / "index.json").read_bytes(), before)
        self.assertEqual(self.entries(), ["data", "text.txt"])

    def test_killed_midway_it_leaves_no_data_set_and_the_next_run_cleans_up(self):
        arguments = ["builtin", "--builtin-bytes", "2GB", "--out", self.out]
        process = start(*arguments)
        staging = self.folder / ".data.preparing"
        deadline = time.monotonic() + 60
        while not list(staging.glob("train-*.tokens")) and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.2)
        self.assertIsNone(process.poll())
        self.assertIn("already in use", self.refused(*arguments))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        self.assertFalse(self.out.exists())
        self.assertTrue(list(staging.glob("train-*.tokens")))
        self.assertEqual(run(self.text, "--out", self.out)[0], 0)
        self.assertEqual(self.entries(), ["data", "text.txt"])


if __name__ == "__main__":
    unittest.main()
