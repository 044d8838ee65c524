# SPDX-License-Identifier: Apache-2.0
"""Completions and manual pages come from what the commands declare, and say all of it."""

import re
import subprocess
import unittest

from in_folder import BUILD, InFolder, ballast


def complete(script, folder, *words):
    """What bash offers for the last of the words."""
    quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in ["ballast", *words])
    line = f"source {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _ballast; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    result = subprocess.run(["bash", "--norc", "-c", line], cwd=folder, capture_output=True, text=True, timeout=60)
    return result.stdout.split("\n")[:-1] if result.stdout != "\n" else [], result.stderr


class Completion(InFolder):
    def setUp(self):
        super().setUp()
        self.script = self.folder / "script"
        self.script.write_text(self.run_well("completion", "bash").stdout)
        self.place = self.folder / "place"
        (self.place / "runs").mkdir(parents=True)
        (self.place / "my text.txt").write_text("")

    def offered(self, *words):
        offered, error = complete(self.script, self.place, *words)
        self.assertEqual(error, "")
        return offered

    def test_commands(self):
        self.assertEqual(self.offered("tr"), ["train"])
        self.assertIn("completion", self.offered(""))
        self.assertNotIn("declarations", self.offered(""))
        self.assertEqual(self.offered("bench", "st"), ["step"])
        self.assertEqual(self.offered("help", "do"), ["doctor"])

    def test_options(self):
        self.assertEqual(self.offered("train", "--training.step"), ["--training.steps"])
        self.assertEqual(self.offered("bench", "step", "--no-t"), ["--no-twin"])
        self.assertEqual(self.offered("--q"), ["--quiet"])
        self.assertEqual(self.offered("--log", "x", "eval", "--audi"), ["--audit"])

    def test_all_that_help_lists(self):
        listed = set(re.findall(r"(?m)^  (?:-\w,)?(--[\w.-]+)", ballast("train", "--help").stdout))
        self.assertGreater(len(listed), 80)
        self.assertLessEqual(listed, set(self.offered("train", "--")))

    def test_values_that_are_one_of_a_few(self):
        self.assertEqual(self.offered("train", "--resume", ""), ["auto", "never"])
        self.assertEqual(self.offered("train", "--resume", "=", "a"), ["auto"])  # as bash splits --resume=a
        self.assertEqual(self.offered("train", "--resume", "="), ["auto", "never"])
        self.assertEqual(self.offered("train", "--resume=n"), ["--resume=never"])
        self.assertEqual(self.offered("train", "--training.precision", "b"), ["bf16"])
        self.assertEqual(self.offered("completion", ""), ["bash", "zsh", "fish"])

    def test_files_and_folders(self):
        self.assertEqual(self.offered("train", "--config", "my"), ["my text.txt"])
        self.assertEqual(self.offered("train", "--run", ""), ["runs"])
        self.assertEqual(self.offered("eval", "r"), ["runs"])
        self.assertEqual(self.offered("train", "--training.steps", ""), [])

    def test_it_is_registered(self):
        result = subprocess.run(["bash", "--norc", "-c", f"source {self.script}; complete -p ballast"], capture_output=True, text=True)
        self.assertEqual(result.stdout, "complete -F _ballast ballast\n")

    def test_the_other_shells_get_the_same(self):
        for shell in ("zsh", "fish"):
            script = self.run_well("completion", shell).stdout
            for words in ("training.steps", "auto never", "step", "quiet"):
                self.assertIn(words, script)

    def test_another_shell_is_refused(self):
        self.refused("completion", "tcsh", says="tcsh")
        self.refused("completion", says="SHELL")


class Manual(InFolder):
    def setUp(self):
        super().setUp()
        self.run_well("man", "--out", "man")

    def page(self, name):
        return (self.folder / "man" / f"{name}.1").read_text()

    def test_there_is_a_page_for_each_command(self):
        listed = re.findall(r"(?m)^  (\w+) ", ballast("--help").stdout.split("Subcommands:\n")[1])
        benchmarks = re.findall(r"(?m)^  (\w+) ", ballast("bench", "--help").stdout.split("Subcommands:\n")[1])
        expected = {"ballast", *(f"ballast-{name}" for name in listed), *(f"ballast-bench-{name}" for name in benchmarks)}
        self.assertEqual({page.stem for page in (self.folder / "man").iterdir()}, expected)
        for name in expected:
            page = self.page(name)
            self.assertIn(f'.TH "{name.upper()}" 1'.replace("-", "\\-"), page)
            self.assertIn(".SH NAME\n" + name.replace("-", "\\-") + " \\- ", page)

    def test_it_has_all_that_help_lists(self):
        for command in ("train", "eval", "doctor"):
            page = self.page(f"ballast-{command}").replace("\\-", "-")
            for name in re.findall(r"(?m)^  (?:-\w,)?(--[\w.-]+)", ballast(command, "--help").stdout):
                self.assertIn(f"\\fB{name}\\fR", page)

    def test_its_troff_is_clean(self):
        requests = {".TH", ".SH", ".SS", ".TP", ".B", ".nf", ".fi", ".sp", '.\\"'}
        for page in (self.folder / "man").iterdir():
            for line in page.read_text().splitlines():
                self.assertFalse(line.startswith("'"), line)
                if line.startswith("."):
                    self.assertIn(line.split()[0], requests)
                # Only escapes that the writer means.
                self.assertEqual(re.sub(r"\\(e|-|&|f[BIR]|\((aq|ga|ha|ti|dq)|\")", "", line).count("\\"), 0, line)

    def test_examples_stay_as_they_are(self):
        self.assertIn("ballast train \\-\\-config configs/first_run.toml\n", self.page("ballast-train"))

    def test_without_a_folder_the_first_page_is_printed(self):
        self.assertEqual(self.run_well("man").stdout, self.page("ballast"))

    def test_a_build_has_them(self):
        self.assertEqual((BUILD / "man/ballast-train.1").read_text(), self.page("ballast-train"))
        for name, shell in (("ballast", "bash"), ("_ballast", "zsh"), ("ballast.fish", "fish")):
            self.assertEqual((BUILD / "completions" / name).read_text(), self.run_well("completion", shell).stdout)


if __name__ == "__main__":
    unittest.main()
