# SPDX-License-Identifier: Apache-2.0
"""Small ones of every kind of file that the program reads, and the commands that read them: what file_attacks.py damages."""

import gzip
import json
import struct

import numpy
import pyarrow
import pyarrow.parquet
import tokenizers
import zstandard
from import_test import LLAMA, llama_tensors
from in_folder import TINY, ballast
from made_up_experiment import make_experiment
from safetensors.numpy import save_file

EXPERTS = "--experts.layers=1 --experts.count=2 --experts.sublayers=1 --experts.groups=1".split()
STEPS = 6
CONFIG = """# what a user writes
[model]
width = 16
layers = 1
heads = 2
context = 16
activation = "gelu"
[training]
batch = 2
threads = 1
validate_every = 0
last_validate_batches = 2
[optimizer]
learning_rate = 0.002
"""

# What a file is, by where it lies; a pattern may fit several.
KINDS = {
    "weights and optimizer of a checkpoint": ["run/checkpoints/*/*.safetensors"],
    "manifest of a checkpoint": ["run/checkpoints/*/manifest.json"],
    "shards of a data set": ["data/*.tokens"],
    "index of a data set": ["data/index.json"],
    "tokenizer of a data set or run": ["data/tokenizer.json", "data/vocab.json", "data/merges.txt", "run/tokenizer/*"],
    "run.json": ["run/run.json"],
    "config.toml of a run": ["run/config.toml"],
    "metrics.jsonl": ["run/metrics.jsonl"],
    "validation.json": ["run/validation.json"],
    "samples and events": ["run/samples.txt", "run/tensorboard/*"],
    "experiment.json": ["experiment/experiment.json"],
    "export": ["export/*", "export/tokenizer/*"],
    "token file of another program": ["tokens.bin"],
    "config of a user": ["config/mine.toml"],
    "scores, .npy": ["scores/mine.npy"],
    "scores, .csv": ["scores/mine.csv"],
    "scores, .safetensors": ["scores/mine.safetensors"],
    "vocab.json and merges.txt of GPT-2's": ["gpt2/vocab.json", "gpt2/merges.txt"],
    "tokenizer.json of Hugging Face's": ["llama/tokenizer.json"],
    "config.json of Hugging Face's": ["theirs/config.json"],
    "weights of Hugging Face's": ["theirs/model.safetensors"],
    "texts, .parquet": ["texts/mine.parquet"],
    "texts, .jsonl.gz": ["texts/mine.jsonl.gz"],
    "texts, .jsonl.zst": ["texts/mine.jsonl.zst"],
}

COMMANDS = {
    "verify": ["prepare", "--verify", "data"],
    "resume": ["train", "--run", "run", "--resume", "auto", f"--training.steps={STEPS}"],
    "resume foreign": ["train", "--run", "foreign", "--resume", "auto", f"--training.steps={STEPS}"],
    "eval": ["eval", "run", "--json"],
    "generate": ["generate", "run", "--prompt", "line 7", "--max-tokens", "12", "--json"],
    "generate exported": ["generate", "export", "--prompt", "line 7", "--max-tokens", "12", "--json"],
    "report": ["report", "run", "--json"],
    "report experiment": ["report", "experiment", "--json"],
    "train by config": ["train", "--config", "config/mine.toml", "--data", "data", "--run", "new", "--training.steps=1"],
    "assign .npy": ["assign", "--scores", "scores/mine.npy", "--out", "experts.npy", "--json"],
    "assign .csv": ["assign", "--scores", "scores/mine.csv", "--out", "experts.npy", "--json"],
    "assign .safetensors": ["assign", "--scores", "scores/mine.safetensors", "--out", "experts.npy", "--json"],
    "tokenize by vocab.json": ["tokenize", "--file", "text.txt", "--tokenizer", "gpt2", "--json"],
    "tokenize by tokenizer.json": ["tokenize", "--file", "text.txt", "--tokenizer", "llama", "--json"],
    "import": ["import", "theirs", "--out", "new", "--json"],
    "prepare .parquet": ["prepare", "texts/mine.parquet", "--out", "new", "--tokenizer", "bytes"],
    "prepare .gz": ["prepare", "texts/mine.jsonl.gz", "--out", "new", "--tokenizer", "bytes"],
    "prepare .zst": ["prepare", "texts/mine.jsonl.zst", "--out", "new", "--tokenizer", "bytes"],
}
# Those that read a file, by where it lies; the first that fits.
READERS = [
    ("data/", ["verify", "resume", "eval"]),
    ("tokens.bin", ["resume foreign"]),
    ("run/tokenizer/", ["generate", "resume"]),
    ("run/checkpoints/", ["resume", "eval"]),
    ("run/", ["resume", "generate", "report"]),
    ("experiment/", ["report experiment"]),
    ("export/", ["generate exported"]),
    ("config/", ["train by config"]),
    ("scores/mine.npy", ["assign .npy"]),
    ("scores/mine.csv", ["assign .csv"]),
    ("scores/mine.safetensors", ["assign .safetensors"]),
    ("gpt2/", ["tokenize by vocab.json"]),
    ("llama/", ["tokenize by tokenizer.json"]),
    ("theirs/", ["import"]),
    ("texts/mine.parquet", ["prepare .parquet"]),
    ("texts/mine.jsonl.gz", ["prepare .gz"]),
    ("texts/mine.jsonl.zst", ["prepare .zst"]),
]
# The folders of the subject that a command needs.
NEEDS = {"verify": ["data"], "resume": ["data", "run"], "resume foreign": ["foreign", "tokens.bin"], "eval": ["data", "run"], "generate": ["run"],
         "generate exported": ["export"], "report": ["run"], "report experiment": ["experiment"], "train by config": ["config", "data"],
         "assign .npy": ["scores"], "assign .csv": ["scores"], "assign .safetensors": ["scores"], "tokenize by vocab.json": ["gpt2", "text.txt"],
         "tokenize by tokenizer.json": ["llama", "text.txt"], "import": ["theirs"], "prepare .parquet": ["texts"], "prepare .gz": ["texts"],
         "prepare .zst": ["texts"]}


class Log:
    """Outcomes of a sweep (file_attacks.py, fault_attacks.py). Where there is a path, a sweep that was stopped goes on from it."""

    def __init__(self, path, outcome):
        self.path = path
        self.outcomes = [outcome(**json.loads(line)) for line in path.read_text().splitlines()] if path and path.exists() else []

    def add(self, outcome):
        self.outcomes.append(outcome)
        if self.path:
            with self.path.open("a") as file:
                file.write(json.dumps(outcome._asdict()) + "\n")
        if outcome.kind == "fault":
            print("fault:", *outcome, sep=" | ", flush=True)


def readers_of(file):
    return next(commands for start, commands in READERS if file.as_posix().startswith(start))


def make_subject(folder):
    """A data set, a file of tokens, a run on each, an export, and what others bring."""
    text = "".join(f"line {i} tells of {i * i} things and of others\n" for i in range(1500))
    (folder / "text.txt").write_text(text)
    (folder / "tokens.bin").write_bytes(struct.pack("<6000H", *(i * i % 250 for i in range(6000))))
    commands = [
        ["prepare", "text.txt", "--out", "data", "--tokenizer", "bpe", "--vocab-size", "300", "--shard-tokens", "8000"],
        ["train", *TINY, *EXPERTS, "--training.steps=4", "--checkpoint.every=2", "--data", "data", "--run", "run"],
        ["train", *TINY, "--training.steps=4", "--data", "tokens.bin", "--model.vocabulary=256", "--run", "foreign"],
        ["export", "run", "--out", "export"],
    ]
    for command in commands:
        result = ballast(*command, cwd=folder)
        if result.returncode != 0:
            raise RuntimeError(f"{command}: {result.stderr}")
    for name in ("config", "scores", "gpt2", "llama", "theirs", "texts"):
        (folder / name).mkdir()
    (folder / "config/mine.toml").write_text(CONFIG)
    make_scores(folder / "scores")
    make_tokenizers(folder, text)
    (folder / "theirs/config.json").write_text(json.dumps(LLAMA))
    save_file(llama_tensors(), folder / "theirs/model.safetensors", metadata={"format": "pt"})
    make_texts(folder / "texts", text)
    make_experiment(folder / "experiment", counts=(4,), seconds=4)
    return folder


def make_scores(folder):
    scores = numpy.random.default_rng(3).normal(size=(40, 4)).astype(numpy.float32)
    numpy.save(folder / "mine.npy", scores)
    (folder / "mine.csv").write_text("".join(",".join(f"{score:.6f}" for score in row) + "\n" for row in scores))
    save_file({"scores": scores}, folder / "mine.safetensors")


def make_tokenizers(folder, text):
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator([text], tokenizers.trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, show_progress=False,
                                                                    special_tokens=["<|endoftext|>"]))
    made.save(str(folder / "llama/tokenizer.json"))
    made.model.save(str(folder / "gpt2"))


def make_texts(folder, text):
    documents = ["\n".join(text.splitlines()[i : i + 10]) for i in range(0, 600, 10)]
    lines = "".join(json.dumps({"text": document}) + "\n" for document in documents).encode()
    (folder / "mine.jsonl.gz").write_bytes(gzip.compress(lines))
    (folder / "mine.jsonl.zst").write_bytes(zstandard.ZstdCompressor(write_checksum=True).compress(lines))
    pyarrow.parquet.write_table(pyarrow.table({"text": documents}), folder / "mine.parquet", write_page_checksum=True, row_group_size=25)
