#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens a second of our generation beside transformers' `generate`, the same exported model, in one run.

    BALLAST_BUILD=build/release .deps/python/bin/python benchmarks/generation.py [--rounds 5] [--json]

Dense models of two sizes (the parts of Llama's: rope, RMSNorm, SwiGLU) are made by a training of one step and
exported for transformers. Both write greedily, in fp32, with a cache of keys and values, on equally many threads:
--tokens new tokens after a short prompt, of 1, 16 and 64 texts at once. Reading the prompt counts,
loading the model does not. The two take turns; medians over --rounds count.

JSON keys: threads, rounds, new_tokens, and `results`, a list of {model, parameters, rows, ballast, transformers (both
in tokens a second), ratio, same_text}; ratio > 1 means that ballast is faster.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.setdefault("BALLAST_BUILD", str(ROOT / "build" / "release"))).resolve()
sys.path.insert(0, str(ROOT / "tests" / "oracles"))
import torch_of_build  # noqa: E402, F401  torch before anybody else imports it
import torch  # noqa: E402
import transformers  # noqa: E402

MODELS = {"width 128, 8 layers": (128, 8, 4), "width 512, 12 layers": (512, 12, 8)}
ROWS = (1, 16, 64)
PROMPT = "The weather report of the day says that"


def ballast(*words):
    done = subprocess.run([BUILD / "ballast", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def made(folder, width, layers, heads):
    """A run of ours, exported: for us, and for transformers."""
    knobs = {"model.width": width, "model.layers": layers, "model.heads": heads, "model.context": 512, "model.positions": "rope",
             "model.norm": "rms", "model.activation": "swiglu", "model.biases": "none", "experts.layers": 0,
             "data.train": "builtin", "data.builtin_bytes": 2_000_000, "data.builtin_vocabulary": 8192, "training.steps": 1,
             "training.batch": 1, "training.sample_tokens": 0, "training.validate_batches": 1}
    ballast("train", "--run", folder / "run", "--quiet", *(f"--{key}={value}" for key, value in knobs.items()))
    ballast("export", folder / "run", "--format", "hf", "--out", folder / "hf")
    return folder / "run", folder / "hf"


class Ours:
    def __init__(self, run, new_tokens):
        self.words = ["generate", run, "--device", "cpu", "--prompt", PROMPT, "--temperature", 0, "--endless",
                      "--max-tokens", new_tokens, "--json"]

    def write(self, rows):
        found = json.loads(ballast(*self.words, "--samples", rows))
        return found["seconds"], [text["ids"] for text in found["completions"]]


class Theirs:
    def __init__(self, folder, new_tokens):
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        # As before every document in training.
        self.prompt = torch.tensor([tokenizer.convert_tokens_to_ids(["<|endoftext|>"]) + tokenizer(PROMPT)["input_ids"]])
        self.options = dict(max_new_tokens=new_tokens, min_new_tokens=new_tokens, do_sample=False, use_cache=True,
                            eos_token_id=None, pad_token_id=0)

    def write(self, rows):
        prompts = self.prompt.repeat(rows, 1)
        with torch.inference_mode():
            start = time.perf_counter()
            written = self.model.generate(prompts, attention_mask=torch.ones_like(prompts), **self.options)
            seconds = time.perf_counter() - start
        return seconds, written[:, prompts.shape[1] :].tolist()


def compare(ours, theirs, rows, rounds):
    seconds, texts = {ours: [], theirs: []}, {}
    for turn in range(rounds + 1):
        for one in (ours, theirs):
            took, texts[one] = one.write(rows)
            if turn > 0:  # the first is for the caches
                seconds[one].append(took)
    tokens = sum(map(len, texts[ours]))
    assert tokens == sum(map(len, texts[theirs])), "they wrote different numbers of tokens"
    mine, other = (tokens / statistics.median(seconds[one]) for one in (ours, theirs))
    return {"rows": rows, "ballast": mine, "transformers": other, "ratio": mine / other,
            "same_text": texts[ours] == texts[theirs]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128, help="new ones of each text")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    threads = torch.get_num_threads()
    os.environ["OMP_NUM_THREADS"] = str(threads)
    results = []
    for name, (width, layers, heads) in MODELS.items():
        with tempfile.TemporaryDirectory() as folder:
            run, exported = made(pathlib.Path(folder), width, layers, heads)
            ours, theirs = Ours(run, options.tokens), Theirs(exported, options.tokens)
            parameters = sum(weights.numel() for weights in theirs.model.parameters())
            for rows in ROWS:
                found = {"model": name, "parameters": parameters, **compare(ours, theirs, rows, options.rounds)}
                results.append(found)
                print("{model:22} {parameters:>11,} {rows:3} rows: ballast {ballast:8.1f}, transformers {transformers:8.1f} tokens/s, "
                      "{ratio:.2f}x, same text: {same_text}".format(**found), file=sys.stderr if options.json else sys.stdout, flush=True)
    if options.json:
        print(json.dumps({"threads": threads, "rounds": options.rounds, "new_tokens": options.tokens, "results": results}))


if __name__ == "__main__":
    main()
