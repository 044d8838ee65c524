# SPDX-License-Identifier: Apache-2.0
"""Trainings on a cluster (cluster.py), and what befalls them: each function starts a small job, disturbs it after some
steps, waits for its end and returns an Outcome. Long tests call them many times."""

import json
import os
import re
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from machine import wait_until

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "cli"))
from in_folder import BALLAST  # noqa: E402

BATCH, CONTEXT, WIDTH, LAYERS = 8, 16, 16, 2
MODEL = (
    f"--model.width={WIDTH} --model.layers={LAYERS} --model.heads=2 --model.context={CONTEXT} --training.threads=1 --training.batch={BATCH} "
    "--training.validate_every=0 --training.validate_batches=2 --training.last_validate_batches=2 --training.sample_tokens=8 --data.builtin_bytes=60000 "
    "--training.log_every=50 --optimizer.warmup_steps=5 --checkpoint.every=10 --quiet"
).split()
EXPERTS = "--experts.layers=1 --experts.count=8 --experts.sublayers=1 --experts.groups=8".split()
SYSTEMS = {
    "dense": [],
    "base": EXPERTS,
    "switch": [*EXPERTS, "--experts.router=switch", "--experts.placement=replace"],
    "model parallel": [*EXPERTS, "--model-parallel=2"],
    "unlimited switch": [*EXPERTS, "--experts.router=switch", "--experts.placement=replace", "--experts.capacity=0"],
}
DEADLINE = 5  # seconds
# From the deadline to the end: who is missing is asked for a second, mpirun gets 5 to end, and 5 to obey.
TO_END = 15
LONGEST = 150  # of a job that goes on, on a machine that does much else
STEPS = 100  # so many that a host is lost before they are done
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"


@dataclass
class Outcome:
    code: int
    output: str
    errors: str
    seconds: float  # from the disturbance to the end; -1: it did not end

    @property
    def told(self):
        """What Ballast said: a line, and below it those that are missing. OpenMPI's own lines begin with the host that
        writes them, whoever is the culprit."""
        ours = re.compile(r"ballast: |  (workers? |all other workers|who is missing)")
        return "\n".join(line for line in self.errors.splitlines() if ours.match(line))


class Job:
    """A training on hosts of the cluster."""

    def __init__(self, cluster, command):
        self.cluster = cluster
        self.errors = cluster.folder / "stderr"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(cluster.command(*command), env=cluster.environment(), stdout=subprocess.PIPE,
                                            stderr=errors, encoding="utf-8")

    def said(self):
        return self.errors.read_text(errors="replace")

    def wait_until_said(self, words, seconds=60):
        wait_until(lambda: words in self.said() or self.process.poll() is not None, f"not said: {words}: {self.said()}", seconds)

    def wait_for_step(self, run, step):
        wait_until(lambda: last_step(self.cluster, run) >= step or self.process.poll() is not None, f"no step {step}", 90)
        if self.process.poll() is not None and last_step(self.cluster, run) < step:
            raise RuntimeError(f"ended before step {step}: {self.said()}")

    def end(self, seconds=LONGEST):
        begin = time.monotonic()
        try:
            output, _ = self.process.communicate(timeout=seconds)
            code, took = self.process.returncode, time.monotonic() - begin
        except subprocess.TimeoutExpired:
            code, took = -1, -1
            self.process.kill()  # nsenter; what it started is in the cluster, and ends with that
            output = ""
        return Outcome(code, output, self.said(), took)


def last_step(cluster, run):
    metrics = cluster.view / run / "metrics.jsonl"
    return metrics.read_text().count('"loss"') if metrics.exists() else 0


def losses(cluster, run):
    records = [json.loads(line) for line in (cluster.view / run / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["loss"] for line in records if "loss" in line}


def training(run, system="base", steps=STEPS, deadline=DEADLINE):
    return ["train", *MODEL, *SYSTEMS[system], f"--training.steps={steps}", "--deadline", deadline, "--run", run]


def launched(cluster, run, *more, system="base", steps=STEPS, deadline=DEADLINE, each=1):
    """By our own launcher: --workers N --hosts, `each` on a host."""
    hosts = ["--workers", each * len(cluster.names), "--hosts", ",".join(f"{name}:{each}" for name in cluster.names)]
    return Job(cluster, [BALLAST, *training(run, system, steps, deadline), *hosts, *more])


def by_mpirun(cluster, run, system="base", steps=STEPS):
    """By an mpirun of people's own."""
    hosts = ["--host", ",".join(f"{name}:1" for name in cluster.names)]
    return Job(cluster, ["mpirun", *hosts, "--bind-to", "none", BALLAST, *training(run, system, steps)])


def on_one_machine(cluster, run, workers, system="base", steps=STEPS):
    command = cluster.command(BALLAST, *training(run, system, steps, deadline=60), "--workers", workers)
    result = subprocess.run(command, env=cluster.environment(), capture_output=True, encoding="utf-8", timeout=120)
    if result.returncode != 0:
        raise RuntimeError(result.stderr)
    return losses(cluster, run)


def shared_numbers(cluster, run):
    """How many numbers of the model all replicas have, and sum the gradients of."""
    newest = max((cluster.view / run / "checkpoints").glob("step_*[0-9]"))
    with (newest / "model.safetensors").open("rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    sizes = {name: tensor["data_offsets"][1] - tensor["data_offsets"][0] for name, tensor in header.items() if name != "__metadata__"}
    return sum(size for name, size in sizes.items() if ".experts." not in name) // 4


def payload(cluster, run, system, steps):
    """The least bytes of numbers that all workers together must send, one worker a host, whatever the algorithm. A sum of n
    numbers of p workers, which all get, takes 2 (p - 1) n."""
    workers = len(cluster.names)
    shards = 2 if system == "model parallel" else 1
    replicas = workers // shards
    numbers = 2 * (replicas - 1) * shared_numbers(cluster, run)  # gradients; of shards each has its part at least
    if system == "base":  # the shuffle and the way back, and the same of the gradients, in equal parts
        numbers += 4 * BATCH * CONTEXT * WIDTH * (workers - 1) / workers
    if system == "model parallel":  # two sums of a layer, forward and backward, of all rows
        numbers += 2 * 4 * LAYERS * BATCH * CONTEXT * WIDTH
    return int(4 * numbers * steps)


def bytes_sent(cluster):
    """By all hosts so far, as the bridge has counted them."""
    return sum(cluster.bytes_from(name) for name in cluster.names)


# Disturbances that end a job without --max-restarts. `host` is the culprit.
def end_by(cluster, run, disturb, host, step):
    job = launched(cluster, run, steps=100000)
    job.wait_for_step(run, step)
    disturb(host)
    return job.end(DEADLINE + TO_END + 40)


def go_on_after(cluster, run, disturb, mend, host, step):
    """With --max-restarts: disturbed once, mended as soon as the launcher has noticed."""
    job = launched(cluster, run, "--max-restarts", 4)
    job.wait_for_step(run, step)
    disturb(host)
    job.wait_until_said("starting again (1 of 4)")
    mend(host)
    return job.end()


def go_on_under(cluster, run, disturb, mend, host, step, lasts=None):
    """The job must bear it, to the end, or for `lasts` seconds."""
    job = launched(cluster, run)
    job.wait_for_step(run, step)
    disturb(host)
    if lasts is not None:
        time.sleep(lasts)
        mend(host)
    outcome = job.end()
    if lasts is None:
        mend(host)
    return outcome


def jump_clock(cluster, run, host, step, seconds):
    """The clock of this host's workers, which tells the time of day, jumps; CLOCK_MONOTONIC never does."""
    offset = cluster.view / f"clock-{host}"
    offset.write_text("+0")
    cluster.set_environment(host, {
        "LD_PRELOAD": FAKETIME, "FAKETIME_TIMESTAMP_FILE": cluster.shared / offset.name, "FAKETIME_NO_CACHE": 1,
        "FAKETIME_DONT_FAKE_MONOTONIC": 1, "DONT_FAKE_MONOTONIC": 1})
    try:
        job = launched(cluster, run)
        job.wait_for_step(run, step)
        offset.write_text(f"{seconds:+d}")
        return job.end()
    finally:
        cluster.set_environment(host, {})


def run_out_of_folder(cluster, run, disturb, mend, step):
    """The shared folder cannot be written to: the job may end, or bear it. Then the same command goes on."""
    job = launched(cluster, run)
    job.wait_for_step(run, step)
    disturb()
    first = job.end()
    mend()
    again = launched(cluster, run, "--resume", "auto").end()
    return first, again


def have_clocks():
    return os.path.exists(FAKETIME)
