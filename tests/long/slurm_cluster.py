# SPDX-License-Identifier: Apache-2.0
"""A Slurm of several machines within this one: each has processes, a network and a name of its own, in namespaces that
end with it. All files are in one folder, which all machines see, and nothing is reached from outside."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "cluster"))
from machine import Machine, wait_until  # noqa: E402

PROGRAMS = "munged slurmctld slurmd sbatch srun scontrol unshare nsenter setpriv ip mpirun".split()
PACKAGES = "slurmctld slurmd slurm-client munge iproute2 openmpi-bin"
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
        head.must("mount", "--bind", self.folder / "hosts", "/etc/hosts")
        for words in ("link add lan type bridge", "addr add 192.0.2.1/24 dev lan", "link set lan up"):
            head.must("ip", *words.split())
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
        node.must("mount", "--bind", self.folder / "hosts", "/etc/hosts")
        for words in (f"addr add 192.0.2.{10 + number}/24 dev eth0", "link set eth0 up"):
            node.must("ip", *words.split())
        (self.folder / f"tmp-{name}").mkdir(exist_ok=True)
        self.start(node, "slurmd", "-D", "-N", name)
        wait_until(lambda: re.search(r"State=IDLE\s", self.call("scontrol", "show", "node", name)), f"no {name}", 60)

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
