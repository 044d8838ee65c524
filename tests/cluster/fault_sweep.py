# SPDX-License-Identifier: Apache-2.0
"""Faults of links, hosts, clocks and the shared folder, many times over: fault_sweep.py [ROUNDS] prints a table.

Each fault ends the job within the deadline, with its culprit named; or the job goes on, with an undisturbed run's losses
to the bit."""

import collections
import random
import re
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass

import cluster_jobs
from cluster import Cluster
from cluster_jobs import DEADLINE, TO_END


@dataclass
class Trial:
    kind: str
    fault: str  # what was wrong with the outcome; empty: nothing
    seconds: float


class Sweep:
    def __init__(self, cluster, seed):
        self.cluster = cluster
        self.random = random.Random(seed)
        self.expected = cluster_jobs.on_one_machine(cluster, "quiet", len(cluster.names))
        self.number = 0

    def run(self):
        self.number += 1
        return f"run{self.number}"

    def host(self):
        return self.random.choice(self.cluster.names)

    def step(self):
        return self.random.randrange(2, 25)

    def ended(self, outcome, host):
        """What is wrong with an end by a fault of `host`."""
        if outcome.code != 75:
            return f"code {outcome.code}: {outcome.errors[-600:]}"
        if outcome.seconds > DEADLINE + TO_END:
            return f"took {outcome.seconds:.1f} s"
        return "" if re.search(rf"\b{host}\b", outcome.told) else f"{host} is not named: {outcome.errors[-600:]}"

    def went_on(self, outcome, run):
        if outcome.code != 0:
            return f"code {outcome.code}: {outcome.errors[-600:]}"
        return "" if cluster_jobs.losses(self.cluster, run) == self.expected else "other losses"

    def end_by(self, kind, disturb, mend):
        host, run = self.host(), self.run()
        outcome = cluster_jobs.end_by(self.cluster, run, disturb, host, self.step())
        mend(host)
        self.clear()
        return Trial(kind, self.ended(outcome, host), outcome.seconds)

    def go_on_after(self, kind, disturb, mend):
        host, run = self.host(), self.run()
        outcome = cluster_jobs.go_on_after(self.cluster, run, disturb, mend, host, self.step())
        self.clear()
        named = re.search(rf"\b{host}\b", outcome.told)
        return Trial(kind, self.went_on(outcome, run) or ("" if named else f"{host} is not named: {outcome.errors[-600:]}"), outcome.seconds)

    def go_on_under(self, kind, disturb, mend, lasts=None, host=None):
        host, run = host or self.host(), self.run()
        outcome = cluster_jobs.go_on_under(self.cluster, run, disturb, mend, host, self.step(), lasts)
        self.clear()
        return Trial(kind, self.went_on(outcome, run), outcome.seconds)

    def jump_clock(self, kind, seconds):
        run = self.run()
        outcome = cluster_jobs.jump_clock(self.cluster, run, self.host(), self.step(), seconds)
        self.clear()
        return Trial(kind, self.went_on(outcome, run), outcome.seconds)

    def spoil_folder(self, kind, disturb, mend, words):
        run = self.run()
        first, again = cluster_jobs.run_out_of_folder(self.cluster, run, lambda: disturb(run), lambda: mend(run), self.step())
        self.clear()
        told = first.code == 0 or (first.code == 2 and words in first.errors)
        fault = "" if told else f"code {first.code}: {first.errors[-600:]}"
        return Trial(kind, fault or self.went_on(again, run), first.seconds)

    def clear(self):
        """What earlier jobs left: each trial begins alike."""
        for name in self.cluster.names:
            self.cluster.kill_processes(name)
        for run in self.cluster.view.glob("run*"):
            shutil.rmtree(run) if run.name != f"run{self.number}" else None

    def rounds(self, count):
        c = self.cluster
        start_again = lambda host: c.start_host(host)
        kill_and_wake = lambda host: (c.kill_processes(host), c.wake(host))
        nothing = lambda host: None
        lose = lambda host: c.lose(host, 5)
        for _ in range(count):
            yield self.end_by("link cut", c.cut, c.mend)
            yield self.end_by("host vanishes", c.vanish, start_again)
            yield self.end_by("host hangs", c.hang, kill_and_wake)
            yield self.end_by("all processes of a host killed", c.kill_processes, nothing)
            yield self.go_on_after("link cut, mended; --max-restarts", c.cut, c.mend)
            yield self.go_on_after("host vanishes, is back; --max-restarts", c.vanish, start_again)
            yield self.go_on_after("host hangs, is killed; --max-restarts", c.hang, kill_and_wake)
            yield self.go_on_after("all processes of a host killed; --max-restarts", c.kill_processes, nothing)
            yield self.go_on_under("link cut for 2 s", c.cut, c.mend, lasts=2)
            yield self.go_on_under("host hangs for 2 s", c.hang, c.wake, lasts=2)
            yield self.go_on_under("link loses 5 %", lose, c.mend)
            yield self.go_on_under("link delays by 200 ms, for 10 s", c.delay, c.mend, lasts=10, host=c.delayed[0])
            yield self.jump_clock("clock jumps by a day ahead", 86400)
            yield self.jump_clock("clock jumps by a day back", -86400)
            yield self.spoil_folder("shared folder full", lambda run: c.fill(), lambda run: c.empty(), "No space left on device")
            yield self.spoil_folder("shared folder read-only", c.make_read_only, c.make_writable, "Read-only file system")


def sweep(hosts, rounds, seed):
    folder = tempfile.mkdtemp(prefix="ballast-cluster-")
    try:
        cluster = Cluster(folder, hosts, delayed=0.2)
        try:
            yield from Sweep(cluster, seed).rounds(rounds)
        finally:
            cluster.close()
    finally:
        shutil.rmtree(folder)


def table(trials):
    kinds = collections.defaultdict(list)
    for trial in trials:
        kinds[trial.kind].append(trial)
    lines = ["| fault | times | as it should be | seconds to the end: median, most |", "|---|---|---|---|"]
    for kind, some in kinds.items():
        seconds = [trial.seconds for trial in some]
        good = sum(not trial.fault for trial in some)
        lines.append(f"| {kind} | {len(some)} | {good} | {statistics.median(seconds):.1f}, {max(seconds):.1f} |")
    return "\n".join(lines)


def main(rounds=1):
    trials = []
    for hosts, seed in ((2, 1), (4, 2)):
        for trial in sweep(hosts, rounds, seed):
            trials.append(trial)
            print(hosts, "hosts:", trial.kind, f"{trial.seconds:.1f} s", trial.fault or "good", file=sys.stderr, flush=True)
    print(table(trials))
    return sum(bool(trial.fault) for trial in trials)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
