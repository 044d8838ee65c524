# SPDX-License-Identifier: Apache-2.0
"""Files that nest deep, in place of each JSON and TOML file that the program reads: whatever else it does, it does not crash."""

import random
import shutil
import struct
import tempfile
from pathlib import Path

from attacked_files import COMMANDS
from file_attacks import Outcome
from in_folder import TINY, ballast

DEEP = 1_000_000


def nests():
    """Texts that nest deep, by name: whole ones, and ones that are cut short."""
    return {
        "arrays": "[" * DEEP + "]" * DEEP,
        "open arrays": "[" * DEEP,
        "objects": '{"a":' * DEEP + "1" + "}" * DEEP,
    }


def json_bombs():
    """(file, content, command): every JSON file that the program reads, as nothing but a nest and as part of its form."""
    for name, nest in nests().items():
        whole = {
            "data/index.json": [["prepare", "--verify", "data"], ["train", *TINY, "--data", "data"]],
            "data/tokenizer.json": [["prepare", "--verify", "data"], ["prepare", "text.txt", "--out", "new", "--tokenizer", "data"]],
            "run/run.json": [COMMANDS["resume"], ["report", "run"]],
            "run/metrics.jsonl": [["report", "run"], COMMANDS["resume"]],
            "run/validation.json": [["report", "run"], ["eval", "run", "--out", "run/validation.json"]],
            "run/tokenizer/tokenizer.json": [COMMANDS["generate"], COMMANDS["resume"]],
            "run/checkpoints/step_00000004/manifest.json": [COMMANDS["eval"], COMMANDS["resume"]],
            "experiment/experiment.json": [["report", "experiment"], ["experiment", "dense", "--out", "experiment"]],
        }
        for file, commands in whole.items():
            within = f'{{"format":"ballast-run","version":1,"starts":[],"step":1,"more":{nest}}}\n'
            yield f"{name} as {file}", file, (nest + "\n").encode(), commands[0]
            yield f"{name} within {file}", file, within.encode(), commands[1]
        header = nest.encode()
        tensors = struct.pack("<Q", len(header)) + header
        yield f"{name} as the header of a checkpoint", "run/checkpoints/step_00000004/model.safetensors", tensors, COMMANDS["eval"]
        yield f"{name} as the header of an export", "export/model.safetensors", tensors, COMMANDS["generate exported"]
    vocabulary = ('{"a":' + "[" * DEEP).encode()
    yield "vocab.json", "gpt2/vocab.json", vocabulary, ["prepare", "text.txt", "--out", "new", "--tokenizer", "gpt2"]


def toml_bombs():
    deep = 200_000
    texts = {
        "dotted key": "a" + ".a" * deep + " = 1\n",
        "dotted header": "[a" + ".a" * deep + "]\n",
        "quoted key": '"a"' + '."a"' * deep + " = 1\n",
        "arrays": "[model]\nwidth = " + "[" * deep + "]" * deep + "\n",
        "open arrays": "a = " + "[\n" * deep,
        "inline tables": "a = " + "{a = " * deep + "1" + "}" * deep + "\n",
    }
    for name, text in texts.items():
        yield f"{name} in a config", "config.toml", text.encode(), ["params", "--config", "config.toml"]
        yield f"{name} in a run's config.toml", "run/config.toml", text.encode(), ["report", "run"]


def bomb(subject, count, seed=1):
    """An Outcome for each of `count` deep files: whatever else it does with one, the program does not crash."""
    bombs = [*json_bombs(), *toml_bombs()]
    random.Random(seed).shuffle(bombs)
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="ballast-bomb-") as temporary:
        place = Path(temporary) / "subject"
        for name, file, content, command in bombs[:count]:
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(subject, place)
            (place / file).parent.mkdir(parents=True, exist_ok=True)
            (place / file).write_bytes(content)
            if file.startswith("gpt2/"):
                (place / "gpt2/merges.txt").write_text("#version: 0.2\n")
            result = ballast(*command, cwd=place)
            kind = "fault" if result.returncode not in (0, 2) else "caught" if result.returncode == 2 else "harmless"
            outcomes.append(Outcome(0, "deep files", name, " ".join(command[:2]), kind, f"{result.returncode}: {result.stderr[-200:]}"))
    return outcomes
