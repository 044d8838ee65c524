#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens a second of our generation beside transformers' `generate`, the same exported model, in one run.

    BALLAST_BUILD=build/release .deps/python/bin/python benchmarks/generation.py [--threads 1] [--rounds 5] [--json]

and on a machine with a GPU, with a folder that `make dist` packed and a Python that has torch and transformers:

    BALLAST_BUILD=dist/ballast-VERSION-linux-x86_64 python3 benchmarks/generation.py --device cuda --tokens 256

Dense models of several sizes (the parts of Llama's: rope, RMSNorm, SwiGLU) are made by a training of one step and
exported for transformers. Both write greedily with a cache of keys and values: --tokens new tokens after a short
prompt, of 1, 16 and 64 texts at once. On the CPU in fp32 on --threads cores, to which both are bound; on a GPU in fp32
(both without TF32) and in bf16. Ours is a `ballast serve` that was asked before, which is asked for all the texts in
one request; theirs is one call of `generate`. So both are warm, reading the prompts counts, and loading does not. The
two take turns; medians over --rounds count. Threads of both that wait sleep soon, as those of `ballast` always do.

On a machine that others use, too, tokens a second of processor time tell more than those of time; of one thread they
are the same where nobody disturbs.

JSON keys: device, threads, rounds, new_tokens, and `results`, a list of {model, parameters, precision, rows, ballast,
transformers (both in tokens a second), ratio, ballast_cpu, transformers_cpu (in tokens a second of processor time),
ratio_cpu, same_text}; a ratio > 1 means that ballast is faster.
"""
import argparse
import contextlib
import http.client
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.setdefault("BALLAST_BUILD", str(ROOT / "build" / "release"))).resolve()

MODELS = {"width 128, 8 layers": (128, 8, 4), "width 512, 12 layers": (512, 12, 8)}
MODELS_OF_GPU = {"width 1024, 24 layers": (1024, 24, 16)}
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
             "training.batch": 1, "training.sample_tokens": 0, "training.validate_batches": 1, "training.device": "cpu"}
    ballast("train", "--run", folder / "run", "--quiet", *(f"--{key}={value}" for key, value in knobs.items()))
    ballast("export", folder / "run", "--format", "hf", "--out", folder / "hf")
    return folder / "run", folder / "hf"


class Ours:
    """A server of the model, which writes `rows` texts at a time."""

    def __init__(self, run, rows, precision, options):
        words = ["serve", run, "--port", 0, "--quiet", "--rows", rows, "--device", options.device, "--precision", precision]
        self.server = subprocess.Popen([BUILD / "ballast", *map(str, words)], stdout=subprocess.PIPE, text=True)
        self.port = urllib.parse.urlsplit(self.server.stdout.readline().strip()).port
        self.asked = json.dumps({"prompt": PROMPT, "n": rows, "max_tokens": options.tokens, "temperature": 0, "ignore_eos": True})

    def processor_seconds(self):
        fields = pathlib.Path(f"/proc/{self.server.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def write(self):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)) as connection:
            start = time.perf_counter()
            connection.request("POST", "/v1/completions", body=self.asked)
            answer = json.loads(connection.getresponse().read())
            seconds = time.perf_counter() - start
        return seconds, answer["usage"]["completion_tokens"], [choice["text"] for choice in answer["choices"]]

    def close(self):
        self.server.kill()
        self.server.communicate()


class Theirs:
    def __init__(self, folder, precision, options):
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval().to(options.device)
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        # As before every document in training.
        ids = self.tokenizer.convert_tokens_to_ids(["<|endoftext|>"]) + self.tokenizer(PROMPT)["input_ids"]
        self.prompt = torch.tensor([ids], device=options.device)
        self.options = dict(max_new_tokens=options.tokens, min_new_tokens=options.tokens, do_sample=False, use_cache=True,
                            eos_token_id=None, pad_token_id=0)

    @staticmethod
    def processor_seconds():
        return time.process_time()

    def wait(self):
        if self.prompt.is_cuda:
            torch.cuda.synchronize()

    def write(self, rows):
        prompts = self.prompt.repeat(rows, 1)
        mask = torch.ones_like(prompts)
        with torch.inference_mode():
            self.wait()
            start = time.perf_counter()
            all_ids = self.model.generate(prompts, attention_mask=mask, **self.options)
            self.wait()
            seconds = time.perf_counter() - start
        written = all_ids[:, prompts.shape[1] :].tolist()
        return seconds, sum(map(len, written)), self.tokenizer.batch_decode(written, clean_up_tokenization_spaces=False)


def compare(ours, theirs, rows, rounds):
    writers = {"ballast": (ours, ours.write), "transformers": (theirs, lambda: theirs.write(rows))}
    seconds, processor, tokens, texts = {name: [] for name in writers}, {name: [] for name in writers}, {}, {}
    for turn in range(rounds + 1):
        for name, (writer, write) in writers.items():
            start = writer.processor_seconds()
            took, tokens[name], texts[name] = write()
            if turn > 0:  # the first is for the caches
                seconds[name].append(took)
                processor[name].append(writer.processor_seconds() - start)
    assert tokens["ballast"] == tokens["transformers"], f"they wrote different numbers of tokens: {tokens}"
    speeds = {name: tokens[name] / statistics.median(seconds[name]) for name in writers}
    speeds_cpu = {f"{name}_cpu": tokens[name] / max(1e-3, statistics.median(processor[name])) for name in writers}
    return {"rows": rows, **speeds, "ratio": speeds["ballast"] / speeds["transformers"], **speeds_cpu,
            "ratio_cpu": speeds_cpu["ballast_cpu"] / speeds_cpu["transformers_cpu"],
            "same_text": texts["ballast"] == texts["transformers"]}


def compare_model(name, size, options):
    with tempfile.TemporaryDirectory() as folder:
        run, exported = made(pathlib.Path(folder), *size)
        for precision in ("fp32", "bf16") if options.device == "cuda" else ("fp32",):
            theirs = Theirs(exported, precision, options)
            parameters = sum(weights.numel() for weights in theirs.model.parameters())
            for rows in options.rows:
                with contextlib.closing(Ours(run, rows, precision, options)) as ours:
                    found = compare(ours, theirs, rows, options.rounds)
                yield {"model": name, "parameters": parameters, "precision": precision, **found}


def bind_to_cores(count):
    """Us and all that we start: `ballast` has as many threads as it may use cores."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[: count or len(cores)])
    os.environ["OMP_NUM_THREADS"] = str(len(os.sched_getaffinity(0)))
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def import_theirs():
    """Plain torch where there is one, else that of the build, which has no GPU."""
    global torch, transformers
    if importlib.util.find_spec("torch") is None:
        sys.path.insert(0, str(ROOT / "tests" / "oracles"))
        import torch_of_build  # noqa: F401
    import torch
    import transformers
    transformers.utils.logging.disable_progress_bar()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=0, help="cores for both; 0: all")
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS, help="texts at once")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128, help="new ones of each text")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    bind_to_cores(options.threads)
    import_theirs()
    results = []
    for name, size in (MODELS | (MODELS_OF_GPU if options.device == "cuda" else {})).items():
        for found in compare_model(name, size, options):
            results.append(found)
            print("{model:22} {parameters:>11,} {precision} {rows:3} rows: ballast {ballast:8.1f}, transformers {transformers:8.1f} "
                  "tokens/s, {ratio:.2f}x; by processor time {ballast_cpu:8.1f}, {transformers_cpu:8.1f}, {ratio_cpu:.2f}x; "
                  "same text: {same_text}".format(**found), file=sys.stderr if options.json else sys.stdout, flush=True)
    if options.json:
        print(json.dumps({"device": options.device, "threads": torch.get_num_threads(), "rounds": options.rounds,
                          "new_tokens": options.tokens, "results": results}))


if __name__ == "__main__":
    main()
