# SPDX-License-Identifier: Apache-2.0
"""Clusters of 2 to 8 hosts train as one machine does; and no fault of a link, a host, a clock or the shared folder hangs a
job, hides its culprit or changes a loss."""

import os
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(os.environ["BALLAST_SOURCE"]) / "tests/cluster"))
import cluster_jobs  # noqa: E402
import fault_sweep  # noqa: E402
from cluster import Cluster, what_is_missing  # noqa: E402


def setUpModule():
    if why := what_is_missing():
        raise unittest.SkipTest(why)
    if not cluster_jobs.have_clocks():
        raise FileNotFoundError(f"there is no {cluster_jobs.FAKETIME}: apt-get install libfaketime")


class Systems(unittest.TestCase):
    def check(self, hosts, steps=20):
        folder = tempfile.mkdtemp(prefix="ballast-cluster-")
        self.addCleanup(shutil.rmtree, folder)
        cluster = Cluster(folder, hosts)
        self.addCleanup(cluster.close)
        for system in cluster_jobs.SYSTEMS:
            with self.subTest(system=system, hosts=hosts):
                expected = cluster_jobs.on_one_machine(cluster, f"one {system}", hosts, system, steps)
                before = cluster_jobs.bytes_sent(cluster)
                outcome = cluster_jobs.launched(cluster, f"many {system}", system=system, steps=steps, deadline=60).end()
                self.assertEqual(outcome.code, 0, outcome.errors)
                self.assertEqual(cluster_jobs.losses(cluster, f"many {system}"), expected, "to the bit")
                self.assertGreater(cluster_jobs.bytes_sent(cluster) - before, cluster_jobs.payload(cluster, f"many {system}", system, steps))

    def test_four_hosts(self):
        self.check(4)

    def test_eight_hosts(self):
        self.check(8)


class Faults(unittest.TestCase):
    def test_seventy_faults_are_borne_or_told(self):
        trials = [trial for hosts in (2, 4) for trial in fault_sweep.sweep(hosts, rounds=3, seed=hosts)]
        print(fault_sweep.table(trials), file=sys.stderr)
        self.assertEqual([trial for trial in trials if trial.fault], [])
        links_and_hosts = [trial for trial in trials if trial.kind.startswith(("link", "host"))]
        self.assertGreaterEqual(len(links_and_hosts), 50)


if __name__ == "__main__":
    unittest.main()
