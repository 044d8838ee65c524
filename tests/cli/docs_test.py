# SPDX-License-Identifier: Apache-2.0
"""Every command of README.md and docs/*.md is run at small size, or is listed with a reason why not (documented_commands.py)."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy
from safetensors.numpy import save_file

from documented_commands import NOT_RUN, SMALL_MODEL, SMALL_RUN, SOURCE, blocks, commands, documents, reason_not_to_run, smaller
from in_folder import BUILD, ballast
from running_server import RunningServer

ADDRESS = "http://127.0.0.1:8080/"
# What a reader would have before: a checkout, text, runs, scores, a model of Hugging Face.
CHECKOUT = ("ballast", "configs", "docs", "python", "tools", "cluster")
TEXT = "\n<|endoftext|>\n".join(f"Weather report {i}. Once upon a time there were {i} experts and {i * i} tokens." for i in range(400))
SMALL = [f"{key}={value}" for key, value in (SMALL_RUN | SMALL_MODEL).items()]
BASE = ["--experts.layers=1", "--experts.count=8", "--experts.groups=8"]
LLAMA = ["--model.positions=rope", "--model.norm=rms", "--model.biases=none", "--model.activation=swiglu"]
PLAN_THAT_DOES_NOT_FIT = "ballast plan configs/paper_base_44b.toml --workers 32 --device v100"


def make_belongings(folder):
    for name in CHECKOUT:
        (folder / name).symlink_to(SOURCE / name)
    for name in ("texts/stories.txt", "texts/letters.txt", "book.txt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(TEXT)
    random = numpy.random.default_rng(1)
    for name in ("scores", "monday", "tuesday"):
        numpy.save(folder / f"{name}.npy", random.normal(size=(64, 8)).astype("float32"))
    save_file({"scores": random.normal(size=(480, 4)).astype("float32")}, folder / "router.safetensors")
    for words in (
        ["prepare", "texts", "--out", "data/mine", "--tokenizer", "bpe", "--vocab-size", 300],
        ["train", "--data", "data/mine", "--run", "runs/mine", *SMALL, *BASE, "--optimizer.average=0.5"],
        ["train", "--data", "data/mine", "--run", "runs/dense", *SMALL, *LLAMA],
        ["export", "runs/dense", "--format", "hf", "--out", "models/Llama-3.2-1B"],
    ):
        made = ballast(*words, cwd=folder)
        if made.returncode != 0:
            raise AssertionError(f"{words}\n{made.stderr}")
    for name in ("runs/first_run", "runs/base"):
        shutil.copytree(folder / "runs/mine", folder / name)
    shutil.copytree(folder / "models/Llama-3.2-1B", folder / "llama")


class Documents(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.home = Path(tempfile.mkdtemp(prefix="ballast-docs-"))
        cls.addClassCleanup(shutil.rmtree, cls.home, ignore_errors=True)
        cls.belongings = cls.home / "belongings"
        cls.belongings.mkdir()
        make_belongings(cls.belongings)

    def setUp(self):
        self.folder = self.home / self.id().rpartition(".")[2]
        self.server = None

    def tearDown(self):
        if self.server:
            self.server.__exit__()

    def run_command(self, command):
        """In a shell, as the reader does. A server stays until the document's end."""
        words = command.split()
        if words[:2] == ["ballast", "serve"]:
            self.tearDown()
            self.server = RunningServer(*words[2:], cwd=self.folder)
            return
        if words[:2] == ["ballast", "train"] and "--run" in words and "--resume" not in words:
            shutil.rmtree(self.folder / words[words.index("--run") + 1], ignore_errors=True)
        path = f"{BUILD}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.succeeds(["bash", "-c", self.at_server(command)], command, env={**os.environ, "PATH": path})

    def at_server(self, text):
        return text.replace(ADDRESS, self.server.url) if self.server else text

    def succeeds(self, words, name, **options):
        result = subprocess.run(words, cwd=self.folder, capture_output=True, encoding="utf-8", errors="replace", timeout=300,
                                **options)
        expected = (0, 3) if name == PLAN_THAT_DOES_NOT_FIT else (0,)
        self.assertIn(result.returncode, expected, f"{name}\n{result.stderr}\n{result.stdout}")

    def follow(self, document):
        for block in blocks(document):
            for command in commands(block):
                if reason_not_to_run(command):
                    continue
                with self.subTest(document=document, command=command):
                    self.run_command(smaller(command))
            if block.language == "python" and block.text.startswith(("import", "from")):  # a whole program
                text = f"import torch_of_build\n{self.at_server(block.text)}"
                paths = os.pathsep.join([str(SOURCE / "tests/oracles"), os.environ.get("PYTHONPATH", "")])
                with self.subTest(document=document, program=block.text):
                    self.succeeds([sys.executable, "-c", text], text, env={**os.environ, "PYTHONPATH": paths})

    def test_the_tutorial(self):
        """Nothing but the checkout is there before."""
        self.folder.mkdir()
        for name in CHECKOUT:
            shutil.copytree(SOURCE / name, self.folder / name)
        self.follow("docs/tutorial.md")

    def test_documents_show_commands_that_work(self):
        for document in documents():
            if document == "docs/tutorial.md":
                continue
            shutil.rmtree(self.folder, ignore_errors=True)
            shutil.copytree(self.belongings, self.folder, symlinks=True)
            if document == "docs/optimizers.md":  # there it is the dense model that experts are put upon
                shutil.rmtree(self.folder / "runs/base")
                shutil.copytree(self.folder / "runs/dense", self.folder / "runs/base")
            if document == "docs/serve.md":  # its first sentence starts it
                self.run_command("ballast serve runs/mine")
            self.follow(document)
            self.tearDown()
            self.server = None

    def test_what_is_not_run_is_in_a_document(self):
        every = [command for document in documents() for block in blocks(document) for command in commands(block)]
        self.assertEqual([start for start in NOT_RUN if not any(command.startswith(start) for command in every)], [])


if __name__ == "__main__":
    unittest.main()
