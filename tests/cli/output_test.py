# SPDX-License-Identifier: Apache-2.0
"""Where output goes that cannot be written, and what of it a terminal is given."""

import json
import os
import pty
import subprocess
import unittest

from in_folder import BALLAST, InFolder, ballast

TINY = (
    "--model.width=16 --model.layers=1 --model.heads=2 --model.context=32 --training.batch=4 --training.threads=1 "
    "--training.validate_every=0 --training.validate_batches=2 --training.sample_tokens=8 --data.builtin_bytes=60000 "
    "--training.steps=2"
).split()
SCORES = "1,2\n3,4\n5,6\n7,8\n"
CLEAR = "\x1b[2J"  # what a terminal takes for a command


def with_stdout(stdout, *arguments, **options):
    """Runs the program with a stdout that takes nothing: "full", "closed", or "unread", a pipe without a reader."""
    if stdout == "closed":
        options["preexec_fn"] = lambda: os.close(1)
    read, write = os.pipe()
    os.close(read)
    with open("/dev/full", "w") as full, open(write, "w") as unread:
        target = {"full": full, "unread": unread}.get(stdout)
        return subprocess.run([BALLAST, *map(str, arguments)], stdout=target, stderr=subprocess.PIPE, text=True, errors="replace", **options)


class LostOutput(InFolder):
    def some_commands(self):
        """One of each way to print."""
        self.run_well("train", *TINY, "--run", "run")
        return ([], ["--help"], ["train", "--print-config"], ["generate", "run", "--max-tokens=3"], ["eval", "run", "--json"],
                ["eval", "run", "--workers=2"])

    def commands(self):
        """Every command, in ways that take little time."""
        (self.folder / "scores.csv").write_text(SCORES)
        (self.folder / "text.txt").write_text("some words of text\n" * 200)
        self.run_well("train", *TINY, "--run", "run")
        yield from ([], ["--help"], ["--version"], ["train", "--help"], ["train", "--print-config"])
        yield from (["help"], ["help", "train"], ["completion", "bash"], ["man"], ["man", "--out", "man"])
        yield ["prepare", "text.txt", "--out", "data"]
        yield ["prepare", "text.txt", "--out", "data", "--overwrite", "--json"]
        yield ["train", *TINY, "--run", "more"]
        yield ["tokenize", "some words", "--tokenizer", "run"]
        yield ["tokenize", "--ids", "104,105", "--tokenizer", "bytes"]
        yield ["train", *TINY, "--run", "more", "--resume", "auto", "--json"]
        for more in ([], ["--json"]):
            yield ["generate", "run", "--max-tokens=3", *more]
            yield ["params", "--config", "run/config.toml", *more]
            yield ["assign", "--scores", "scores.csv", *more]
        yield ["eval", "run"]
        yield ["eval", "run", "--audit"]
        yield ["generate", "run", "--max-tokens=3", "--samples=3"]
        yield ["serve", "run", "--port=0"]
        yield ["eval", "run", "--workers=2", "--json"]
        yield ["plan", "--config", "run/config.toml"]
        yield ["doctor", "--json"]
        yield ["report", "run"]
        yield ["export", "run", "--out", "export"]
        yield ["export", "run", "--format", "hf", "--out", "theirs"]
        yield ["import", "theirs", "--out", "imported"]

    def test_a_result_that_cannot_be_written_is_no_success(self):
        for command in self.commands():
            with self.subTest(command):
                self.assert_told(with_stdout("full", *command, cwd=self.folder))

    def test_nor_is_one_that_nothing_is_there_for(self):
        for command in self.some_commands():
            with self.subTest(command):
                self.assert_told(with_stdout("closed", *command, cwd=self.folder))

    def assert_told(self, result):
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(result.stderr.count("standard output"), 1, result.stderr)

    def test_a_reader_may_leave_without_a_word(self):
        for command in self.some_commands():
            with self.subTest(command):
                result = with_stdout("unread", *command, cwd=self.folder)
                self.assertEqual(result.returncode, 141, result.stderr)  # as programs that SIGPIPE ends
                self.assertNotIn("ballast: ", result.stderr)

    def test_training_without_a_stdout_is_whole(self):
        with_stdout("closed", "train", *TINY, "--run", "run", cwd=self.folder)
        self.run_well("eval", "run")

    def test_a_closed_stdin_is_not_another_file(self):
        result = subprocess.run([BALLAST, "prepare", "-", "--out", "data"], cwd=self.folder, capture_output=True, text=True,
                                preexec_fn=lambda: os.close(0))
        self.assertEqual(result.returncode, 2)
        self.assertIn("standard input", result.stderr)


class ControlCharacters(InFolder):
    def assert_escaped(self, text):
        self.assertIn("\\x1b[2J", text)
        self.assertNotIn("\x1b", text)

    def test_names_in_messages_are_escaped(self):
        name = f"red{CLEAR}"
        (self.folder / "keys.toml").write_text('[model]\n"wi\\u001b[2Jdth" = 3\n')
        for command in (["prepare", name, "--out", "data"], ["train", "--config", name], ["eval", name], [name],
                        ["train", f"--{name}"], ["train", "--config", "keys.toml"], ["train", "--data", name, "--run", "run"]):
            with self.subTest(command):
                result = ballast(*command, cwd=self.folder)
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assert_escaped(result.stderr)

    def test_samples_in_the_log_are_escaped(self):
        self.assert_escaped(self.run_well("train", *TINY, "--run", "run", f"--training.sample_prompt={CLEAR}").stderr)

    def test_generated_text_is_escaped_on_a_terminal_alone(self):
        self.run_well("train", *TINY, "--run", "run")
        command = ["generate", "run", "--prompt", f"{CLEAR}\u20ac", "--max-tokens", "0"]
        for more in ([], ["--samples", "2"]):
            self.assertIn(f"{CLEAR}\u20ac", self.run_well(*command, *more).stdout)
            main, side = pty.openpty()
            process = subprocess.run([BALLAST, *command, *more], cwd=self.folder, stdout=side, stderr=subprocess.PIPE)
            os.close(side)
            shown = os.read(main, 10000).decode()
            os.close(main)
            self.assertEqual(process.returncode, 0, process.stderr)
            self.assert_escaped(shown)
            self.assertIn("\u20ac", shown)

    def test_json_stays_json(self):
        self.run_well("train", *TINY, "--run", "run")
        result = self.run_well("generate", "run", "--prompt", CLEAR, "--max-tokens", "0", "--json")
        self.assertEqual(json.loads(result.stdout)["completions"][0]["prompt"], CLEAR)


if __name__ == "__main__":
    unittest.main()
