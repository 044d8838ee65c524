#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The memory of a worker with the optimizer's state whole and divided (training.shard_optimizer),
predicted and measured: three steps, a checkpoint and a validation of models whose state is most of
what they take.

    benchmarks/divided_optimizer.py --ballast build/release/ballast [--workers 1,2,3,4,6,8]
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

COMMON = ["--data.builtin_bytes=400000", "--model.width=512", "--model.heads=8", "--model.context=32",
          "--training.batch=24", "--training.steps=3", "--training.device=cpu", "--training.last_validate_batches=1",
          "--training.sample_tokens=0"]
SYSTEMS = {
    "dense": ["--model.layers=10"],
    "dense, average": ["--model.layers=10", "--optimizer.average=0.999"],
    "BASE": ["--model.layers=8", "--experts.layers=1", "--experts.count=24", "--experts.sublayers=1",
             "--experts.groups=24"],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ballast", required=True)
    parser.add_argument("--workers", default="1,2,3,4,6,8")
    parser.add_argument("--systems", default=";".join(SYSTEMS), help="separated by ;")
    options = parser.parse_args()
    print("| system | workers | whole: predicted | measured | divided: predicted | measured | error | loss apart by |")
    print("|---|---|---|---|---|---|---|---|")
    for system in options.systems.split(";"):
        for workers in map(int, options.workers.split(",")):
            row, losses = [], []
            for shard in ("false", "true"):
                with tempfile.TemporaryDirectory() as folder:
                    done = subprocess.run(
                        [options.ballast, "train", "--json", "--workers", str(workers), "--run",
                         str(pathlib.Path(folder) / "run"), f"--training.shard_optimizer={shard}", *COMMON,
                         *SYSTEMS[system]], capture_output=True, text=True)
                if done.returncode != 0:
                    raise SystemExit(done.stderr)
                out = json.loads(done.stdout)
                losses.append(out["valid_loss"])
                row += [out["predicted_memory"], out["peak_memory"]]
            numbers = " | ".join(f"{number / 1e6:.0f} MB" for number in row)
            print(f"| {system} | {workers} | {numbers} | {100 * (row[2] / row[3] - 1):+.0f} % | "
                  f"{abs(losses[0] - losses[1]):.1g} |", flush=True)


if __name__ == "__main__":
    main()
