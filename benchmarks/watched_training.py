#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What eight watchers cost a training: the same run again and again, in turn alone and watched.

BALLAST_BUILD=build/release .deps/python/bin/python benchmarks/watched_training.py [ROUNDS [STEPS]]

Watchers ask once a second, as pages do. Printed are, of each run, the median time of a step and the processor time of
the training for a step, and the processor time of the server as a part of the time that it was watched; then medians of
watched over alone, each of two runs that followed one another: a machine's speed changes from minute to minute. The
training leaves a core to the watchers.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

BALLAST = Path(os.environ["BALLAST_BUILD"]) / "ballast"
SETTING = (
    "--model.width=64 --model.layers=2 --model.heads=2 --model.context=128 --training.batch=16 --training.validate_every=0 "
    "--training.sample_every=50 --data.builtin_bytes=300000 --experts.layers=1 --experts.count=8 --experts.groups=2 "
    "--experts.sublayers=1 --checkpoint.every=0 --quiet"
).split()
SETTING.append(f"--training.threads={max(1, min(4, (os.cpu_count() or 1) - 1))}")
WATCHERS = 8


def train(folder, run, steps):
    """Milliseconds of a step: the median time, and the training's processor time."""
    command = [BALLAST, "train", *SETTING, f"--training.steps={steps}", "--run", folder / run]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status != 0:
        raise RuntimeError("the training failed")
    records = map(json.loads, (folder / run / "metrics.jsonl").read_text().splitlines())
    # The first steps are slower, alone too.
    median = statistics.median(2048 / record["tokens_per_second"] for record in records if "loss" in record and record["step"] > 10)
    return 1e3 * median, 1e3 * (used.ru_utime + used.ru_stime) / steps


def watch(url, run, end):
    query = ""
    while not end.wait(1):
        with urllib.request.urlopen(f"{url}api/live?run={run}{query}") as answer:
            news = json.load(answer)
        query = f"&life={news['life']}&from={news['end']}&validations={news['validations_seen']}&samples={news['samples_seen']}"


def processor_seconds(process):
    words = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def train_watched(folder, run, steps):
    """What train() gives, and the server's part of a core in percent."""
    command = [BALLAST, "serve", folder / run, "--watch", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        url, end = server.stdout.readline().strip(), threading.Event()
        threads = [threading.Thread(target=watch, args=(url, run, end)) for _ in range(WATCHERS)]
        for thread in threads:
            thread.start()
        before, began = processor_seconds(server.pid), time.monotonic()
        try:
            times = train(folder, run, steps)
            share = 100 * (processor_seconds(server.pid) - before) / (time.monotonic() - began)
        finally:
            end.set()
            for thread in threads:
                thread.join()
            server.kill()
        return *times, share


def main():
    rounds, steps = (int(word) for word in (sys.argv[1:] + ["9", "300"][len(sys.argv) - 1:]))
    alone, watched = [], []
    with tempfile.TemporaryDirectory() as name:
        for i in range(rounds):
            for kind in ("alone", "watched") if i % 2 == 0 else ("watched", "alone"):
                if kind == "alone":
                    alone.append(train(Path(name), f"alone{i}", steps))
                else:
                    watched.append(train_watched(Path(name), f"watched{i}", steps))
            print(f"round {i + 1}: alone {alone[-1][0]:.2f} ms a step ({alone[-1][1]:.2f} ms of processors), "
                  f"watched {watched[-1][0]:.2f} ms ({watched[-1][1]:.2f} ms), server {watched[-1][2]:.2f} % of a core", flush=True)
    for place, name in enumerate(("time of a step", "processor time of a step")):
        ratios = sorted(after[place] / before[place] for before, after in zip(alone, watched))
        print(f"watched over alone, {name}: median {statistics.median(ratios):.3f}, from {ratios[0]:.3f} to {ratios[-1]:.3f}")
    print(f"median of the server: {statistics.median(run[2] for run in watched):.2f} % of a core")


if __name__ == "__main__":
    main()
