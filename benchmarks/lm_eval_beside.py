#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""lm-eval's numbers of a model that `ballast export --format hf` wrote, on the files that `ballast eval` takes.

    python benchmarks/lm_eval_beside.py models/hf --wikitext wiki.test.txt --words texts.jsonl --last-word words.jsonl \
        --choice questions.jsonl --json ballast.json

It needs lm-eval, transformers and torch (or BALLAST_BUILD, whose libtorch it then takes). With --json, what
`ballast eval --json` said of the same files, it prints both and their relative difference. No network is used.
"""

import argparse
import json
import os
import re
import sys
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TOKENIZERS_PARALLELISM="false")
if "BALLAST_BUILD" in os.environ:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "oracles"))
    import torch_of_build  # noqa: F401

import lm_eval
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks.wikitext.preprocess_wikitext import process_results, wikitext_detokenizer

PERPLEXITIES = [{"metric": name} for name in ("word_perplexity", "byte_perplexity", "bits_per_byte")]
MEAN = {"aggregation": "mean", "higher_is_better": True}


def pages_of(text):
    """As the data set that lm-eval's own task loads is cut."""
    page = []
    for line in text.split("\n"):
        bare = line.replace("= = =", "===").replace("= =", "==").strip()
        if bare.startswith("= ") and bare.endswith(" ="):
            if "".join(page).strip():
                yield "\n".join(page)
            page = []
        page.append(line)
    yield "\n".join(page)


def as_lines(path, objects):
    path.write_text("".join(json.dumps(one) + "\n" for one in objects))
    return path


def tasks_of(given, scratch):
    def task(path, output, **more):
        name = re.sub(r"\..*", "", Path(path).name)
        return {"task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(path)}}, "test_split": "test",
                "output_type": output, "num_fewshot": 0, **more}

    if given.wikitext:
        pages = as_lines(scratch / (Path(given.wikitext).name.split(".")[0] + ".jsonl"),
                         ({"page": page} for page in pages_of(Path(given.wikitext).read_text())))
        yield task(pages, "loglikelihood_rolling", doc_to_text="", doc_to_target=wikitext_detokenizer, process_results=process_results,
                   metric_list=PERPLEXITIES)
    if given.words:
        yield task(given.words, "loglikelihood_rolling", doc_to_text="", doc_to_target="{{text}}", metric_list=PERPLEXITIES)
    if given.last_word:
        yield task(given.last_word, "loglikelihood", doc_to_text="{{text.split(' ')[:-1]|join(' ')}}",
                   doc_to_target="{{' '+text.split(' ')[-1]}}",
                   metric_list=[{"metric": "perplexity", "aggregation": "perplexity", "higher_is_better": False}, {"metric": "acc", **MEAN}])
    if given.choice:
        yield task(given.choice, "multiple_choice", doc_to_text="{{query}}", doc_to_choice="{{choices}}", doc_to_target="{{gold}}",
                   metric_list=[{"metric": "acc", **MEAN}, {"metric": "acc_norm", **MEAN}])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    for kind in ("--wikitext", "--words", "--last-word", "--choice", "--json"):
        parser.add_argument(kind)
    parser.add_argument("--scratch", default=".")
    parser.add_argument("--add-bos-token", choices=("true", "false"), help="lm-eval's argument of that name")
    given = parser.parse_args()
    model = HFLM(pretrained=given.model, trust_remote_code=True, device="cpu", dtype="float32", batch_size=16,
                 add_bos_token=None if given.add_bos_token is None else given.add_bos_token == "true")
    results = lm_eval.simple_evaluate(model=model, tasks=list(tasks_of(given, Path(given.scratch))), bootstrap_iters=0)["results"]
    ours = json.loads(Path(given.json).read_text())["results"] if given.json else {}
    for name, row in results.items():
        for metric, value in row.items():
            if isinstance(value, float) and "stderr" not in metric:
                mine = ours.get(name, {}).get(metric)
                beside = "" if mine is None else f"  ballast {mine:.8g}  difference {abs(mine - value) / max(abs(value), 1e-12):.1e}"
                print(f"{name:16} {metric.split(',')[0]:18} lm-eval {value:.8g}{beside}")


if __name__ == "__main__":
    main()
