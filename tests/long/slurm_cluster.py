# SPDX-License-Identifier: Apache-2.0
"""A Slurm of several machines within this one: each has processes, a network and a name of its own, in namespaces that
end with it. All files are in one folder, which all machines see, and nothing is reached from outside."""

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

PROGRAMS = "munged slurmctld slurmd sbatch srun scontrol unshare nsenter setpriv ip mpirun".split()
PACKAGES = "slurmctld slurmd slurm-client munge iproute2 openmpi-bin"
NAMESPACES = "setpriv --pdeathsig KILL unshare --net --uts --mount --pid --fork --mount-proc --kill-child".split()
# The first process of a machine: it takes in whatever other processes leave behind.
INIT = ["bash", "-c", 'hostname "$0"; mount -t tmpfs none /dev/shm; ip link set lo up; while :; do sleep 1000 & wait $!; done']
CONFIG = """
ClusterName=trial
SlurmctldHost=head(192.0.2.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile={folder}/%n.pid
SlurmdSpoolDir={folder}/spool-%n
SlurmdLogFile={folder}/%n.log
TmpFS={folder}/tmp-%n
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
ReturnToService=2
SlurmdTimeout={timeout}
KillWait=10
PropagateResourceLimits=NONE
NodeName=node[1-{nodes}] NodeAddr=192.0.2.[11-{last}] CPUs=2
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def what_is_missing():
    """Why there can be no such cluster here; empty: there can."""
    if os.geteuid() != 0:
        return "a Slurm of its own needs root"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"there is no {', '.join(missing)} here: apt-get install {PACKAGES}" if missing else ""


def wait_until(found, what, seconds=120):
    end = time.monotonic() + seconds
    while not (result := found()):
        if time.monotonic() > end:
            raise TimeoutError(f"{what} within {seconds} seconds")
        time.sleep(0.1)
    return result


def child_of(pid):
    return int((Path(f"/proc/{pid}/task/{pid}/children").read_text().split() or [0])[0])


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

    def power_off(self):
        os.kill(self.pid, signal.SIGKILL)
        self.outside.wait(30)


class Cluster:
    """A head and `nodes` nodes, node1 and so on. A node that is silent for `timeout` seconds is taken for lost."""

    def __init__(self, folder, nodes, timeout=10):
        self.folder = Path(folder)
        self.machines, self.daemons = {}, []
        self.environment = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}
        (self.folder / "state").mkdir()
        (self.folder / "slurm.conf").write_text(
            CONFIG.format(folder=self.folder, nodes=nodes, last=10 + nodes, timeout=timeout))
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n192.0.2.1 head\n" + "".join(
            f"192.0.2.{10 + i} node{i}\n" for i in range(1, nodes + 1)))
        try:
            self.start_head()
            for number in range(1, nodes + 1):
                self.start_node(number)
        except BaseException:
            self.close()
            raise

    def start_head(self):
        head = self.machines["head"] = Machine("head")
        self.must(head, "mount", "--bind", self.folder / "hosts", "/etc/hosts")
        for words in ("link add lan type bridge", "addr add 192.0.2.1/24 dev lan", "link set lan up"):
            self.must(head, "ip", *words.split())
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        files = {name: self.folder / f"munge.{name}" for name in ("socket", "pid", "log", "seed")}
        self.start(head, "munged", "--foreground", "--force", f"--socket={files['socket']}", f"--key-file={key}",
                   f"--pid-file={files['pid']}", f"--log-file={files['log']}", f"--seed-file={files['seed']}")
        wait_until(files["socket"].exists, "no munged", 20)
        self.start(head, "slurmctld", "-D")
        wait_until(lambda: "UP" in self.call("scontrol", "ping"), "no slurmctld", 30)

    def start_node(self, number):
        name = f"node{number}"
        node = self.machines[name] = Machine(name, self.machines["head"].entry)
        in_lan = ["nsenter", f"--net=/proc/{self.machines['head'].pid}/ns/net", "ip", "link"]
        wait_until(lambda: subprocess.run([*in_lan, "show", f"to_{name}"], capture_output=True).returncode != 0, "the former cable is there")
        for words in (f"add to_{name} type veth peer name eth0 netns {node.pid}", f"set to_{name} master lan up"):
            subprocess.run([*in_lan, *words.split()], check=True)
        self.must(node, "mount", "--bind", self.folder / "hosts", "/etc/hosts")
        for words in (f"addr add 192.0.2.{10 + number}/24 dev eth0", "link set eth0 up"):
            self.must(node, "ip", *words.split())
        (self.folder / f"tmp-{name}").mkdir(exist_ok=True)
        self.start(node, "slurmd", "-D", "-N", name)
        wait_until(lambda: re.search(r"State=IDLE\s", self.call("scontrol", "show", "node", name)), f"no {name}", 60)

    def must(self, machine, *words):
        result = machine.run(*words)
        if result.returncode != 0:
            raise RuntimeError(f"{machine.name}: {words}: {result.stderr}")

    def start(self, machine, *words):
        with (self.folder / f"{machine.name}.stderr").open("ab") as said:
            self.daemons.append(subprocess.Popen(machine.command(*words), env=self.environment, stdout=subprocess.DEVNULL, stderr=said))

    def call(self, *words, **options):
        """What the command says, on the head."""
        result = self.machines["head"].run(*words, env=self.environment, **options)
        return result.stdout + result.stderr

    def submit(self, *words, folder):
        said = subprocess.run(self.machines["head"].entry + [f"--wdns={folder}", "sbatch", "--parsable", *map(str, words)],
                              env=self.environment, capture_output=True, encoding="utf-8", timeout=60)
        if said.returncode != 0:
            raise RuntimeError(said.stderr)
        return said.stdout.strip()

    def job(self, number):
        """What Slurm knows of a job: {"JobState": "RUNNING", ...}"""
        return dict(re.findall(r"(\w+)=(\S*)", self.call("scontrol", "show", "job", number)))

    def power_off(self, name):
        """The machine and all that runs on it, at once."""
        self.machines.pop(name).power_off()

    def close(self):
        for name in list(self.machines)[::-1]:
            self.power_off(name)
        for daemon in self.daemons:
            daemon.wait(30)
