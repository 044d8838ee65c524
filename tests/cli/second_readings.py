# SPDX-License-Identifier: Apache-2.0
"""What others make of a file that has no checksum: Python's own readers and the official libraries.

Damage to such a file can make another one that is whole. Then the program must take it for what it says. Each function
gets the folder in which a command ran and what it printed, and tells whether the program and the other reader agree.
One that raises says no, too.
"""

import gzip
import io
import json
import math
import tomllib

import numpy
import pyarrow.parquet
import tokenizers
import zstandard
from in_folder import ballast
from safetensors import safe_open
from safetensors.numpy import load_file


def csv_matrix(path):
    rows = []
    for line in path.read_text().splitlines():
        words = [word.strip() for word in line.replace(";", ",").split(",")]
        if line.strip() and not line.lstrip().startswith("#"):
            rows.append(words)
    try:
        list(map(float, rows[0]))
    except ValueError:
        del rows[0]  # titles
    return numpy.array([list(map(float, row)) for row in rows])


def scores(read):
    """The assignment that was written is balanced, and worth what the program says by the scores that `read` finds."""
    def agree(place, output):
        said, experts = json.loads(output), numpy.load(place / "experts.npy")
        matrix = numpy.asarray(read(place), dtype=numpy.float32).astype(numpy.float64)
        loads = numpy.bincount(experts, minlength=matrix.shape[1])
        worth = matrix[numpy.arange(len(matrix)), experts].sum()
        close = math.isclose(said["primal"], worth, rel_tol=1e-6, abs_tol=1e-6 * numpy.abs(matrix).max())
        return (said["tokens"], said["experts"]) == matrix.shape and len(experts) == len(matrix) and loads.max() - loads.min() <= 1 and close
    return agree


def only_tensor(path):
    (tensor,) = load_file(path).values()
    return tensor


def config(place, output):
    """All that the file says is what the run was trained with."""
    written, recorded = (tomllib.loads((place / name).read_text()) for name in ("config/mine.toml", "new/config.toml"))
    written.get("training", {}).pop("steps", None)  # the command says it
    return all(recorded[section][key] == value for section, knobs in written.items() for key, value in knobs.items())


def encodes(make):
    def agree(place, output):
        return json.loads(output)["ids"] == make(place).encode((place / "text.txt").read_text(), add_special_tokens=False).ids
    return agree


def by_vocabulary(place):
    made = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(str(place / "gpt2/vocab.json"), str(place / "gpt2/merges.txt")))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return made


def imported(place, output):
    """Its tensors are theirs, and its config is what their config.json says, or what transformers takes where it is silent."""
    said, theirs = json.loads((place / "theirs/config.json").read_text()), load_file(place / "theirs/model.safetensors")
    file = next((place / "new").glob("*.safetensors"))
    with safe_open(file, "numpy") as opened:
        model = tomllib.loads(json.loads(opened.metadata()["ballast.manifest"])["config"])["model"]
    expected = {"context": said.get("max_position_embeddings", 2048), "rope_theta": said.get("rope_theta", 10000.0),
                "norm_epsilon": said.get("rms_norm_eps", 1e-6), "vocabulary": said["vocab_size"], "width": said["hidden_size"],
                "heads": said["num_attention_heads"], "layers": said["num_hidden_layers"]}
    ours = load_file(file)
    def is_same(one, other):
        return one.shape == other.shape and one.tobytes() == other.tobytes()
    tensors = is_same(ours["token_embedding"], theirs["model.embed_tokens.weight"])
    for block in range(said["num_hidden_layers"]):
        here = f"model.layers.{block}."
        joined = numpy.concatenate([theirs[f"{here}self_attn.{part}_proj.weight"] for part in "qkv"])
        tensors &= is_same(ours[f"block.{block}.attention.qkv.weight"], joined)
        tensors &= is_same(ours[f"block.{block}.feed_forward.down.weight"], theirs[f"{here}mlp.down_proj.weight"])
        tensors &= is_same(ours[f"block.{block}.feed_forward.norm.weight"], theirs[f"{here}post_attention_layernorm.weight"])
    return tensors and all(math.isclose(model[key], value, rel_tol=1e-12) for key, value in expected.items())


def prepared(read_lines):
    """`prepare` makes the same of the documents that the other reader finds."""
    def agree(place, output):
        (place / "plain.jsonl").write_bytes(read_lines(place))
        result = ballast("prepare", "plain.jsonl", "--out", "plain", "--tokenizer", "bytes", cwd=place)
        return result.returncode == 0 and files_of(place / "plain") == files_of(place / "new")
    return agree


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "lock"}


def parquet_lines(place):
    documents = pyarrow.parquet.read_table(place / "texts/mine.parquet", page_checksum_verification=True)["text"].to_pylist()
    return "".join(json.dumps({"text": document}) + "\n" for document in documents).encode()


def zst_lines(place):
    packed = (place / "texts/mine.jsonl.zst").read_bytes()
    return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(packed), read_across_frames=True).read()


def strict(text):
    def once(pairs):
        if len({key for key, _ in pairs}) != len(pairs):
            raise ValueError("a key twice")
        return dict(pairs)
    return json.loads(text, object_pairs_hook=once)


def report(place, output):
    """Files of a run that a page is made of: those that are whole are shown as they are, of others the page has a note."""
    notes = " ".join(json.loads(output)["notes"])
    for path in [*place.rglob("*.json"), *place.rglob("*.jsonl"), *place.rglob("*.toml")]:
        if {"report", "checkpoints", "tokenizer"} & set(path.parts) or path.name in notes:
            continue
        text = path.read_bytes().decode("utf-8")
        for part in text.splitlines() if path.suffix == ".jsonl" else [text]:
            (tomllib.loads if path.suffix == ".toml" else strict)(part)
    return True


SECOND_READINGS = {
    "assign .npy": scores(lambda place: numpy.load(place / "scores/mine.npy", allow_pickle=False)),
    "assign .csv": scores(lambda place: csv_matrix(place / "scores/mine.csv")),
    "assign .safetensors": scores(lambda place: only_tensor(place / "scores/mine.safetensors")),
    "train by config": config,
    "tokenize by vocab.json": encodes(by_vocabulary),
    "tokenize by tokenizer.json": encodes(lambda place: tokenizers.Tokenizer.from_file(str(place / "llama/tokenizer.json"))),
    "import": imported,
    "prepare .parquet": prepared(parquet_lines),
    "prepare .gz": prepared(lambda place: gzip.decompress((place / "texts/mine.jsonl.gz").read_bytes())),
    "prepare .zst": prepared(zst_lines),
    "report": report,
    "report experiment": report,
}
