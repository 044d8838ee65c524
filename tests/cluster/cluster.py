# SPDX-License-Identifier: Apache-2.0
"""A cluster on one machine: hosts with processes, a network, mounts and a name of their own, joined by a bridge. The bridge
is on a machine of its own, `login`, from which jobs are started by mpirun and remote_shell.py, as by ssh. Nothing of it is seen
outside, and all of it ends with the process that made it."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from machine import Machine, child_of, wait_until

HERE = Path(__file__).resolve().parent
PROGRAMS = "unshare nsenter setpriv mount ip tc nft mpirun".split()
PACKAGES = "iproute2 nftables openmpi-bin util-linux"
SHARED_MEGABYTES = 64


def what_is_missing():
    """Why there can be no such cluster here; empty: there can."""
    if os.geteuid() != 0:
        return "a cluster on one machine needs root, for its namespaces and its bridge"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"there is no {', '.join(missing)} here: apt-get install {PACKAGES}" if missing else ""


class Cluster:
    """`hosts` of them: host1, host2 and so on. `folder` is a folder that all share: a small disk of its own, which is empty
    at first. With `delayed`, the last host has a cable whose delay (seconds) can be switched on and off; with `all_delayed` each
    has one."""

    def __init__(self, folder, hosts, delayed=None, all_delayed=False):
        self.folder = Path(folder)
        self.shared = self.folder / "shared"
        self.names = [f"host{i}" for i in range(1, hosts + 1)]
        self.delay_of = delayed
        self.delayed = [] if delayed is None else self.names if all_delayed else self.names[-1:]
        self.hosts, self.relays, self.shells = {}, {}, {}
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n192.0.2.100 login\n" + "".join(
            f"{self.address(name)} {name}\n" for name in self.names))
        self.shared.mkdir()
        self.login = Machine("login")
        self.view = Path(f"/proc/{self.login.pid}/root{self.shared}")  # of the shared folder, from outside
        try:
            self.prepare_login()
            for name in self.names:
                self.start_host(name)
        except BaseException:
            self.close()
            raise

    def address(self, name):
        return f"192.0.2.{int(name.removeprefix('host'))}"

    def prepare_login(self):
        self.login.must("mount", "-t", "tmpfs", "-o", f"size={SHARED_MEGABYTES}m", "shared", self.shared)
        self.login.must("mount", "--bind", self.folder / "hosts", "/etc/hosts")
        for words in ("link add lan type bridge", "addr add 192.0.2.100/24 dev lan", "link set lan up"):
            self.login.must("ip", *words.split())

    def start_host(self, name):
        """The first time, or after it has vanished."""
        host = self.hosts[name] = Machine(name, self.login.entry)  # it sees the shared folder as login does
        wait_until(lambda: self.login.run("ip", "link", "show", f"to_{name}").returncode != 0, "the former cable is there")
        if name not in self.delayed:
            self.login.must("ip", "link", "add", f"to_{name}", "type", "veth", "peer", "name", "eth0", "netns", self.pid_at_login(name))
        else:
            self.lay_delayed_cable(name)
        self.login.must("ip", "link", "set", f"to_{name}", "master", "lan", "up")
        # Its address stays when it comes back, as a real machine's: others would look for the former one for half a minute.
        host.must("ip", "link", "set", "eth0", "address", f"02:00:00:00:00:{int(name.removeprefix('host')):02x}")
        # As on a wire, no packet is larger than the network's: what is lost or counted is one of these.
        host.must("ip", "link", "set", "eth0", "gso_max_segs", 1)
        for words in (f"addr add {self.address(name)}/24 dev eth0", "link set eth0 up"):
            host.must("ip", *words.split())
        self.set_environment(name, {})
        self.start_shell(name)

    def pid_at_login(self, name):
        status = Path(f"/proc/{self.hosts[name].pid}/status").read_text()
        return status.split("NSpid:")[1].split("\n")[0].split()[-2]

    def lay_delayed_cable(self, name):
        entry = ["nsenter", "--target", str(self.login.pid), "--net"]
        command = [sys.executable, HERE / "delay_relay.py", self.delay_of, f"to_{name}", "eth0", f"/proc/{self.hosts[name].pid}/ns/net"]
        relay = self.relays[name] = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *entry, *map(str, command)], stdout=subprocess.PIPE, encoding="utf-8")
        if relay.stdout.readline() != "ready\n":
            raise RuntimeError(f"no delayed cable to {name}")

    def set_environment(self, name, variables):
        """Of what is started on the host from now on."""
        (self.folder / f"{name}.environment").write_text("".join(f"{key}={value}\n" for key, value in variables.items()))

    def start_shell(self, name):
        command = self.hosts[name].command(sys.executable, "-B", HERE / "remote_shell.py", "--serve", self.folder / f"{name}.environment")
        shell = self.shells[name] = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], stdout=subprocess.PIPE,
                                                     encoding="utf-8", start_new_session=True)
        if shell.stdout.readline() != "ready\n":
            raise RuntimeError(f"no shell on {name}")

    def take_shell(self, name):
        """Before its host ends: the system waits until nsenter has taken note of its child's end, and it may be stopped."""
        shell = self.shells.pop(name)
        shell.kill()
        shell.wait(30)
        shell.stdout.close()

    def command(self, *words):
        """To be started from here, and to run on `login`, in the shared folder."""
        return [*self.login.entry, f"--wdns={self.shared}", *map(str, words)]

    def environment(self):
        """Of commands on `login`: their mpirun reaches hosts by the agent."""
        return {**os.environ, "OMPI_MCA_plm_rsh_agent": f"{sys.executable} -B {HERE / 'remote_shell.py'}",
                "TMPDIR": "/dev/shm", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def bytes_from(self, name):
        """What the bridge has got from a host so far."""
        link = json.loads(self.login.must("ip", "-json", "-statistics", "link", "show", f"to_{name}"))[0]
        return link["stats64"]["rx"]["bytes"]

    # What can be wrong with a link. Each holds until mend().
    def cut(self, name):
        self.login.must("ip", "link", "set", f"to_{name}", "down")

    def slow(self, name, megabits, burst="64kb"):
        """Both ways. `burst` may go at once after a rest."""
        limit = ["root", "tbf", "rate", f"{megabits}mbit", "burst", burst, "latency", "400ms"]
        self.login.must("tc", "qdisc", "replace", "dev", f"to_{name}", *limit)
        self.hosts[name].must("tc", "qdisc", "replace", "dev", "eth0", *limit)

    def lose(self, name, percent):
        """Of what the host sends."""
        self.login.must("nft", "add", "table", "netdev", name)
        self.login.must("nft", f"add chain netdev {name} lost {{ type filter hook ingress device to_{name} priority 0 ; }}")
        self.login.must("nft", "add", "rule", "netdev", name, "lost", "numgen", "random", "mod", 100, "<", percent, "counter", "drop")

    def lost(self, name):
        """How many packets were."""
        return int(self.login.must("nft", "list", "table", "netdev", name).split("counter packets ")[1].split()[0])

    def delay(self, name):
        self.relays[name].send_signal(signal.SIGUSR1)

    def mend(self, name):
        self.login.run("nft", "delete", "table", "netdev", name)
        self.login.run("tc", "qdisc", "del", "dev", f"to_{name}", "root")
        self.hosts[name].run("tc", "qdisc", "del", "dev", "eth0", "root")
        if name in self.relays:
            self.relays[name].send_signal(signal.SIGHUP)
        self.login.must("ip", "link", "set", f"to_{name}", "up")

    # What can be wrong with a host.
    def vanish(self, name):
        """All its processes and its network, at once."""
        self.take_shell(name)
        self.hosts.pop(name).power_off()
        self.take_relay(name)

    def take_relay(self, name):
        if relay := self.relays.pop(name, None):
            relay.kill()
            relay.wait(30)
            relay.stdout.close()

    def hang(self, name):
        for pid in self.hosts[name].processes():
            self.signal(pid, signal.SIGSTOP)

    def wake(self, name):
        for pid in self.hosts[name].processes():
            self.signal(pid, signal.SIGCONT)

    def kill_processes(self, name):
        """All but the shell that takes new ones."""
        inside = child_of(self.shells[name].pid)
        for pid in self.hosts[name].processes():
            if pid != inside:
                self.signal(pid, signal.SIGKILL)

    @staticmethod
    def signal(pid, number):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

    # What can be wrong with the shared folder.
    def fill(self):
        self.login.run("sh", "-c", f"cat /dev/zero > {self.shared}/filler")

    def empty(self):
        self.login.must("rm", "-f", self.shared / "filler")

    def make_read_only(self, run):
        """The run's folder, for all that is opened from now on."""
        for machine in (self.login, *self.hosts.values()):
            machine.must("mount", "--bind", self.shared / run, self.shared / run)
            machine.must("mount", "-o", "remount,bind,ro", self.shared / run)

    def make_writable(self, run):
        for machine in (self.login, *self.hosts.values()):
            machine.must("umount", "--lazy", self.shared / run)

    def close(self):
        """Whatever is left of it."""
        for name in list(self.relays):
            self.take_relay(name)
        for name in list(self.shells):
            self.take_shell(name)
        self.login.power_off()  # and with it all hosts, which are its children
        for host in self.hosts.values():
            host.outside.wait(30)
