# SPDX-License-Identifier: Apache-2.0
"""Two hosts, each with a network of its own, train as one machine does; who is lost is named, and the run goes on."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import cluster_jobs
from cluster import Cluster, what_is_missing
from machine import wait_until


def setUpModule():
    if why := what_is_missing():
        raise unittest.SkipTest(why)


class TwoHosts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp(prefix="ballast-cluster-")
        cls.addClassCleanup(shutil.rmtree, folder)
        cls.cluster = Cluster(folder, hosts=2)
        cls.addClassCleanup(cls.cluster.close)

    def check_system(self, system, start, steps=12):
        """Losses are those of one machine to the bit: OpenMPI sums in an order that depends on sizes, not on cables."""
        expected = cluster_jobs.on_one_machine(self.cluster, f"one {system}", 2, system, steps)
        before = cluster_jobs.bytes_sent(self.cluster)
        outcome = start(self.cluster, f"two {system}", system=system, steps=steps).end()
        self.assertEqual(outcome.code, 0, outcome.errors)
        self.assertEqual(cluster_jobs.losses(self.cluster, f"two {system}"), expected)
        least = cluster_jobs.payload(self.cluster, f"two {system}", system, steps)
        self.assertGreater(least, 100_000, "a payload worth counting")
        self.assertGreater(cluster_jobs.bytes_sent(self.cluster) - before, least)
        if start is cluster_jobs.launched:  # the run tells how it was started, not how its workers were
            started = json.loads((self.cluster.view / f"two {system}/run.json").read_text())["starts"][0]["command_line"]
            self.assertIn("--hosts", started)
            self.assertIn("host1:1,host2:1", started)

    def test_base_trains_as_on_one_machine(self):
        self.check_system("base", cluster_jobs.launched)

    def test_dense_by_an_mpirun_of_ones_own_trains_as_on_one_machine(self):
        self.check_system("dense", cluster_jobs.by_mpirun)

    def test_switch_trains_as_on_one_machine(self):
        self.check_system("switch", cluster_jobs.launched)

    def test_shards_of_one_model_train_as_on_one_machine(self):
        self.check_system("model parallel", cluster_jobs.launched)

    def test_tokens_in_two_hops_train_as_straight_ones_do(self):
        """Of BASE layers, whose rows are even, and of gates without a capacity, whose rows are not."""
        for system, each in (("base", 2), ("unlimited switch", 2), ("base", 4)):
            with self.subTest(system=system, each=each):
                run = f"{system} by {each}"
                for hops in (1, 2):
                    outcome = cluster_jobs.launched(self.cluster, f"{run} in {hops}", f"--experts.hops={hops}", system=system,
                                                    steps=8, deadline=30, each=each).end()
                    self.assertEqual(outcome.code, 0, outcome.errors)
                expected = cluster_jobs.on_one_machine(self.cluster, f"{run} on one", 2 * each, system, 8)
                self.assertEqual(cluster_jobs.losses(self.cluster, f"{run} in 1"), expected)
                self.assertEqual(cluster_jobs.losses(self.cluster, f"{run} in 2"), expected)

    def test_tokens_in_chunks_train_as_those_in_one_do(self):
        """Each chunk's gradients are added to those of others: in single precision the last digits are other ones."""
        outcomes = {}
        for chunks in (1, 3):
            run = f"in {chunks} chunks"
            outcome = cluster_jobs.launched(self.cluster, run, f"--experts.chunks={chunks}", steps=12, deadline=30).end()
            self.assertEqual(outcome.code, 0, outcome.errors)
            outcomes[chunks] = cluster_jobs.losses(self.cluster, run)
        self.assertEqual(outcomes[1].keys(), outcomes[3].keys())
        for step, loss in outcomes[1].items():
            self.assertAlmostEqual(outcomes[3][step], loss, delta=1e-4, msg=f"step {step}")

    def by_mpirun(self, program, *arguments):
        """What it says, one worker on each host."""
        program = Path(os.environ["BALLAST_BUILD"]).resolve() / program
        command = ["mpirun", "--host", "host1:1,host2:1", "--bind-to", "none", program, *arguments]
        done = subprocess.run(self.cluster.command(*command), env=self.cluster.environment(), capture_output=True,
                              encoding="utf-8", timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_messages_move_while_workers_compute(self):
        """By itself OpenMPI moves them in its own calls alone, and the two would wait for each other's."""
        self.assertEqual(self.by_mpirun("worker_scenario", "computes", -1, 60).count("is well"), 2)

    def test_the_tests_of_workers_pass_between_hosts(self):
        """There a thread of each worker moves messages too. (Workers that agree want one folder, which hosts have not.)"""
        for program, tests in (("workers_tests", "-WorkersAgreement.*"), ("training_workers_tests", "LayerOfWorkers.*")):
            said = self.by_mpirun(program, "mpi", f"--gtest_filter={tests}")
            self.assertEqual(len(re.findall(r"worker \d of 2: [1-9]\d* tests passed", said)), 2, said)

    def test_a_host_that_hangs_is_named(self):
        outcome = cluster_jobs.end_by(self.cluster, "hangs", self.cluster.hang, "host2", 5)
        self.addCleanup(self.cluster.kill_processes, "host2")
        self.cluster.wake("host2")
        self.assertEqual(outcome.code, 75, outcome.errors)
        self.assertIn("worker 1 (on host2) does not answer", outcome.errors)
        self.assertLess(outcome.seconds, cluster_jobs.DEADLINE + cluster_jobs.TO_END)

    def test_a_host_whose_processes_were_killed_is_named(self):
        """mpirun itself does not say which, and may wait for it without end."""
        outcome = cluster_jobs.end_by(self.cluster, "killed", self.cluster.kill_processes, "host2", 5)
        self.assertEqual(outcome.code, 75, outcome.errors)
        self.assertIn("host2", outcome.told)
        self.assertNotIn("host1", outcome.told)
        self.assertLess(outcome.seconds, cluster_jobs.DEADLINE + cluster_jobs.TO_END)

    def test_after_a_host_has_vanished_the_run_goes_on_where_it_is_back(self):
        expected = cluster_jobs.on_one_machine(self.cluster, "quiet", 2)
        outcome = cluster_jobs.go_on_after(self.cluster, "vanishes", self.cluster.vanish, self.cluster.start_host, "host1", 15)
        self.assertEqual(outcome.code, 0, outcome.errors)
        self.assertIn("host1", outcome.told)
        self.assertEqual(cluster_jobs.losses(self.cluster, "vanishes"), expected)


class TheClusterItself(unittest.TestCase):
    def test_it_ends_with_the_process_that_made_it(self):
        folder = tempfile.mkdtemp(prefix="ballast-cluster-")
        self.addCleanup(shutil.rmtree, folder)
        here = Path(__file__).resolve().parent
        program = f"import sys, time; sys.path.insert(0, {str(here)!r})\nfrom cluster import Cluster\n" \
                  f"c = Cluster({folder!r}, 2, delayed=0.1)\nprint(c.login.pid, *(h.pid for h in c.hosts.values()), flush=True)\ntime.sleep(600)"
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, encoding="utf-8")
        pids = process.stdout.readline().split()
        self.assertEqual(len(pids), 3)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), "a host is left", 20)


if __name__ == "__main__":
    unittest.main()
