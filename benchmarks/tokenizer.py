#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Our tokenizer against Hugging Face `tokenizers` on the same text, vocabulary and cores, in one run.

    .deps/python/bin/python benchmarks/tokenizer.py [--text FILE] [--json]

Encoding: one core for both, documents of some kB and of 1 MB, against the fastest of Hugging Face's
encode, encode_batch and encode_batch_fast. Training: all cores for both. The two take turns; medians
over --rounds count. Without --text, 20 MB of made-up words with a Zipf law are used.

JSON keys: text_bytes, vocabulary_size, rounds, same_merges, and `results`, a list of
{what, unit, ballast, hugging_face, ratio, same_token_count}; ratio > 1 means that ballast is faster.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
END_OF_TEXT = "<|endoftext|>"
DOCUMENT_SIZES = {"documents of 4 kB": 4096, "texts of 1 MB": 1_000_000}


def made_up_text(size):
    """Words of random letters, the k-th most frequent with weight 1 / k, in sentences and paragraphs."""
    choose = random.Random(0)
    letters = "etaoinshrdlcumwfgypbvkjxqz"
    weights = [1 / (i + 1) for i in range(len(letters))]
    words = ["".join(choose.choices(letters, weights, k=choose.randint(1, 11))) for _ in range(60000)]
    frequencies = [1 / (i + 2) for i in range(len(words))]
    ends = [" "] * 16 + [", ", ", ", ". ", ". ", ".\n\n", "; ", "? ", " 1984 ", "'s "]
    pieces, total = [], 0
    while total < size:
        chunk = "".join(w + choose.choice(ends) for w in choose.choices(words, frequencies, k=10000))
        pieces.append(chunk)
        total += len(chunk)
    return "".join(pieces)[:size].encode()


def cut(text, size):
    """As `ballast bench tokenizer --document-bytes`: at least `size` bytes, each ending with a line."""
    documents, begin = [], 0
    while begin < len(text):
        end = text.find(b"\n", begin + size - 1) + 1 if begin + size < len(text) else 0
        documents.append(text[begin:end or len(text)].decode())
        begin = end or len(text)
    return documents


def work(request):
    """One measurement of Hugging Face's, in a process of its own that has the right environment."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    documents = cut(pathlib.Path(request["text"]).read_bytes(), request["document_bytes"])
    if request["what"] == "train":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(vocab_size=request["vocabulary_size"] - 1, show_progress=False,
                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
        start = time.perf_counter()
        tokenizer.train_from_iterator(documents, trainer)
        seconds = time.perf_counter() - start
        tokenizer.add_special_tokens([END_OF_TEXT])
        tokenizer.save(request["save"])
        return {"seconds": seconds}
    tokenizer = Tokenizer.from_file(request["tokenizer"])
    if request["what"] == "encode":
        start = time.perf_counter()
        encodings = [tokenizer.encode(document) for document in documents]
    else:
        encode = getattr(tokenizer, request["what"])
        start = time.perf_counter()
        encodings = encode(documents)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "tokens": sum(len(encoding.ids) for encoding in encodings)}


def hugging_face(parallel, **request):
    environment = dict(os.environ)
    environment["TOKENIZERS_PARALLELISM"] = "true" if parallel else "false"
    if not parallel:
        environment["RAYON_NUM_THREADS"] = "1"
    command = [sys.executable, __file__, "--worker", json.dumps(request)]
    return json.loads(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout)


def ballast(binary, *options):
    command = [binary, "bench", "tokenizer", "--json", "--repeats", "1", *options]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def merges(path):
    found = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))["model"]["merges"]
    return [merge.split(" ") if isinstance(merge, str) else merge for merge in found]


def bench_train(options, text, folder):
    ours, theirs = [], []
    for _ in range(options.rounds):
        ours.append(ballast(options.ballast, "--train", "--vocab-size", str(options.vocab_size), "--text", text,
                            "--document-bytes", "4096", "--save", f"{folder}/ours")["train_seconds"])
        theirs.append(hugging_face(True, what="train", text=text, document_bytes=4096, save=f"{folder}/theirs.json",
                                   vocabulary_size=options.vocab_size)["seconds"])
    return {"what": f"train {options.vocab_size} tokens", "unit": "s", "ballast": statistics.median(ours),
            "hugging_face": statistics.median(theirs), "ratio": statistics.median(theirs) / statistics.median(ours)}


def bench_encode(options, text, tokenizer, name, document_bytes):
    ways = ["encode", "encode_batch", "encode_batch_fast"]
    size = os.path.getsize(text)
    ours, theirs, tokens = [], {way: [] for way in ways}, set()
    for _ in range(options.rounds):
        result = ballast(options.ballast, "--tokenizer", tokenizer, "--text", text, "--threads", "1",
                         "--document-bytes", str(document_bytes))
        ours.append(size / result["encode_seconds"] / 1e6)
        tokens.add(result["tokens"])
        for way in ways:
            result = hugging_face(False, what=way, text=text, document_bytes=document_bytes, tokenizer=tokenizer)
            theirs[way].append(size / result["seconds"] / 1e6)
            tokens.add(result["tokens"])
    way, speed = max(((way, statistics.median(speeds)) for way, speeds in theirs.items()), key=lambda item: item[1])
    return {"what": f"encode {name}, against {way}", "unit": "MB/s", "ballast": statistics.median(ours),
            "hugging_face": speed, "ratio": statistics.median(ours) / speed, "same_token_count": len(tokens) == 1}


def run(options):
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(options.text).read_bytes() if options.text else made_up_text(20_000_000)
        # Only ballast's trainer takes end-of-text for a separator.
        source = source.decode(errors="replace").replace(END_OF_TEXT, "").encode()
        text, sample = f"{folder}/text", f"{folder}/sample"
        pathlib.Path(text).write_bytes(source)
        pathlib.Path(sample).write_bytes(source[: options.encode_bytes].decode(errors="ignore").encode())
        results = [bench_train(options, text, folder)]
        for name, size in DOCUMENT_SIZES.items():
            results.append(bench_encode(options, sample, f"{folder}/ours/tokenizer.json", name, size))
        return {"text_bytes": len(source), "vocabulary_size": options.vocab_size, "rounds": options.rounds,
                "same_merges": merges(f"{folder}/ours/tokenizer.json") == merges(f"{folder}/theirs.json"),
                "results": results}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", help="a UTF-8 text file (default: made up)")
    parser.add_argument("--ballast", default=str(ROOT / "build/release/ballast"), help="the binary")
    parser.add_argument("--vocab-size", type=int, default=8192)
    parser.add_argument("--encode-bytes", type=int, default=10_000_000, help="how much of the text to encode")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(work(json.loads(options.worker))))
        return
    result = run(options)
    if options.json:
        print(json.dumps(result))
        return
    print(f"{result['text_bytes'] / 1e6:.1f} MB of text, {options.rounds} rounds, "
          f"same merges: {'yes' if result['same_merges'] else 'NO'}")
    print(f"{'':48} {'ballast':>10} {'HF':>10} {'ratio':>7}  same count")
    for row in result["results"]:
        same = {True: "yes", False: "NO"}.get(row.get("same_token_count"), "")
        print(f"{row['what']:48} {row['ballast']:10.3g} {row['hugging_face']:10.3g} {row['ratio']:6.1f}x  {same}  [{row['unit']}]")


if __name__ == "__main__":
    main()
