# SPDX-License-Identifier: Apache-2.0
"""Damages files of every kind that the program reads (attacked_files.py), and tells what it makes of them.

    BALLAST_BUILD=build/release PYTHONPATH=tests/cli .deps/python/bin/python tests/cli/file_attacks.py --files 1008 --log damaged.jsonl

What a number damages, and how, follows from the number and the seed: a sweep that was stopped goes on with the same log.
"""

import argparse
import collections
import json
import random
import shutil
import subprocess
import tempfile
from pathlib import Path

from attacked_files import COMMANDS, KINDS, NEEDS, STEPS, Log, make_subject, readers_of
from in_folder import ballast
from second_readings import SECOND_READINGS, files_of

# What became of a damaged file under a command that reads it.
#   caught: refused with a message, or passed over with one for an older checkpoint
#   harmless: the same results as without damage, to the bit
#   as it stands: a file without checksum that is whole, and read as the official library reads it (second_readings.py)
#   fault: other results without a word, a crash, or no end
Outcome = collections.namedtuple("Outcome", "number file damage command kind words")
DAMAGES = ["bit flip", "truncation", "zeroed block", "swapped blocks", "repeated block", "swapped file", "appended bytes"]
BLOCKS = [1, 16, 512, 4096]


def results_of(name, folder, output):
    """What a command computed, to compare: never times or places."""
    if name == "verify":
        return output.splitlines()[:1]
    if name.startswith("resume"):
        run = folder / COMMANDS[name][2]
        newest = run / "checkpoints" / f"step_{STEPS:08d}"
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        losses = {record["step"]: record["loss"] for record in records if "loss" in record and record["step"] > 4}
        return [losses, *[path.read_bytes() for path in sorted(newest.glob("*.safetensors"))]]
    if name.startswith("prepare"):
        return files_of(folder / "new")
    if name == "import":
        return [path.read_bytes() for path in (folder / "new").glob("*.safetensors")]
    if name == "train by config":
        return (folder / "new/config.toml").read_text()
    said = json.loads(output)
    if name.startswith("report"):
        return [said["systems"], said["notes"], Path(folder / said["page"]).read_text()]
    if name.startswith("assign"):
        return [said["primal"], said["dual"], (folder / "experts.npy").read_bytes()]
    keys = {"generate": ["completions"], "eval": ["loss", "tokens"], "tokenize": ["ids"]}[name.split()[0]]
    return [said[key] for key in keys]


def damaged(content, others, damage, rng):
    """Another content of a file, or None where this damage changes nothing."""
    changed, size = bytearray(content), len(content)
    at = rng.randrange(size) if content else 0
    block = min(rng.choice(BLOCKS), size - at)
    if damage == "bit flip" and content:
        changed[at] ^= 1 << rng.randrange(8)
    elif damage == "truncation":
        del changed[at:]
    elif damage == "zeroed block":
        changed[at : at + block] = bytes(block)
    elif damage == "swapped blocks":
        block = min(rng.choice(BLOCKS), size // 2)
        first, second = sorted([rng.randrange(size - block + 1), rng.randrange(size - block + 1)])
        if second - first >= block:
            changed[first : first + block], changed[second : second + block] = content[second : second + block], content[first : first + block]
    elif damage == "repeated block":
        changed[at:at] = content[at : at + block]
    elif damage == "swapped file" and others:
        changed = bytearray(rng.choice(others).read_bytes())
    elif damage == "appended bytes":
        changed += rng.randbytes(rng.choice([1, 8, 100]))
    return bytes(changed) if changed != content else None


def names_it(said, file):
    """A message names the file, or the folder of the checkpoint or tokenizer that it is a part of."""
    return any(word in said for word in (str(file), f"{file.parent}:", f"{file.parent} "))


def classify(command, result, folder, file, sound):
    """(kind, words) of an Outcome."""
    if result.returncode not in (0, 2):
        return "fault", f"ended with {result.returncode}: {result.stderr[-300:]}"
    if result.returncode == 2:
        return ("caught", result.stderr.strip().splitlines()[-1]) if result.stderr.strip() else ("fault", "refused without a word")
    try:
        same = results_of(command, folder, result.stdout) == sound[command]
    except (OSError, ValueError, KeyError) as error:
        return "fault", f"no result: {error!r}"
    if "passed over" in result.stderr and names_it(result.stderr, file):
        # A run that goes on from an older checkpoint comes to the same end.
        return ("caught", "passed over") if same or not command.startswith("resume") else ("fault", "passed over, with another end")
    if command == "verify":
        return "fault", "verified"
    if same:
        return "harmless", ""
    if str(file) in result.stderr:
        return "caught", "told"
    try:
        agree = command in SECOND_READINGS and SECOND_READINGS[command](folder, result.stdout)
    except Exception as error:  # whatever the other reader has to say of a damaged file
        return "fault", f"other results without a word, and the second reader says: {error!r:.300}"
    return ("as it stands", "") if agree else ("fault", "other results without a word")


class Attack:
    """Damages files of a subject, one at a time."""

    def __init__(self, subject, place, seed=1):
        self.subject, self.place, self.seed = subject, place, seed
        self.files = {kind: sorted(path for pattern in patterns for path in subject.glob(pattern) if path.is_file()) for kind, patterns in KINDS.items()}
        empty = [kind for kind, files in self.files.items() if not files]
        if empty:
            raise RuntimeError(f"no file of these kinds: {empty}")
        self.sound = {}

    def copy(self, command):
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir(parents=True)
        for name in NEEDS[command]:
            source = self.subject / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, self.place / name)

    def make_sound(self, command):
        if command in self.sound:
            return
        self.copy(command)
        result = ballast(*COMMANDS[command], cwd=self.place)
        if result.returncode != 0:
            raise RuntimeError(f"{command} of a sound subject: {result.stderr}")
        self.sound[command] = results_of(command, self.place, result.stdout)

    def choose(self, number):
        """(file, damage, content) of a number: kinds of files in turn, and damages in turn with each."""
        rng = random.Random(f"{self.seed} {number}")
        files = list(self.files.values())[number % len(KINDS)]
        path = rng.choice(files)
        others = [other for other in sum(self.files.values(), []) if other != path]
        damage = DAMAGES[number // len(KINDS) % len(DAMAGES)]
        while True:
            content = damaged(path.read_bytes(), others, damage, rng)
            if content is not None:
                return path.relative_to(self.subject), damage, content
            damage = rng.choice(DAMAGES)

    def outcomes(self, number):
        """One for each command that reads the file."""
        file, damage, content = self.choose(number)
        for command in readers_of(file):
            self.make_sound(command)
            self.copy(command)
            (self.place / file).write_bytes(content)
            try:
                result = ballast(*COMMANDS[command], cwd=self.place)
                kind, words = classify(command, result, self.place, file, self.sound)
            except subprocess.TimeoutExpired:
                kind, words = "fault", "no end"
            yield Outcome(number, str(file), damage, command, kind, words)


def attack(subject, numbers, seed=1):
    """All Outcomes of some numbers."""
    with tempfile.TemporaryDirectory(prefix="ballast-attack-") as temporary:
        under_attack = Attack(subject, Path(temporary) / "subject", seed)
        for number in numbers:
            yield from under_attack.outcomes(number)


def faults_of(outcomes):
    return [outcome for outcome in outcomes if outcome.kind == "fault"]


def kind_of(file):
    return next(kind for kind, patterns in KINDS.items() if any(Path(file).match(pattern) for pattern in patterns))


def print_table(outcomes):
    table = collections.defaultdict(collections.Counter)
    for outcome in outcomes:
        table[kind_of(outcome.file)][outcome.kind] += 1
        table[kind_of(outcome.file)].update({("file", outcome.number): 0})
    columns = ["caught", "harmless", "as it stands", "fault"]
    print("| file | damaged |", " | ".join(columns), "|\n" + "|---" * (len(columns) + 2) + "|")
    rows = [(kind, sum(isinstance(key, tuple) for key in counts), *(counts[column] for column in columns)) for kind, counts in table.items()]
    for row in [*rows, ("all", *(sum(row[i] for row in rows) for i in range(1, len(columns) + 2)))]:
        print("|", " | ".join(map(str, row)), "|")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=len(KINDS) * len(DAMAGES), help="damaged files")
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", type=Path, help="outcomes are added here, a line each; numbers that are there are not tried again")
    options = parser.parse_args()
    log = Log(options.log, Outcome)
    done = {outcome.number for outcome in log.outcomes}
    numbers = [number for number in range(options.first, options.first + options.files) if number not in done]
    with tempfile.TemporaryDirectory(prefix="ballast-attacks-") as folder:
        for outcome in attack(make_subject(Path(folder)), numbers, options.seed) if numbers else ():
            log.add(outcome)
    print_table(log.outcomes)


if __name__ == "__main__":
    main()
