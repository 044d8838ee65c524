# SPDX-License-Identifier: Apache-2.0
"""A machine within this one: processes, a network, mounts and a name of its own, in namespaces that end with it, and at
the latest with the process that made it."""

import os
import signal
import subprocess
import time
from pathlib import Path

NAMESPACES = "setpriv --pdeathsig KILL unshare --net --uts --mount --pid --fork --mount-proc --kill-child".split()
# The first process of a machine: it takes in whatever other processes leave behind.
INIT = ["bash", "-c", 'hostname "$0"; mount -t tmpfs none /dev/shm; ip link set lo up; while :; do sleep 1000 & wait $!; done']


def wait_until(found, what, seconds=120):
    end = time.monotonic() + seconds
    while not (result := found()):
        if time.monotonic() > end:
            raise TimeoutError(f"{what} within {seconds} seconds")
        time.sleep(0.05)
    return result


def child_of(pid):
    return int((Path(f"/proc/{pid}/task/{pid}/children").read_text().split() or [0])[0])


def namespace_of(pid):
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return None  # it is gone


class Machine:
    """Its processes end with its first one."""

    def __init__(self, name, entry=()):
        self.name = name
        # unshare complains of a child that is killed.
        self.outside = subprocess.Popen([*entry, *NAMESPACES, *INIT, name], start_new_session=True, stderr=subprocess.DEVNULL)
        unshared = lambda: self.outside.pid if not entry else child_of(self.outside.pid)  # nsenter stands before it
        wait_until(lambda: unshared() and child_of(unshared()), f"no {name}", 10)
        self.pid = child_of(unshared())
        self.entry = ["nsenter", "--target", str(self.pid), "--all"]
        wait_until(lambda: self.run("hostname").stdout.strip() == name, f"{name} has no name", 10)

    def command(self, *words):
        return [*self.entry, f"--wdns={os.getcwd()}", *map(str, words)]

    def run(self, *words, **options):
        return subprocess.run([*self.entry, *map(str, words)], capture_output=True, encoding="utf-8", timeout=60, **options)

    def must(self, *words, **options):
        result = self.run(*words, **options)
        if result.returncode != 0:
            raise RuntimeError(f"{self.name}: {words}: {result.stderr}")
        return result.stdout

    def processes(self):
        """All of them but the first, which stands for the machine itself."""
        own = namespace_of(self.pid)
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return [pid for pid in pids if pid != self.pid and own and namespace_of(pid) == own]

    def power_off(self):
        os.kill(self.pid, signal.SIGKILL)
        self.outside.wait(30)
