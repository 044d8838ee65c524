# SPDX-License-Identifier: Apache-2.0
"""Folders of runs and experiments with made-up numbers, as docs/file_formats.md describes them: for reports of what takes hours."""

import json
import math
import random
from pathlib import Path

DOMAINS = ["law", "news", "programs", "encyclopedia", "fiction", "letters"]
WORDS = [" year", " years", " billion", " million", " the", " of", "ation", " said", " says", " is", " was", "\\n", ".", " <b>", " two", " 50", '"']
PARTS = {"attention": 0.21, "feed_forward": 0.18, "experts": 0.22, "assignment": 0.03, "communication": 0.05, "vocabulary": 0.14, "optimizer": 0.08}


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))


def loss_after(part, floor, rng):
    return floor + 3.5 * math.exp(-6 * part) + 0.9 * (1 - part) ** 2 * 0.3 + rng.gauss(0, 0.002)


def step_record(step, at, kind, layers, rng):
    rate = at["rate"] * (1 + rng.gauss(0, 0.02))
    record = {"step": step, "loss": at["loss"] + rng.gauss(0, 0.05), "tokens": step * at["batch"], "learning_rate": 1e-3, "grad_norm": 0.5,
              "seconds": step * at["batch"] / at["rate"], "tokens_per_second": rate, "a_key_of_later": [1]}
    if step % 10 == 0:
        own = at["batch"] / rate
        keep = PARTS if kind != "dense" else {k: v for k, v in PARTS.items() if k not in ("experts", "assignment")}
        record["parts"] = {name: share * own for name, share in keep.items()}
    if kind == "base":
        record["layers"] = [{"layer": n, "assign_seconds": 0.004, "exchange_seconds": 0.002, "relative_gap": 0.0,
                             "greedy_share": 0.5 + 0.3 * at["part"] + rng.gauss(0, 0.01)} for n in layers]
    elif kind != "dense":
        record["layers"] = [{"layer": n, "assign_seconds": 0.001, "exchange_seconds": 0.002, "passed_share": 0.01,
                             "dropped_share": 0.2 * math.exp(-4 * at["part"]) + 0.02, "balance_loss": 1 + math.exp(-5 * at["part"])} for n in layers]
    return record


def loads_of(experts, steepness, rng):
    weights = [math.exp(-steepness * i / experts) * rng.uniform(0.8, 1.2) for i in range(experts)]
    rng.shuffle(weights)
    return [round(200 * experts * w / sum(weights)) for w in weights]


def layer_use(number, name, experts, steepness, kind, rng):
    loads = loads_of(experts, steepness, rng)
    domain_loads = []
    for load in loads:
        liked = rng.randrange(len(DOMAINS))
        weights = [rng.expovariate(1) * (5 if d == liked else 1) for d in range(len(DOMAINS))]
        domain_loads.append([round(load * w / sum(weights)) for w in weights])

    def top(load):
        return [{"id": rng.randrange(9999), "text": rng.choice(WORDS), "count": max(1, load // (3 + i)), "lift": rng.lognormvariate(1.5, 0.8)} for i in range(10)]

    layer = {"layer": number, "name": name, "loads": loads, "domain_loads": domain_loads, "domain_bits": 0.41, "token_bits": 1.72,
             "previous_bits": 1.13, "experts": [{"expert": e, "tokens": top(load), "previous": top(load)} for e, load in enumerate(loads)]}
    if kind == "sparsely_gated":
        layer["second_loads"] = loads_of(experts, 4, rng)
    return layer


def routing(name, loss, layers, rng):
    domains = [{"name": d, "tokens": 4000 + 700 * i, "loss": loss + 0.3 * math.sin(i) + rng.gauss(0, 0.01)} for i, d in enumerate(DOMAINS)]
    return {"routing": name, "loss": loss, "perplexity": math.exp(loss), "bits_per_byte": loss / 2.8, "domains": domains, "layers": layers}


def validation_of(kind, loss, steps, layers, experts, rng):
    names = {"base": "BASE", "switch": "Switch", "sparsely_gated": "MoE"}

    def uses(steepness):
        return [layer_use(n, f"{names[kind]} layer {n}", experts, steepness, kind, rng) for n in layers]

    if kind == "dense":
        routings = [routing(None, loss, [], rng)]
    else:
        routings = [routing("greedy", loss, uses(2.2 if kind == "base" else 1.2), rng)]
    if kind == "base":
        routings.append(routing("priced", loss - 0.01, uses(1.2), rng))
        even = [{"layer": n, "name": f"BASE layer {n}", "loads": [200] * experts} for n in layers]
        routings.append({"routing": "balanced", "loss": loss - 0.05, "perplexity": math.exp(loss - 0.05), "layers": even})
    return {"format": "ballast-validation", "version": 1, "step": steps, "tokens": 60000, "whole_split": True, "system": kind,
            "floor_per_token": None, "routings": routings}


def make_run(folder, kind="dense", experts=8, layers=(2,), floor=3.0, rate=50000.0, steps=400, seed=1):
    """A finished run of `steps` steps of 4096 tokens; its loss goes to about `floor`."""
    rng = random.Random(f"{folder.name} {seed}")
    batch, lines, loss = 4096, [], 0.0
    for step in range(1, steps + 1):
        loss = loss_after(step / steps, floor, rng)
        at = {"rate": rate, "batch": batch, "loss": loss, "part": step / steps}
        lines.append(step_record(step, at, kind, layers, rng))
        if step % (steps // 10) == 0:
            lines.append({"step": step, "valid_loss": loss + 0.05, "valid_perplexity": math.exp(loss + 0.05), "valid_tokens": 60000})
    write(folder / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    start = {"time": "2026-01-01T00:00:00Z", "step": 0, "program_version": "0.0.0", "command_line": ["ballast", "train", "--data", "a b <c>"],
             "hardware": {"cpu": "a processor", "cores": 2, "memory_bytes": 16e9, "os": "a system"}}
    write(folder / "run.json", {"format": "ballast-run", "version": 1, "starts": [start]})
    sparse = "" if kind == "dense" else f'[experts]\nlayers = {len(layers)}\ncount = {experts}\nrouter = "{kind}"\ngroups = 2\n'
    write(folder / "config.toml", f"[model]\nvocabulary = 1024\nwidth = 64\nlayers = 12\n[training]\nsteps = {steps}\nbatch = 16\nseed = {seed}\n{sparse}")
    write(folder / "samples.txt", f"== step {steps} ==\n  It said: <script>alert('no')</script>\n  and more.\n\n")
    write(folder / "validation.json", validation_of(kind, loss + 0.05, steps, layers, experts, rng))


SYSTEMS = [  # title, kind, layers of experts, loss, tokens a second, seeds
    ("dense", "dense", (), 3.05, 60000, 1),
    ("dense, equal FLOPs", "dense", (), 3.00, 48000, 1),
    ("BASE x1", "base", (6,), 2.94, 50000, 3),
    ("BASE x3", "base", (3, 6, 9), 2.92, 41000, 3),
    ("Sparsely Gated MoE", "sparsely_gated", (6,), 2.97, 30000, 1),
    ("Switch", "switch", (6,), 2.96, 46000, 1),
]


def make_experiment(folder, counts=(8, 32, 128), seconds=33):
    """One panel for each number of experts; the last system of the last panel is not trained yet."""
    systems, panels = [], []
    for count in counts:
        ids = []
        for title, kind, layers, loss, rate, seeds in SYSTEMS:
            name = f"{title.lower().replace(' ', '-').replace(',', '')}-e{count}"
            ids.append(name)
            last = count == counts[-1] and kind == "switch"
            runs = [{"seed": s, "run": f"runs/{name}-s{s}"} for s in range(1, seeds + 1)]
            for run in [] if last else runs:
                better = 0.02 * math.log2(count / 8) if kind != "dense" else 0
                make_run(folder / run["run"], kind, count, layers, loss - better, rate, int(rate * seconds / 4096) // 10 * 10, run["seed"])
            systems.append({"id": name, "title": title, "words": title if kind == "dense" else f"{title}, {count} experts", "kind": kind,
                            "experts": None if kind == "dense" else count, "knobs": {"model.width": "64"}, "parameters": 5_000_000 * (1 if kind == "dense" else count),
                            "active": 5_000_000, "flops_per_token": 3e7, "step_seconds": 4096 / rate, "step_parts": {}, "steps": 50, "learning_rate": 2e-3,
                            "sweep": [{"learning_rate": 1e-3, "steps": 50, "loss": 4.5}, {"learning_rate": 2e-3, "steps": 50, "loss": 4.4},
                                      {"learning_rate": 4e-3, "steps": 50, "loss": None}],
                            "runs": runs, "status": "swept" if last else "trained"})
        rates = {name: 9.5 * rate for name, (_, _, _, _, rate, _) in zip(ids, SYSTEMS)}
        panels.append({"title": f"{count} experts", "systems": ids,
                       "plan": {"workers": count, "device": "v100", "network": "infiniband", "tokens_per_second": rates}})
    write(folder / "experiment.json", {"format": "ballast-experiment", "version": 2, "name": "all", "title": "All systems at equal time", "budget_seconds": seconds,
                                       "training_seconds": seconds, "max_epochs": 4, "middle_learning_rate": 2e-3, "rates": 3, "seeds": 3, "tokens_per_step": 4096,
                                       "workers": 1, "data": "data/corpus", "program_version": "0.0.0", "hardware": {"cpu": "a processor", "cores": 2},
                                       "at_once": 1, "panels": panels, "systems": systems})


if __name__ == "__main__":
    import sys

    make_experiment(Path(sys.argv[1]))
