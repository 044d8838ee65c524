# SPDX-License-Identifier: Apache-2.0
"""Layers whose experts are divided among processes (gloo) compute what one process computes, under DDP."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import package  # noqa: F401
import torch
import worker_script
from ballast.nn import BaseLayer

HERE = Path(__file__).parent


class Workers(unittest.TestCase):
    def run_workers(self, world, routers):
        """Of each router: all tensors by the names of one process, the losses, and the outputs of all."""
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-B", HERE / "worker_script.py", folder]
            workers = [subprocess.Popen([*command, str(rank), str(world), *routers], stderr=subprocess.PIPE, text=True)
                       for rank in range(world)]
            for worker in workers:
                _, said = worker.communicate(timeout=500)
                self.assertEqual(worker.returncode, 0, said)
            found = [torch.load(Path(folder) / f"{rank}.pt") for rank in range(world)]
        return {router: self.joined([part[router] for part in found]) for router in routers}

    def joined(self, found):
        for other in found[1:]:
            self.assertEqual(other["losses"], found[0]["losses"])
            for name in set(other["state"]) & set(found[0]["state"]):
                torch.testing.assert_close(other["state"][name], found[0]["state"][name], rtol=0, atol=0, msg=name)
        state = {name: value for part in found for name, value in part["state"].items()}
        return state, torch.tensor(found[0]["losses"]), torch.cat([part["tested"] for part in found])

    def test_two_and_four_are_one(self):
        one = self.run_workers(1, list(worker_script.ROUTERS))
        for world, routers in ((2, list(worker_script.ROUTERS)), (4, ["base"])):
            for router, (theirs, their_losses, their_outputs) in self.run_workers(world, routers).items():
                with self.subTest(router, workers=world):
                    state, losses, outputs = one[router]
                    self.assertLess(losses[-1], losses[0])
                    self.assertEqual(set(theirs), set(state))
                    for name, value in state.items():
                        torch.testing.assert_close(theirs[name], value, rtol=1e-9, atol=1e-9, msg=name)
                    torch.testing.assert_close(their_losses, losses, rtol=1e-9, atol=0)
                    torch.testing.assert_close(their_outputs, outputs, rtol=1e-9, atol=1e-9)

    def test_a_worker_takes_its_experts_from_the_names_of_all(self):
        whole = BaseLayer(8, 8, hidden=16, in_place=True)
        state = whole.state_dict()
        part = BaseLayer(8, 8, hidden=16, in_place=True, seed=2)
        for entry in part._entries:  # as on worker 1 of 2
            if entry["stacked"]:
                entry["first"], entry["shape"] = 4, [4, *entry["shape"][1:]]
                name = package.ballast.nn._attribute(entry)
                setattr(part, name, torch.nn.Parameter(getattr(part, name)[4:]))
        part.load_state_dict(state)
        self.assertEqual({n for n in part.state_dict() if n.startswith("expert.")},
                         {n for n in state if n.split(".")[0] == "expert" and n.split(".")[1] in "4567"})
        torch.testing.assert_close(part.state_dict()["expert.5.sublayer.0.up.weight"], state["expert.5.sublayer.0.up.weight"])


if __name__ == "__main__":
    unittest.main()
