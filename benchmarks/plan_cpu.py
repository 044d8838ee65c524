#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How far `ballast plan --device cpu` is from steps measured on this machine.

In turns: the machine's rates, a few steps of each system, the rates again. Predictions are made of the
medians of the rates, and stand beside the medians of the steps, so that other people's load meets both.

    benchmarks/plan_cpu.py --ballast build/release/ballast [--rounds 5] [--threads N]
"""

import argparse
import json
import statistics
import subprocess

SIZES = ["256,128,4,4,128,16", "4096,256,6,4,256,8"]  # vocabulary, width, layers, heads, context, batch
KEYS = ["model.vocabulary", "model.width", "model.layers", "model.heads", "model.context", "training.batch"]
EXPERTS = ["--experts.count=8", "--experts.groups=1"]


def knobs_of(system, size):
    """As `bench step --systems` makes them, with 8 experts and 3 sublayers in all."""
    knobs = [f"--{key}={value}" for key, value in zip(KEYS, size.split(","))]
    if system in ("base", "base_x3"):
        layers = 3 if system == "base_x3" else 1
        knobs += EXPERTS + [f"--experts.layers={layers}", f"--experts.sublayers={3 // layers}"]
    elif system != "dense":
        knobs += EXPERTS + [f"--experts.router={system}", f"--experts.layers={int(size.split(',')[2]) // 2}",
                            "--experts.placement=replace"]
    return knobs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ballast", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()

    def ballast(*arguments):
        done = subprocess.run([options.ballast, *map(str, arguments), "--json"], capture_output=True, check=True)
        return json.loads(done.stdout)

    def plan(system, size, *more):
        return ballast("plan", "--device", "cpu", f"--training.threads={options.threads}", *knobs_of(system, size), *more)

    for size in SIZES:
        flops, bandwidth, steps = [], [], {}
        for _ in range(options.rounds):
            rates = [plan("dense", size)["device"] for _ in range(2)]
            measured = ballast("bench", "step", "--systems", "all", "--device", "cpu", "--size", size, "--rounds", 1,
                               "--steps", 3, "--threads", options.threads)
            rates += [plan("dense", size)["device"] for _ in range(2)]
            flops += [rate["flops"] for rate in rates]
            bandwidth += [rate["bandwidth"] for rate in rates]
            for row in measured["sizes"][0]["systems"]:
                steps.setdefault(row["system"], []).append(row["step_ms"])
        rate = ["--flops", statistics.median(flops), "--bandwidth", statistics.median(bandwidth)]
        print(f"{size}: {rate[1] / 1e9:.0f} GFLOP/s ({min(flops) / 1e9:.0f} to {max(flops) / 1e9:.0f}), "
              f"{rate[3] / 1e9:.1f} GB/s ({min(bandwidth) / 1e9:.1f} to {max(bandwidth) / 1e9:.1f})")
        for system, times in steps.items():
            predicted = 1e3 * plan(system, size, *rate)["layouts"][0]["step"]["total"]
            took = statistics.median(times)
            print(f"  {system:<16}{took:8.1f} ms ({min(times):.1f} to {max(times):.1f}), predicted {predicted:8.1f} ms"
                  f"  {100 * (predicted / took - 1):+6.1f} %", flush=True)


if __name__ == "__main__":
    main()
