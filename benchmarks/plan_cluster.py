#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How far `ballast plan --device cpu` is from steps measured on a cluster whose links are slow and late.

The cluster is that of tests/cluster, on one machine: root only. Measurements are added to a file, cell by cell, so that
they can be taken in parts; --table fits three constants to six of them and predicts all others:

    benchmarks/plan_cluster.py --ballast build/release/ballast --results steps.json --measure 2x1@100,2x1@100+10
    benchmarks/plan_cluster.py --ballast build/release/ballast --results steps.json --measure all
    benchmarks/plan_cluster.py --ballast build/release/ballast --results steps.json --table

A cell is HOSTSxWORKERS@MEGABITS[+DELAY][hops|chunksC][xSUBLAYERS][bBATCH]: workers of each host, the rate of its
cable, milliseconds that a packet takes; hops: tokens go to experts in two (experts.hops 2); chunks4: in four chunks
(experts.chunks 4); x16: experts have 16 sublayers, not one; b64: 64 sequences, not 16. With x or b: BASE alone.
"""

import argparse
import itertools
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SIZE = "256,128,2,8,64"  # vocabulary, width, layers, heads, context
EXPERTS, SUBLAYERS, BATCH = 8, 1, 16
CELL = r"(\d+)x(\d+)@(\d+)(?:\+(\d+))?(?:(hops)|chunks(\d+))?(?:x(\d+))?(?:b(\d+))?"
SYSTEMS = ["dense", "model_parallel", "base", "switch"]
CELLS = ["2x1@20", "2x1@60", "2x1@200", "4x1@20", "4x1@60", "4x1@200", "8x1@20", "8x1@60", "2x1@60+10", "4x1@60+10",
         "2x2@60", "2x4@60", "4x2@60"]
FITTED = "2x1@60:dense,2x1@60:base,2x1@200:dense,2x1@60+10:dense,4x1@200:base,2x1@200:switch"
KEYS = ["model.vocabulary", "model.width", "model.layers", "model.heads", "model.context", "training.batch"]
BURST = "10kb"  # a few packets: what a rest would let pass at once is no part of a rate


class Cell:
    def __init__(self, text):
        match = re.fullmatch(CELL, text)
        if not match:
            raise SystemExit(f"--measure: want cells such as 2x1@60, 4x1@200+10 or 2x1@60chunks4x16b64, got {text}")
        self.text = text
        self.hosts, self.each, self.megabits, self.delay = (int(part or 0) for part in match.groups()[:4])
        self.hops = 2 if match[5] else 1
        self.chunks, self.sublayers = int(match[6] or 1), int(match[7] or SUBLAYERS)
        self.size = f"{SIZE},{match[8] or BATCH}"
        self.systems = ["base"] if match[7] or match[8] else ["base", "switch"] if match[5] or match[6] else SYSTEMS
        self.workers = self.hosts * self.each

    def words(self):
        hops, chunks = ", two hops" * (self.hops - 1), f", {self.chunks} chunks" * (self.chunks > 1)
        batch = int(self.size.split(",")[-1])
        return (hops + chunks + f", {self.sublayers} sublayers" * (self.sublayers != SUBLAYERS)
                + f", {batch} sequences" * (batch != BATCH))

    def knobs(self, system):
        """As `bench step --systems` makes them."""
        knobs = [f"--{key}={value}" for key, value in zip(KEYS, self.size.split(","))]
        if system == "model_parallel":
            return [*knobs, f"--training.model_parallel={self.workers}"]
        if system == "dense":
            return knobs
        knobs += ["--experts.layers=1", f"--experts.count={EXPERTS}", f"--experts.groups={self.workers}",
                  f"--experts.hops={self.hops}", f"--experts.chunks={self.chunks}"]
        if system == "base":
            return [*knobs, f"--experts.sublayers={self.sublayers}"]
        return [*knobs, f"--experts.router={system}", "--experts.placement=replace"]


def rates(ballast):
    """What the machine's cores reach together: operations and bytes a second."""
    cell = Cell("1x1@1")
    found = [json.loads(subprocess.run([ballast, "plan", "--device", "cpu", "--json", *cell.knobs("dense")],
                                       capture_output=True, check=True).stdout)["device"] for _ in range(3)]
    return [statistics.median(each[key] for each in found) for key in ("flops", "bandwidth")]


def measure(ballast, cell, rounds):
    sys.path.insert(0, str(ROOT / "tests/cluster"))
    from cluster import Cluster, what_is_missing
    if why := what_is_missing():
        raise SystemExit(why)
    folder = tempfile.mkdtemp(prefix="ballast-cluster-")
    # Half of the delay in each of the two cables that a packet goes through.
    cluster = Cluster(folder, cell.hosts, delayed=cell.delay / 2e3 if cell.delay else None, all_delayed=True)
    try:
        for name in cluster.names:
            cluster.slow(name, cell.megabits, BURST)
            if cell.delay:
                cluster.delay(name)
        before = sum(cluster.bytes_from(name) for name in cluster.names)
        command = [ballast, "bench", "step", "--json", "--device", "cpu", "--threads", 1, "--size", cell.size, "--systems",
                   ",".join(cell.systems), "--hops", cell.hops, "--chunks", cell.chunks, "--experts",
                   f"{EXPERTS},{cell.sublayers}", "--rounds", rounds, "--steps", 3, "--workers",
                   cell.workers, "--hosts", ",".join(f"{name}:{cell.each}" for name in cluster.names)]
        done = subprocess.run(cluster.command(*command), env=cluster.environment(), capture_output=True, encoding="utf-8")
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        rows = json.loads(done.stdout)["sizes"][0]["systems"]
        sent = sum(cluster.bytes_from(name) for name in cluster.names) - before
    finally:
        cluster.close()
        shutil.rmtree(folder)
    return {"steps": {row["system"]: row["step_ms"] / 1e3 for row in rows},
            "fastest": {row["system"]: row["fastest_ms"] / 1e3 for row in rows}, "bytes": sent}


class Predictions:
    """Of `ballast plan`, with the cores' rates shared by all workers, whatever host they are on. Where there are more workers
    than cores, a message also waits until its receiver has one: as much longer as there are workers for a core."""

    def __init__(self, ballast, flops, bandwidth):
        self.ballast, self.flops, self.bandwidth = ballast, flops, bandwidth
        self.parts = {}

    @staticmethod
    def latency(cell, constants):
        return constants["message"] * max(1, cell.workers / os.cpu_count()) + cell.delay / 1e3

    def plan(self, cell, system, machine_bandwidth, latency, share=1.0):
        of_machine = share * cell.each / cell.workers
        words = [self.ballast, "plan", "--device", "cpu", "--json", "--workers", cell.workers, "--workers-per-machine", cell.each,
                 "--network", "ethernet", "--machine-bandwidth", machine_bandwidth, "--latency", latency, "--flops",
                 self.flops * of_machine, "--bandwidth", self.bandwidth * of_machine, *cell.knobs(system)]
        done = subprocess.run([str(word) for word in words], capture_output=True, check=True)
        return json.loads(done.stdout)["layouts"][0]["step"]

    def step(self, cell, system, constants):
        """Without chunks the plan is linear in what constants stand for: its parts are asked for once."""
        if (cell.text, system) not in self.parts:
            much, nothing = 1e15, 1e-15
            at = lambda bandwidth, latency: self.plan(cell, system, bandwidth, latency)["communication"]["total"]
            rest = at(much, nothing)
            step = self.plan(cell, system, much, nothing)
            self.parts[cell.text, system] = (step["total"] - rest, rest, (at(1e6, nothing) - rest) * 1e6, at(much, 1) - rest)
        compute, rest, sent, messages = self.parts[cell.text, system]
        return (compute / constants["rates"] + rest + sent / (constants["wire"] * cell.megabits / 8 * 1e6)
                + messages * self.latency(cell, constants))


def fit(points, predictions):
    """Makes the largest relative error as small as can be: the best of a grid around the best so far, which shrinks."""
    worst = lambda constants: max(abs(predictions.step(cell, system, constants) / took - 1) for cell, system, took in points)
    best = {"wire": 0.95, "message": 0.3e-3, "rates": 0.7}
    reach = 1.0
    while reach > 2e-3:
        middle = dict(best)
        for shifts in itertools.product(range(-4, 5), repeat=3):
            tried = {name: middle[name] * math.exp(by * reach * shift)
                     for (name, by), shift in zip((("wire", 0.05), ("message", 0.5), ("rates", 0.25)), shifts)}
            if worst(tried) < worst(best):
                best = tried
        reach *= 0.6
    return best


def table(ballast, results, fitted_to):
    cells = {text: Cell(text) for text in results["cells"]}
    for text, system in fitted_to:
        if text not in cells or system not in results["cells"][text]["steps"] or cells[text].chunks > 1:
            raise SystemExit(f"--fitted: want cells without chunks that were measured, not {text}:{system}")
    predictions = Predictions(ballast, results["flops"], results["bandwidth"])
    took = lambda text, system: results["cells"][text]["steps"][system]
    constants = fit([(cells[text], system, took(text, system)) for text, system in fitted_to], predictions)
    print(f"Rates of the cores: {results['flops'] / 1e9:.0f} GFLOP/s, {results['bandwidth'] / 1e9:.0f} GB/s. Fitted: "
          f"{100 * constants['wire']:.1f} % of a cable's rate, {1e3 * constants['message']:.2f} ms a message, "
          f"{100 * constants['rates']:.0f} % of the cores' rates.\n")
    print("| hosts x workers | Mbit/s | delay | system | measured | predicted | error | fitted |")
    print("|---|---|---|---|---|---|---|---|")
    errors = []
    for text, cell in cells.items():
        for system in cell.systems:
            step = predictions.plan(cell, system, constants["wire"] * cell.megabits / 8 * 1e6,
                                    predictions.latency(cell, constants), constants["rates"])
            error = step["total"] / took(text, system) - 1
            fitted = (text, system) in fitted_to
            if not fitted:
                errors.append(abs(error))
            print(f"| {cell.hosts} x {cell.each} | {cell.megabits} | {cell.delay} ms | {system.replace('_', ' ')}{cell.words()} | "
                  f"{1e3 * took(text, system):.0f} ms | {1e3 * step['total']:.0f} | {100 * error:+.1f} % | {'yes' if fitted else ''} |")
    print(f"\nNot fitted: {len(errors)}; within 20 %: {sum(error < 0.2 for error in errors)}; largest {100 * max(errors):.1f} %, "
          f"median {100 * statistics.median(errors):.1f} %.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ballast", required=True, type=os.path.abspath)
    parser.add_argument("--results", required=True, type=Path, help="a JSON file; what was measured is added to it")
    parser.add_argument("--measure", default="", help="cells with commas between, or all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--fitted", default=FITTED, help="CELL:SYSTEM,..., six: what constants are fitted to")
    options = parser.parse_args()
    results = json.loads(options.results.read_text()) if options.results.exists() else {"cells": {}}
    for text in CELLS if options.measure == "all" else filter(None, options.measure.split(",")):
        if "flops" not in results:
            results["flops"], results["bandwidth"] = rates(options.ballast)
        results["cells"][text] = measure(options.ballast, Cell(text), options.rounds)
        print(text, {name: round(1e3 * seconds, 1) for name, seconds in results["cells"][text]["steps"].items()}, flush=True)
        options.results.write_text(json.dumps(results, indent=1))
    if options.table:
        table(options.ballast, results, [tuple(point.split(":")) for point in options.fitted.split(",")])


if __name__ == "__main__":
    main()
