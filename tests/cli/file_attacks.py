# SPDX-License-Identifier: Apache-2.0
"""Damages files of runs, data sets and exports, and tells what the program makes of them.

    BALLAST_BUILD=build/release tools/python_test tests/cli/file_attacks.py --mutations 500 --bombs 40
"""

import argparse
import collections
import json
import random
import shutil
import struct
import tempfile
from pathlib import Path

from in_folder import ballast

TINY = (
    "--model.width=16 --model.layers=1 --model.heads=2 --model.context=16 --training.batch=2 --training.threads=1 "
    "--training.validate_every=0 --training.validate_batches=2 --training.last_validate_batches=2 --training.sample_every=0 --training.log_every=1"
).split()
STEPS = 6
DEEP = 1_000_000

# What became of a damaged file. Caught: refused, or passed over with a message that names it. Harmless: the same
# results as without damage. Fault: other results without a word, or a crash.
Outcome = collections.namedtuple("Outcome", "name command kind words")


def make_subject(folder):
    """A data set, a file of tokens, a run on each, and an export: small ones of every kind of file there is."""
    text = "".join(f"line {i} tells of {i * i} things and of others\n" for i in range(1500))
    (folder / "text.txt").write_text(text)
    (folder / "tokens.bin").write_bytes(struct.pack("<6000H", *(i * i % 250 for i in range(6000))))
    commands = [
        ["prepare", "text.txt", "--out", "data", "--tokenizer", "bpe", "--vocab-size", "300", "--shard-tokens", "8000"],
        ["train", *TINY, "--training.steps=4", "--checkpoint.every=2", "--data", "data", "--run", "run"],
        ["train", *TINY, "--training.steps=4", "--data", "tokens.bin", "--model.vocabulary=256", "--run", "foreign"],
        ["export", "run", "--out", "export"],
    ]
    for command in commands:
        result = ballast(*command, cwd=folder)
        if result.returncode != 0:
            raise RuntimeError(f"{command}: {result.stderr}")
    return folder


COMMANDS = {
    "verify": ["prepare", "--verify", "data"],
    "resume": ["train", "--run", "run", "--resume", "auto", f"--training.steps={STEPS}"],
    "resume foreign": ["train", "--run", "foreign", "--resume", "auto", f"--training.steps={STEPS}"],
    "eval": ["eval", "run", "--json"],
    "generate": ["generate", "run", "--prompt", "line 7", "--max-tokens", "12", "--json"],
    "generate exported": ["generate", "export", "--prompt", "line 7", "--max-tokens", "12", "--json"],
}
# Those that read a file, by where it lies; the first that fits.
READERS = [
    ("data/", ["verify", "resume", "eval"]),
    ("tokens.bin", ["resume foreign"]),
    ("foreign/", ["resume foreign"]),
    ("run/tokenizer/", ["generate", "resume"]),
    ("run/checkpoints/", ["resume", "eval"]),
    ("run/", ["resume", "generate"]),
    ("export/", ["generate exported"]),
]


def results_of(name, folder, output):
    """What a command computed, to compare: never times or places."""
    if name == "verify":
        return output.splitlines()[:1]
    if name.startswith("resume"):
        run = folder / COMMANDS[name][2]
        newest = run / "checkpoints" / f"step_{STEPS:08d}"
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        losses = {record["step"]: record["loss"] for record in records if "loss" in record and record["step"] > 4}
        return [losses, *[(newest / file).read_bytes() for file in ("model.safetensors", "optimizer.safetensors")]]
    said = json.loads(output)
    return said["completions"] if name.startswith("generate") else [said["loss"], said["tokens"]]


def damage(content, others, rng):
    """(kind, damaged content), which differs from what it was."""
    while True:
        kind = rng.choice(["bit flip", "truncation", "zeroed block", "swapped file", "appended bytes"])
        changed = bytearray(content)
        at = rng.randrange(len(content)) if content else 0
        if kind == "bit flip" and content:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == "truncation":
            del changed[at:]
        elif kind == "zeroed block":
            size = min(rng.choice([1, 16, 512, 4096]), len(content) - at)
            changed[at : at + size] = bytes(size)
        elif kind == "swapped file" and others:
            changed = bytearray(rng.choice(others).read_bytes())
        elif kind == "appended bytes":
            changed += rng.randbytes(rng.choice([1, 8, 100]))
        if changed != content:
            return kind, bytes(changed)


def classify(name, command, result, folder, damaged, sound):
    if result.returncode not in (0, 2):
        return Outcome(name, command, "fault", f"ended with {result.returncode}: {result.stderr[-300:]}")
    if result.returncode == 2:
        kind = "caught" if result.stderr.strip() else "fault"
        return Outcome(name, command, kind, result.stderr.strip().splitlines()[-1] if kind == "caught" else "refused without a word")
    # A message names the file, or the folder of the checkpoint or tokenizer that it is a part of.
    if any(word in result.stderr for word in (str(damaged), str(damaged.parent) + ":", str(damaged.parent) + " ")) and "passed over" in result.stderr:
        return Outcome(name, command, "caught", "passed over")
    if command == "verify":
        return Outcome(name, command, "fault", "verified")
    try:
        same = results_of(command, folder, result.stdout) == sound[command]
    except (OSError, ValueError, KeyError) as error:
        return Outcome(name, command, "fault", f"no result: {error}")
    if same:
        return Outcome(name, command, "harmless", "")
    told = str(damaged) in result.stderr
    return Outcome(name, command, "caught" if told else "fault", "told" if told else "other results without a word")


def attack(subject, count, seed=1):
    """`count` damaged copies of one file each, dealt over all files; an Outcome for each command that reads it."""
    rng = random.Random(seed)
    files = sorted(path.relative_to(subject) for path in subject.rglob("*") if path.is_file() and path.name != "text.txt")
    order = [file for _ in range(count // len(files) + 1) for file in rng.sample(files, len(files))][:count]
    outcomes, sound = [], {}
    with tempfile.TemporaryDirectory(prefix="ballast-attack-") as temporary:
        place = Path(temporary) / "subject"

        def copy_subject():
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(subject, place)

        for command in COMMANDS if count else ():
            copy_subject()
            result = ballast(*COMMANDS[command], cwd=place)
            if result.returncode != 0:
                raise RuntimeError(f"{command} of a sound subject: {result.stderr}")
            sound[command] = results_of(command, place, result.stdout)
        for number, file in enumerate(order):
            others = [subject / other for other in files if other != file]
            kind, content = damage((subject / file).read_bytes(), others, rng)
            commands = next((readers for start, readers in READERS if file.as_posix().startswith(start)), [])
            for command in commands:
                copy_subject()
                (place / file).write_bytes(content)
                result = ballast(*COMMANDS[command], cwd=place)
                outcomes.append(classify(f"{number}: {kind} in {file}", command, result, place, file, sound))
    return outcomes


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
            outcomes.append(Outcome(name, " ".join(command[:2]), kind, f"{result.returncode}: {result.stderr[-200:]}"))
    return outcomes


def faults_of(outcomes):
    return [outcome for outcome in outcomes if outcome.kind == "fault"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutations", type=int, default=500)
    parser.add_argument("--bombs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ballast-attacks-") as folder:
        subject = make_subject(Path(folder))
        for title, outcomes in (
            ("mutations", attack(subject, options.mutations, options.seed)),
            ("bombs", bomb(subject, options.bombs, options.seed)),
        ):
            print(title, dict(collections.Counter(outcome.kind for outcome in outcomes)), "of", len(outcomes), "commands")
            for fault in faults_of(outcomes):
                print("  fault:", *fault)


if __name__ == "__main__":
    main()
