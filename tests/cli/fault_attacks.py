# SPDX-License-Identifier: Apache-2.0
"""Makes system calls on files fail or fall short, and allocations, and tells what the program makes of it.

    BALLAST_BUILD=build/release .deps/python/bin/python tests/cli/fault_attacks.py --every 1 --memory 500 --log faults.jsonl

Each attack lets one command run with one fault (fault_preload.cpp), and then the command that a user would give next.
A sweep that was stopped goes on with the same log; --seconds makes slices of it.
"""

import argparse
import collections
import errno
import os
import random
import re
import shutil
import tempfile
import time
from pathlib import Path

import numpy
from attacked_files import Log
from in_folder import BUILD, TINY, ballast
from safetensors.numpy import load

# What became of a fault. Told: the command ended with a message. Harmless: it ended well, with the right result.
# Fault: a crash, an end without a word, or another result, at once or after the command that followed.
Outcome = collections.namedtuple("Outcome", "command attack kind words")

PREPARE = ["prepare", "text.txt", "--out", "data", "--tokenizer", "bpe", "--vocab-size", "300", "--shard-tokens", "8000"]
TRAIN = ["train", *TINY, "--training.steps=4", "--checkpoint.every=2", "--data", "data", "--run", "run"]
RESUME = ["train", "--run", "run", "--resume", "auto", "--training.steps=6"]
EXPORT = ["export", "run", "--out", "export"]
REPORT = ["report", "run"]

# Per command: what must be there before, what a user would give after it ended badly, and what it leaves: files whose
# bytes are always the same.
Command = collections.namedtuple("Command", "before words again leaves")
COMMANDS = {
    "prepare": Command([], PREPARE, PREPARE, ["data"]),
    "train": Command([PREPARE], TRAIN, [*TRAIN, "--resume", "auto"], ["run/checkpoints/step_00000004"]),
    "resume": Command([PREPARE, TRAIN], RESUME, RESUME, ["run/checkpoints/step_00000006"]),
    "export": Command([PREPARE, TRAIN], EXPORT, EXPORT, ["export"]),
    "report": Command([PREPARE, TRAIN], REPORT, REPORT, []),
}
# Files of a result that tell when or where it was made.
VARYING = {"lock", "manifest.json"}
# What weights of this size may differ by after two steps that were computed in another order: Adam moves them by 1e-4.
ROUNDING = 1e-6


def make_text(folder):
    text = "".join(f"line {i} tells of {i * i} things and of others\n" for i in range(1500))
    (folder / "text.txt").write_text(text)


def faulty(place, words, counts=None, **settings):
    """Runs the program on `place` with faults; settings are those of fault_preload.cpp."""
    environment = {**os.environ, "LD_PRELOAD": str(BUILD / "libfault_preload.so"), "BALLAST_FAULT_FOLDER": str(place),
                   "GOMP_SPINCOUNT": "1000"}  # as the program sets it: it need not start again
    environment.update({f"BALLAST_FAULT_{name.upper()}": str(value) for name, value in settings.items()})
    if counts:
        environment["BALLAST_FAULT_COUNTS"] = str(counts)
    return ballast(*words, cwd=place, env=environment)


def result_of(place, leaves):
    """All bytes of what a command leaves, by name."""
    files = {}
    for name in leaves:
        folder = place / name
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.name not in VARYING:
                files[str(path.relative_to(place))] = path.read_bytes()
    return files


def is_near(files, right):
    """Whether two results are the same but for rounding. A library that gets no memory for one way to compute may take
    another, in silence."""
    if files.keys() != right.keys():
        return False
    for name, content in files.items():
        if not name.endswith(".safetensors"):
            continue  # they tell of the numbers, by checksums and losses
        one, other = load(content), load(right[name])
        if one.keys() != other.keys() or any(numpy.abs(one[key] - other[key]).max() > ROUNDING for key in one):
            return False
    return True


class Subject:
    """What a command starts from, how many calls it makes, and the right result."""

    def __init__(self, name, folder, words=None):
        self.name, self.command = name, COMMANDS[name]
        if words:
            self.command = self.command._replace(words=words, again=words)
        self.folder = folder / "+".join(["subject", *(words[0] for words in self.command.before)])
        if not self.folder.exists():
            self.folder.mkdir()
            make_text(self.folder)
            for words in self.command.before:
                self.run_well(self.folder, words)
        with tempfile.TemporaryDirectory(prefix="ballast-faults-") as temporary:
            place = Path(temporary) / "place"
            shutil.copytree(self.folder, place)
            counts = Path(temporary) / "counts"
            result = faulty(place, self.command.words, counts, at=0, memory=0)
            if result.returncode != 0:
                raise RuntimeError(f"{name} without a fault: {result.stderr}")
            numbers, names = counts.read_text().splitlines()
            self.calls, self.allocations = map(int, numbers.split())
            self.names = names.split()
            self.right = result_of(place, self.command.leaves)

    @staticmethod
    def run_well(place, words):
        result = ballast(*words, cwd=place)
        if result.returncode != 0:
            raise RuntimeError(f"{words}: {result.stderr}")

    def attack(self, place, label, **settings):
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.folder, place)
        result = faulty(place, self.command.words, **settings)
        said = result.stderr.strip()
        reason = (["", *re.findall("^ballast: .*(?:\n  .*)*", said, re.MULTILINE)])[-1]  # what belongs to it is indented

        def outcome(kind, words):
            return Outcome(self.name, label, kind, f"{words}; it said: {reason}")

        if result.returncode == 0:
            found = result_of(place, self.command.leaves)
            if found != self.right and not ("memory" in settings and is_near(found, self.right)):
                told = "passed over" in said  # an older checkpoint in place of one that cannot be read
                return outcome("told" if told else "fault", "ended well with another result")
            return outcome("harmless", "the right result")
        # Libraries crash where they get no memory: then the words count. After a call on a file nothing may crash.
        if "memory" not in settings and not 0 <= result.returncode < 128:
            return outcome("fault", f"crashed with {result.returncode}")
        if not reason or not said.endswith(reason):
            return outcome("fault", f"ended with {result.returncode} without a reason")
        if self.right and result_of(place, self.command.leaves) == self.right:
            return outcome("told", "the result was there already")
        after = ballast(*self.command.again, cwd=place)
        if after.returncode != 0:
            return outcome("fault", f"cannot be done again: {after.stderr.strip()[-300:]}")
        if result_of(place, self.command.leaves) != self.right:
            return outcome("fault", "another result when done again")
        return outcome("told", f"ended with {result.returncode}")


def calls_to_attack(subject, every=1, kinds=("fail", "short", "stays")):
    """(label, settings) for each `every`-th call of a command and each kind of fault."""
    for number in range(1, subject.calls + 1, every):
        name = subject.names[number - 1]
        for kind in kinds:
            if kind == "short" and "write" not in name:
                continue
            error = errno.ENOMEM if name == "mmap" else errno.ENOSPC if number % 2 else errno.EIO
            yield f"call {number} of {subject.calls}, {name}: {kind}", {"at": number, "kind": kind, "errno": error}


def allocations_to_attack(subject, count, seed=1):
    """(label, settings) for each of `count` allocations that get nothing, or of all where there are fewer."""
    rng = random.Random(f"{seed} {subject.name}")
    for number in rng.sample(range(1, subject.allocations + 1), min(count, subject.allocations)):
        yield f"allocation {number} of {subject.allocations}", {"memory": number}


def survey(folder, every, memory, seed=1, commands=COMMANDS, done=()):
    """All attacks but those that are `done` (command, label); `memory` allocations over all commands there are."""
    place = Path(folder) / "place"
    for name in commands:
        subject = Subject(name, Path(folder))
        for label, settings in [*calls_to_attack(subject, every), *allocations_to_attack(subject, memory // len(COMMANDS), seed)]:
            if (name, label) not in done:
                yield subject.attack(place, label, **settings)


def faults_of(outcomes):
    return [outcome for outcome in outcomes if outcome.kind == "fault"]


def print_table(outcomes):
    """A row for each command and way to fail: `fail`, `short` and `stays` of calls, `memory` of allocations."""
    table = collections.defaultdict(collections.Counter)
    for outcome in outcomes:
        way = "memory" if outcome.attack.startswith("allocation") else outcome.attack.rsplit(": ", 1)[1]
        table[outcome.command, way][outcome.kind] += 1
    columns = ["told", "harmless", "fault"]
    print("| command | what fails | injected |", " | ".join(columns), "|\n" + "|---" * (len(columns) + 3) + "|")
    rows = [(*key, counts.total(), *(counts[column] for column in columns)) for key, counts in table.items()]
    for row in [*rows, ("all", "", *(sum(row[i] for row in rows) for i in range(2, len(columns) + 3)))]:
        print("|", " | ".join(map(str, row)), "|")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--memory", type=int, default=500)
    parser.add_argument("--large", type=int, default=64 << 10, help="bytes from which on an allocation is attacked")
    parser.add_argument("--commands", nargs="*", default=list(COMMANDS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no attack begins after them")
    parser.add_argument("--log", type=Path, help="outcomes are added here, a line each; attacks that are there are not done again")
    options = parser.parse_args()
    os.environ["BALLAST_FAULT_LARGE"] = str(options.large)
    log = Log(options.log, Outcome)
    done = {(outcome.command, outcome.attack) for outcome in log.outcomes}
    end = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory(prefix="ballast-faults-") as folder:
        for outcome in survey(folder, options.every, options.memory, options.seed, options.commands, done):
            log.add(outcome)
            if time.monotonic() > end:
                print("there was no time for the rest")
                break
    print_table(log.outcomes)


if __name__ == "__main__":
    main()
