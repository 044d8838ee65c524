# SPDX-License-Identifier: Apache-2.0
"""The commands that README.md and docs/*.md show, and how each is made small enough to be run."""

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(os.environ["BALLAST_SOURCE"])
# A line of a block without a language is a command if it begins with one of these. In a block `sh` every line is one.
PROGRAMS = {"apptainer", "ballast", "cp", "curl", "docker", "export", "g++", "git", "make", "mkdir", "mpirun", "pip", "python", "sbatch", "srun"}

CLUSTER = "needs a cluster"
GPU = "needs a GPU"
ROOT = "needs root"
NETWORK = "needs the network"
BUILDS = "builds or installs: CI and tests/tools do so"
# Commands that no test of documents runs, by how they begin, with the reason. Each must be in some document.
NOT_RUN = {
    "make train": BUILDS,
    "make test": BUILDS,
    "make build": BUILDS,
    "make install": "tests/tools/install_test.py runs it",
    "export PATH": "tests have the program on their PATH",
    "export PKG_CONFIG_PATH": "tests/tools/install_test.py runs it",
    "g++ assign.cpp": "tests/tools/install_test.py runs it",
    "docker": NETWORK,
    "apptainer": NETWORK,
    "./ballast.sif": NETWORK,
    "sbatch": CLUSTER,
    "BALLAST=/shared": CLUSTER,
    "srun": CLUSTER,
    "mpirun -n 64": CLUSTER,
    "mpirun --host": "tests/cluster runs it",
    "ballast train --workers 8 --hosts": "tests/cluster runs it",
    "ballast train --workers 6 --hosts": "tests/cluster runs the like",
    "ballast train --config configs/modern_gpu.toml": GPU,
    "ballast train --config configs/modern_1b.toml": GPU,
    "ballast train --config configs/paper_base_44b.toml --scale gpu": GPU,
    "ballast train --config configs/paper_base_44b.toml --data": CLUSTER,
    "ballast experiment": "tests/cli/experiment_test.py runs it, for minutes",
    "ballast report experiments/": "tests/cli/experiment_test.py runs it",
    "tools/follow_metrics": "tests/tools/follow_metrics_test.py runs it",
}

SMALL_RUN = {"--training.steps": 2, "--training.batch": 8, "--training.threads": 1, "--training.sample_tokens": 0,
             "--training.validate_batches": 1}
SMALL_DATA = {"--data.builtin_bytes": 60000}
SMALL_MODEL = {"--model.width": 32, "--model.layers": 2, "--model.heads": 4, "--model.context": 128}


@dataclass
class Block:
    """A fenced block of a document."""
    document: str
    language: str
    text: str


def documents():
    return ["README.md", *sorted(f"docs/{file.name}" for file in (SOURCE / "docs").glob("*.md"))]


def blocks(document):
    text = (SOURCE / document).read_text()
    return [Block(document, *found) for found in re.findall(r"^ *```(\w*)\n(.*?)^ *```", text, re.M | re.S)]


def first_program(line):
    words = [word for word in line.split() if not re.match(r"[A-Z_]+=", word)]
    return words[0] if words else ""


def is_command(line):
    program = first_program(line)
    return program in PROGRAMS or program.startswith(("./", "tools/"))


def commands(block):
    """Whole commands, without remarks."""
    if block.language not in ("", "sh"):
        return []
    lines = block.text.replace("\\\n", " ").splitlines()
    if block.language == "":
        lines = [line for line in lines if is_command(line)]
    return [re.sub(r"\s+#.*", "", line).strip() for line in lines if line.strip()]


def reason_not_to_run(command):
    return next((start for start in NOT_RUN if command.startswith(start)), None)


def with_options(command, options):
    """The command with these options: in place of its own, or after them."""
    words = shlex.split(command)
    for key, value in options.items():
        if key in words:
            words[words.index(key) + 1] = str(value)
        else:
            words = [word for word in words if not word.startswith(key + "=")] + [key, str(value)]
    return shlex.join(words)


def smaller(command):
    """The same command for seconds instead of minutes."""
    command = command.replace("--ids 15043,3186", "--ids 65,66")  # a vocabulary of hundreds has no larger ones
    program = command.split()
    if program[:1] == ["mpirun"]:
        return command.replace("mpirun", "mpirun --allow-run-as-root --oversubscribe", 1).replace(
            "ballast train", smaller("ballast train"))
    if program[:2] == ["ballast", "prepare"]:
        return with_options(command, {"--vocab-size": 300} if "bpe" in program else {}) + " --overwrite"
    if program[:2] != ["ballast", "train"]:
        return command
    command = re.sub(r" \.\.\.( &)?$", "", command)  # what the reader fills in
    if "--resume" in program:
        return with_options(command, {"--training.steps": 3})
    options = dict(SMALL_RUN)
    if "--data" not in program:
        options |= SMALL_DATA
    if "--config" not in program and "--init-from" not in program:
        options |= SMALL_MODEL
    return with_options(command, options)
