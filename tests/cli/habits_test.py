# SPDX-License-Identifier: Apache-2.0
"""What people expect of a program: help, near suggestions, --quiet, --log, colours, a bar that fits the terminal."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import unittest

from in_folder import BALLAST, InFolder, ballast

TINY = (
    "--model.width=16 --model.layers=2 --model.heads=2 --model.context=32 --training.batch=8 --training.threads=1 "
    "--training.validate_every=0 --training.validate_batches=2 --training.last_validate_batches=2 --training.sample_tokens=8 --data.builtin_bytes=60000 "
    "--training.log_every=5 --training.steps=20 --optimizer.warmup_steps=5 --experts.layers=1 --experts.sublayers=1 --experts.count=2 "
    "--experts.groups=2"
).split()
STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ "
CLEAR = "\r\x1b[K"


def on_terminal(folder, *arguments, columns=80, resize=None, **environment):
    """Runs the program with a terminal as its stderr; returns what it wrote there, and what to stdout."""
    main, side = pty.openpty()

    def set_columns(number):
        fcntl.ioctl(main, termios.TIOCSWINSZ, struct.pack("HHHH", 24, number, 0, 0))

    set_columns(columns)
    variables = {"TERM": "xterm", **{k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "TERM")}, **environment}
    process = subprocess.Popen([BALLAST, *map(str, arguments)], cwd=folder, env=variables, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=side, text=True)
    os.close(side)
    shown = b""
    while True:
        try:
            piece = os.read(main, 1 << 16)
        except OSError:  # the last writer has gone
            break
        if not piece:
            break
        shown += piece
        if resize is not None and b"step 5/" in shown:
            set_columns(resize)
            process.send_signal(signal.SIGWINCH)
            resize = None
    out = process.stdout.read()
    process.stdout.close()
    code = process.wait(timeout=300)
    os.close(main)
    return code, shown.decode(errors="replace").replace("\r\n", "\n"), out


def without_colours(text):
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def rows(shown):
    """What stood on the screen at any time: lines that stay, and each state of the bar."""
    return [row for row in re.split(r"\n|\r\x1b\[K", without_colours(shown)) if row]


class Help(InFolder):
    def commands(self):
        listed = ballast("--help").stdout.split("Subcommands:\n")[1]
        return re.findall(r"(?m)^  (\w+) ", listed)

    def test_help_is_what_the_option_prints(self):
        self.assertIn("train", self.commands())
        self.assertIn("help", self.commands())
        for words in [[], *([name] for name in self.commands()), ["bench", "step"]]:
            with self.subTest(words):
                self.assertEqual(self.run_well("help", *words).stdout, self.run_well(*words, "--help").stdout)

    def test_no_line_of_it_is_longer_than_100_columns(self):
        for words in [[], *([name] for name in self.commands()), *(["bench", name] for name in ("step", "layer", "kernels", "tokenizer", "assignment"))]:
            lines = self.run_well("help", *words).stdout.splitlines()
            self.assertEqual([line for line in lines if len(line) > 100], [], words)

    def test_the_first_steps_tell_of_it(self):
        self.assertIn("ballast help COMMAND", ballast().stdout)

    def test_suggestions_are_made_when_they_are_near(self):
        self.refused("help", "trian", says=['there is no command "trian"; the nearest is train', "`ballast --help`"])
        self.refused("help", "bench", "stpe", says=["the nearest is step", "`ballast bench --help`"])
        self.refused("help", "train", "now", says="ballast train has no commands")
        self.refused("train", "--stpes", "3", says="the nearest is --training.steps")
        self.refused("train", "--width", "3", says="the nearest is --model.width")
        for words in (["fly"], ["help", "fly"], ["train", "--verbosity"], ["train", "--optimizer.algorithm=sgdm"]):
            said = self.refused(*words, says="ballast: ").stderr
            self.assertNotIn("nearest", said)
        self.refused("fly", says="`ballast --help` lists them all")
        self.refused("train", "--verbosity", says="`ballast train --help` lists them all")


class Quiet(InFolder):
    def test_nothing_but_the_result_is_left(self):
        (self.folder / "text.txt").write_text("some words of text\n" * 200)
        for words in (["train", *TINY, "--run", "run"], ["eval", "run"], ["prepare", "text.txt", "--out", "data"],
                      ["prepare", "--verify", "data"], ["train", *TINY, "--run", "two", "--workers=2"]):
            with self.subTest(words[0]):
                result = self.run_well(*words, "--quiet")
                self.assertEqual(result.stderr, "")
                self.assertNotEqual(result.stdout, "")

    def test_it_may_stand_before_the_command(self):
        self.assertEqual(self.run_well("--quiet", "train", *TINY, "--run", "run").stderr, "")

    def test_warnings_and_errors_stay(self):
        result = self.run_well("train", *TINY, "--run", "run", "--quiet", "--report", env={**os.environ, "PATH": "/nowhere"})
        self.assertRegex(result.stderr, r"^warning: [^\n]*rsvg-convert[^\n]*\n$")
        self.refused("eval", "nowhere", "--quiet", says="ballast: ")
        for workers in (1, 2):
            self.refused("train", *TINY, "--run", "run", "--quiet", f"--workers={workers}", says="ballast: ")


class Log(InFolder):
    def lines(self, name="log"):
        lines = (self.folder / name).read_text().split("\n")[:-1]
        for line in lines:
            self.assertRegex(line, f"^{STAMP}")
        return [re.sub(f"^{STAMP}", "", line) for line in lines]

    def test_it_has_all_that_stderr_has(self):
        for workers in (1, 2):
            with self.subTest(workers=workers):
                said = self.run_well("train", *TINY, "--run", f"run{workers}", "--log", f"log{workers}", f"--workers={workers}").stderr
                self.assertIn("step 5/20 | ", said)
                self.assertEqual("\n".join(self.lines(f"log{workers}")) + "\n", said)

    def test_what_quiet_leaves_out_too(self):
        for workers in (1, 2):
            log = f"log{workers}"
            self.run_well("train", *TINY, "--run", f"run{workers}", "--quiet", f"--log={log}", f"--workers={workers}")
            self.assertTrue(any(line.startswith("step 20/20 | loss ") and line.count(" | ") > 8 for line in self.lines(log)))

    def test_it_is_added_to(self):
        self.run_well("train", *TINY, "--run", "run", "--log", "log")
        first = self.lines()
        self.refused("train", *TINY, "--run", "run", "--log", "log", says="ballast: ")
        self.assertEqual(self.lines()[:-1], first)
        self.assertTrue(self.lines()[-1].startswith("ballast: "))
        self.refused("--log", "log", "train", "--stpes", "3", says="--training.steps")
        self.assertIn("there is no option --stpes", self.lines()[-1])

    def test_a_request_to_stop_is_in_it(self):
        for workers in (1, 2):
            words = ["train", *TINY, "--training.steps=1000000", "--run", f"run{workers}", "--log", f"log{workers}", f"--workers={workers}"]
            process = subprocess.Popen([BALLAST, *words], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            for line in process.stderr:
                if line.startswith("step 5/"):
                    break
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0)
            lines = self.lines(f"log{workers}")
            self.assertEqual(sum("stopping as soon as it is safe" in line for line in lines), 1, lines)

    def test_one_that_cannot_be_written_is_refused_before_anything_is_done(self):
        self.refused("train", *TINY, "--run", "run", "--log", "nowhere/log", says="nowhere/log")
        self.assertFalse((self.folder / "run").exists())
        result = self.run_well("train", *TINY, "--run", "run", "--log", "/dev/full")
        self.assertEqual(result.stderr.count("warning: the log cannot be written"), 1)

    def test_a_terminals_bar_and_colours_are_not_in_it(self):
        code, shown, _ = on_terminal(self.folder, "train", *TINY, "--run", "run", "--log", "log", columns=40)
        self.assertEqual(code, 0, shown)
        self.assertIn(CLEAR, shown)
        self.assertNotIn("\x1b", (self.folder / "log").read_text())
        self.assertTrue(any(line.startswith("step 20/20 | ") and " eta " in line and len(line) > 100 for line in self.lines()))

    def test_benchmarks_have_it_wherever_it_stands(self):
        step = ["step", "--size=32,16,1,2,8,2", "--no-twin", "--rounds=1", "--json"]
        for words in (["--log", "log", "bench", *step], ["bench", *step, "--log", "log"], ["--quiet", "bench", *step, "--log=log"]):
            (self.folder / "log").unlink(missing_ok=True)
            said = self.run_well(*words).stderr
            self.assertNotEqual(self.lines(), [])
            self.assertEqual(said == "", "--quiet" in words, said)


class Terminal(InFolder):
    def test_lines_and_bar_fit_its_width(self):
        for workers, columns in ((1, 60), (1, 200), (2, 60)):
            with self.subTest(workers=workers, columns=columns):
                code, shown, out = on_terminal(self.folder, "train", *TINY, "--run", f"run{workers}{columns}", f"--workers={workers}",
                                               columns=columns)
                self.assertEqual(code, 0, shown)
                self.assertIn("Done after 20 steps", out)
                steps = [row for row in rows(shown) if row.startswith("step ")]
                bars = [row for row in rows(shown) if row.startswith("train [")]
                self.assertEqual([row.split()[1] for row in steps], ["1/20", "5/20", "10/20", "15/20", "20/20"])
                self.assertTrue(bars, shown)
                for row in steps + bars:
                    self.assertLessEqual(len(row), columns)
                for row in steps:
                    self.assertRegex(row, r"^step \d+/20 \| loss \d\.\d{4} \|.* eta ")
                    self.assertEqual("all2all" in row, columns == 200)
                self.assertTrue(any(re.search(r"^train \[=* *\] +\d+% \| step \d+/20 .*\| eta ", row) for row in bars), bars)
                if columns == 200:
                    self.assertTrue(any(re.search(r"\| loss \d\.\d{4} \| [\d.]+k? tok/s \|", row) for row in bars), bars)
                self.assertFalse(shown.endswith(bars[-1]), "the bar goes at the end")

    def test_a_terminal_that_becomes_narrower_does_no_harm(self):
        code, shown, _ = on_terminal(self.folder, "train", *TINY, "--training.steps=300", "--run", "run", columns=150, resize=50)
        self.assertEqual(code, 0, shown)
        steps = [row for row in rows(shown) if row.startswith("step ")]
        self.assertGreater(len(steps[0]), 100)
        self.assertLessEqual(len(steps[-1]), 50)

    def test_columns_tells_where_the_terminal_does_not(self):
        for variables, columns in (({"COLUMNS": "50"}, 50), ({"COLUMNS": "many"}, 80), ({}, 80)):
            code, shown, _ = on_terminal(self.folder, "train", *TINY, "--run", f"run{len(os.listdir(self.folder))}", columns=0, **variables)
            self.assertEqual(code, 0, shown)
            longest = max(len(row) for row in rows(shown) if row.startswith("step "))
            self.assertTrue(columns - 20 < longest <= columns, longest)

    def test_a_file_gets_whole_lines_and_no_bar(self):
        said = self.run_well("train", *TINY, "--run", "run", env={**os.environ, "COLUMNS": "40"}).stderr
        self.assertNotIn("\x1b", said)
        self.assertNotIn("\r", said)
        self.assertNotIn("train [", said)
        self.assertRegex(said, r"step 5/20 \|.*all2all.*\| eta ")

    def test_a_quiet_one_has_no_bar(self):
        for workers in (1, 2):
            code, shown, _ = on_terminal(self.folder, "train", *TINY, "--run", f"run{workers}", "--quiet", f"--workers={workers}")
            self.assertEqual((code, shown), (0, ""))

    def test_lines_of_workers_keep_their_prefix(self):
        code, shown, _ = on_terminal(self.folder, "train", *TINY, "--run", "run", "--workers=2", "--prefix-lines", columns=60)
        self.assertEqual(code, 0, shown)
        steps = [row for row in rows(shown) if row.startswith("worker 0: step ")]
        self.assertEqual(len(steps), 5)
        self.assertLessEqual(max(map(len, steps)), 60)


class Colours(InFolder):
    def shown(self, *arguments, **environment):
        return on_terminal(self.folder, *arguments, **environment)[1]

    def test_errors_warnings_and_the_bar_have_them(self):
        self.assertEqual(self.shown("eval", "nowhere").split(" ")[0], "\x1b[1;31mballast:\x1b[0m")
        self.run_well("train", *TINY, "--run", "run")
        (self.folder / "run/report").write_text("a file where a folder should be")  # which takes a warning
        for workers, steps in ((1, 40), (2, 60)):
            shown = self.shown("train", *TINY, f"--training.steps={steps}", "--run", "run", "--resume=auto", "--report",
                               f"--workers={workers}")
            self.assertIn("\x1b[33mwarning:\x1b[0m no report was written", shown)
            self.assertIn("[\x1b[36m", shown)

    def test_none_where_they_are_not_wanted(self):
        train = ["train", *TINY, "--run", "run"]
        self.assertEqual(without_colours(shown := self.shown(*train, NO_COLOR="1")), shown)
        self.assertIn(CLEAR, shown, "the bar is there without them")
        self.assertNotIn("\x1b", self.shown("eval", "nowhere", NO_COLOR="1"))
        self.assertIn("\x1b", self.shown("eval", "nowhere", NO_COLOR=""), "an empty one says nothing")
        self.assertNotIn("\x1b", ballast("eval", "nowhere").stderr)
        dumb = self.shown("train", *TINY, "--run", "dumb", TERM="dumb")
        self.assertNotIn("\x1b", dumb)
        self.assertIn("all2all", dumb, "a terminal that cannot go back gets plain lines")


if __name__ == "__main__":
    unittest.main()
