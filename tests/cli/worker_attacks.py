# SPDX-License-Identifier: Apache-2.0
"""Attacks on a job with workers: it, its mpirun and its workers are stopped and killed at chosen moments. Each function
starts a small job in `folder`, attacks it, waits for its end and returns an Outcome; long tests call them with many moments."""

import contextlib
import os
import secrets
import signal
import socket
import struct
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from in_folder import BALLAST

# How many times as many moments the tests try as they do when all tests are run.
TIMES = int(os.environ.get("BALLAST_ATTACKS", "1"))
WORKERS = 2
DEADLINE = 2  # of jobs that are to end by it; others have PATIENCE, which a busy machine needs
PATIENCE = 30
STEPS = 150  # an attack within the first 30 comes before the end on fast machines too
MODEL = (
    "--model.width=16 --model.layers=2 --model.heads=2 --model.context=16 --training.threads=1 --training.batch=8 "
    "--training.validate_every=0 --training.validate_batches=2 --training.last_validate_batches=2 --training.sample_tokens=8 --data.builtin_bytes=60000 "
    "--training.log_every=50 --experts.layers=1 --experts.count=8 --experts.sublayers=1 --experts.groups=8 --checkpoint.every=10"
).split()
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
MARK = "BALLAST_ATTACKED_JOB"
LONGEST = 90  # seconds, on a machine that does much else


@dataclass
class Outcome:
    code: int
    output: str
    errors: str
    left: list  # processes of the job that were there after its end


def stat_of(pid):
    """(state, parent) of a process; None: it is gone."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None
    return words[0], int(words[1])


def environment_of(pid):
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    return dict(v.split(b"=", 1) for v in variables if b"=" in v)


def wait_until(condition, what):
    end = time.monotonic() + LONGEST
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.002)
    raise TimeoutError(what)


class Job:
    """A command and all processes that it starts, which its environment tells from others."""

    def __init__(self, command, folder):
        self.mark = secrets.token_hex(8)
        self.process = subprocess.Popen(list(map(str, command)), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        encoding="utf-8", env={**os.environ, MARK: self.mark}, start_new_session=True)

    def processes(self):
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return [pid for pid in pids if environment_of(pid).get(MARK.encode()) == self.mark.encode()]

    def mpirun(self):
        """Of a launcher, or the command itself; None: it is not there yet."""
        for pid in self.processes():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().strip() in ("mpirun", "orterun") and stat_of(pid)[1] in (self.process.pid, os.getpid()):
                    return pid
        return None

    def started(self):
        """What mpirun has started, in that order: workers, or what is about to become them."""
        mpirun = self.mpirun()
        return sorted(pid for pid in self.processes() if mpirun and (stat_of(pid) or " ")[1] == mpirun)

    def worker(self, number):
        return wait_until(lambda: (self.started()[number:] or [None])[0], f"no worker {number}")

    def signal(self, pid, number):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    def end(self, seconds=LONGEST):
        try:
            output, errors = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            hung = {pid: stat_of(pid) for pid in self.processes()}
            self.kill()
            output, errors = self.process.communicate()
            return Outcome(-1, output, f"{errors}\nhung: {hung}", list(hung))
        left = self.processes()
        self.kill()
        return Outcome(self.process.returncode, output, errors, left)

    def kill(self):
        for pid in self.processes():
            self.signal(pid, signal.SIGKILL)


def steps_of(folder, run):
    metrics = Path(folder) / run / "metrics.jsonl"
    return metrics.read_text().count('"loss"') if metrics.exists() else 0


def training(run, *more, steps=STEPS, deadline=PATIENCE):
    return [BALLAST, "train", *MODEL, f"--training.steps={steps}", "--run", run, "--deadline", deadline, *more]


def launched(folder, run, *more, steps=STEPS, deadline=PATIENCE):
    return Job(training(run, "--workers", WORKERS, *more, steps=steps, deadline=deadline), folder)


def undisturbed(folder, run, *more):
    return launched(folder, run, *more).end()


def stop_at_the_start(folder, run, worker, moment, *more):
    """The worker is stopped `moment` seconds after mpirun has started it; `more`: options such as --max-restarts."""
    job = launched(folder, run, *more, steps=STEPS if more else 100000, deadline=2 * DEADLINE if more else DEADLINE)
    pid = job.worker(worker)
    time.sleep(moment)
    job.signal(pid, signal.SIGSTOP)
    return job.end()


def stop_at_the_start_of_mpirun(folder, run, worker, moment):
    """The same with an mpirun of people's own."""
    job = Job([*MPIRUN, "-n", WORKERS, *training(run, steps=100000, deadline=DEADLINE)], folder)
    pid = job.worker(worker)
    time.sleep(moment)
    job.signal(pid, signal.SIGSTOP)
    outcome = job.end()
    if outcome.left:  # the process that ends mpirun itself ends a moment later
        time.sleep(1)
        outcome.left = job.processes()
    return outcome


def kill_mpirun(folder, run, step, *more):
    job = launched(folder, run, *more)
    mpirun = wait_until(job.mpirun, "no mpirun")
    wait_until(lambda: steps_of(folder, run) >= step, f"no step {step}")
    job.signal(mpirun, signal.SIGKILL)
    return job.end()


def kill_a_worker(folder, run, worker, step, *more):
    job = launched(folder, run, *more)
    pid = job.worker(worker)
    wait_until(lambda: steps_of(folder, run) >= step, f"no step {step}")
    job.signal(pid, signal.SIGKILL)
    return job.end()


def stop_a_worker_and_kill_the_launcher(folder, run, worker, step):
    job = launched(folder, run, steps=100000)
    pid = job.worker(worker)
    wait_until(lambda: steps_of(folder, run) >= step, f"no step {step}")
    job.signal(pid, signal.SIGSTOP)
    job.process.kill()
    with contextlib.suppress(TimeoutError):
        wait_until(lambda: not job.processes(), "something is left")
    return job.end()


def stop_a_worker_then_the_job(folder, run, worker, moment, step=0, number=signal.SIGTERM):
    """The worker is stopped after this step (0: at the start), and the launcher is asked to stop `moment` seconds later."""
    job = launched(folder, run, "--max-restarts", 1, steps=100000)
    pid = job.worker(worker)
    if step:
        wait_until(lambda: steps_of(folder, run) >= step, f"no step {step}")
    job.signal(pid, signal.SIGSTOP)
    time.sleep(moment)
    job.signal(job.process.pid, number)
    return job.end()


# Two machines are two network namespaces with a link between them, which is cut after some steps. All processes are in a
# namespace too, and end with it.
CUT_LINK = """
set -e
mount -t tmpfs none /run
mount -t tmpfs none /dev/shm  # OpenMPI's files have the same names on both machines, and the next time
export TMPDIR=/run
ip link set lo up
ip netns add other
ip link add here type veth peer name there netns other
ip addr add 192.0.2.1/24 dev here
ip link set here up
ip -n other addr add 192.0.2.2/24 dev there
ip -n other link set there up
ip -n other link set lo up
printf '#!/bin/sh\nshift\nexec ip netns exec other sh -c "mount -t tmpfs none /dev/shm; $*"\n' > /run/to_the_other
chmod +x /run/to_the_other
metrics=$1
shift
"$@" & mpirun=$!
until [ -e "$metrics" ] && [ "$(grep -c loss "$metrics")" -ge 5 ]; do sleep 0.05; kill -0 $mpirun; done
ip link set here down
code=0
wait $mpirun || code=$?
for look in $(seq 50); do
  left=$(ps -eo comm= | grep -E '^(ballast|orted|mpirun)' || true)
  if [ -z "$left" ]; then break; fi
  sleep 0.1
done
echo "left: $left"
exit $code
"""
NAMESPACES = ["unshare", "--user", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--mount-proc"]


def can_make_machines():
    """Whether this user may have network namespaces."""
    with contextlib.suppress(OSError):
        command = "mount -t tmpfs none /run && mount -t tmpfs none /dev/shm && ip netns add other && ip link add here type veth peer name there netns other"
        return subprocess.run([*NAMESPACES, "sh", "-c", command], capture_output=True, timeout=30).returncode == 0
    return False


def cut_the_link(folder, run):
    """Two workers on each of two machines, by an mpirun of people's own; the link between them goes down and stays so."""
    mpirun = [*MPIRUN, "--mca", "plm_rsh_agent", "/run/to_the_other", "--host", "192.0.2.1:2,192.0.2.2:2", "-n", 4]
    metrics = Path(folder) / run / "metrics.jsonl"
    return Job([*NAMESPACES, "sh", "-c", CUT_LINK, "sh", metrics, *mpirun, *training(run, steps=100000, deadline=DEADLINE)], folder).end()


def listening_addresses(pids):
    """Where these processes take connections or datagrams: {(address, port)}."""
    inodes = set()
    for pid in pids:
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                target = os.readlink(fd)
                if target.startswith("socket:"):
                    inodes.add(target[8:-1])
    found = set()
    for table, state in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == state and words[9] in inodes:
                address, port = words[1].split(":")
                parts = struct.pack(f"={len(address) // 8}I", *(int(address[i : i + 8], 16) for i in range(0, len(address), 8)))
                found.add((socket.inet_ntop(socket.AF_INET if len(parts) == 4 else socket.AF_INET6, parts), int(port, 16)))
    return found
