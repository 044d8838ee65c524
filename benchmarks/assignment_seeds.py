#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How the exact solver's time depends on the seed, over sizes from a few tokens an expert to many.

For each kind and size: the median over seeds, and how many times that the slowest seed takes. With --peer,
another solver takes turns with ours, seed by seed, so that a busy machine meets both alike. A seed's time is the
fastest of its repeats: what the solver takes when nobody is in its way.

    benchmarks/assignment_seeds.py --ballast build/release/ballast [--seeds 20] [--repeats 5]
        [--peer './bench_all {kind} {tokens} {experts} {seed} hybrid {repeats}']

The peer prints time_ms=NUMBER. Lines end in SPREAD where a seed takes more than 3 times the median, in SLOW where
our median is above the peer's; the last line has the worst of both. Matrices of more than 2^24 scores get a
quarter of the seeds.
"""

import argparse
import json
import re
import shlex
import statistics
import subprocess

LARGE = 1 << 24
TIME = re.compile(r"\btime_ms=([0-9.eE+-]+)")


def output_of(command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout


def our_time(options, case):
    found = json.loads(output_of([
        options.ballast, "bench", "assignment", "--kinds", case["kind"], "--sizes", f"{case['tokens']},{case['experts']}",
        "--seed", str(case["seed"]), "--solvers", "exact", "--cold", "--repeats", str(case["repeats"]), "--no-scipy", "--json"]))
    (result,) = found["cases"][0]["results"]
    if not result["valid"] or result["relative_gap"] > 1e-9:
        raise SystemExit(f"not optimal: {case}")
    return result["fastest_ms"]


def peer_time(options, case):
    return float(TIME.search(output_of([word.format(**case) for word in shlex.split(options.peer)])).group(1))


def summary(times):
    median = statistics.median(times)
    return median, max(times) / median


def measure(options, kind, tokens, experts):
    """Prints a line; returns slowest / median, and our median / the peer's (None without one)."""
    ours, peers = [], []
    seeds = options.seeds if tokens * experts <= LARGE else max(1, options.seeds // 4)
    for seed in range(1, seeds + 1):
        case = {"kind": kind, "tokens": tokens, "experts": experts, "seed": seed, "repeats": options.repeats}
        ours.append(our_time(options, case))
        if options.peer:
            peers.append(peer_time(options, case))
    median, slowest = summary(ours)
    line = f"| {kind} | {experts} | {tokens // experts} | {median:.3f} | {slowest:.2f} |"
    flags = " SPREAD" if slowest > 3 else ""
    ratio = None
    if peers:
        peer_median, peer_slowest = summary(peers)
        ratio = median / peer_median
        line += f" {peer_median:.3f} | {peer_slowest:.2f} | {ratio:.2f} |"
        flags += " SLOW" if ratio > 1 else ""
    print(line + flags, flush=True)
    return slowest, ratio


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ballast", required=True)
    parser.add_argument("--peer")
    parser.add_argument("--kinds", nargs="+", default=["gauss", "cluster"])
    parser.add_argument("--experts", nargs="+", type=int, default=[8, 16, 32, 64, 128, 256, 512])
    parser.add_argument("--per-expert", nargs="+", type=int, default=[8, 16, 24, 32, 64, 128, 256], help="tokens an expert")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    peer = " peer ms | slowest / median | ours / peer |" if options.peer else ""
    print(f"| scores | experts | tokens an expert | ms | slowest / median |{peer}")
    print("|---|---|---|---|---|" + ("---|---|---|" if options.peer else ""), flush=True)
    found = [measure(options, kind, share * experts, experts)
             for kind in options.kinds for experts in options.experts for share in options.per_expert]
    print(f"worst slowest / median {max(spread for spread, _ in found):.2f}", end="")
    print(f", worst ours / peer {max(ratio for _, ratio in found):.2f}" if options.peer else "")


if __name__ == "__main__":
    main()
