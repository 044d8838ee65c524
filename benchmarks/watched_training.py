# SPDX-License-Identifier: Apache-2.0
"""What eight watchers cost a training: the same run again and again, in turn alone and watched.

BALLAST_BUILD=build/release .deps/python/bin/python benchmarks/watched_training.py [ROUNDS [STEPS]]

Watchers ask once a second, as pages do. Printed are the median time of a step of each run, their medians, the ratio of
each pair, and the processor time of the server as a part of the time that it was watched.
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
WATCHERS = 8


def train(folder, run, steps):
    subprocess.run([BALLAST, "train", *SETTING, f"--training.steps={steps}", "--run", folder / run], check=True, stdout=subprocess.DEVNULL)
    records = map(json.loads, (folder / run / "metrics.jsonl").read_text().splitlines())
    # The first steps are slower, alone too.
    return statistics.median(2048 / record["tokens_per_second"] for record in records if "loss" in record and record["step"] > 10)


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
    """The median step, and the server's share of a core."""
    command = [BALLAST, "serve", folder / run, "--watch", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        url, end = server.stdout.readline().strip(), threading.Event()
        threads = [threading.Thread(target=watch, args=(url, run, end)) for _ in range(WATCHERS)]
        for thread in threads:
            thread.start()
        before, began = processor_seconds(server.pid), time.monotonic()
        try:
            step = train(folder, run, steps)
            share = (processor_seconds(server.pid) - before) / (time.monotonic() - began)
        finally:
            end.set()
            for thread in threads:
                thread.join()
            server.kill()
        return step, share


def main():
    rounds, steps = (int(word) for word in (sys.argv[1:] + ["9", "300"][len(sys.argv) - 1:]))
    alone, watched, shares = [], [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for i in range(rounds):
            order = ("alone", "watched") if i % 2 == 0 else ("watched", "alone")
            for kind in order:
                if kind == "alone":
                    alone.append(train(folder, f"alone{i}", steps))
                else:
                    step, share = train_watched(folder, f"watched{i}", steps)
                    watched.append(step)
                    shares.append(share)
            print(f"round {i + 1}: alone {1e3 * alone[-1]:.2f} ms a step, watched {1e3 * watched[-1]:.2f} ms, "
                  f"ratio {watched[-1] / alone[-1]:.3f}, server {100 * shares[-1]:.2f} % of a core", flush=True)
    ratios = [b / a for a, b in zip(alone, watched)]
    print(f"medians: alone {1e3 * statistics.median(alone):.2f} ms, watched {1e3 * statistics.median(watched):.2f} ms, "
          f"ratio of medians {statistics.median(watched) / statistics.median(alone):.3f}, median of ratios {statistics.median(ratios):.3f}, "
          f"server {100 * statistics.median(shares):.2f} % of a core")


if __name__ == "__main__":
    main()
