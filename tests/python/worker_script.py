# SPDX-License-Identifier: Apache-2.0
"""worker_script.py FOLDER RANK WORLD ROUTER...: trains small models as one of WORLD processes, and writes what it found."""

import sys
from pathlib import Path

import package  # noqa: F401
import torch
import torch.distributed as dist
from ballast import nn as experts
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH, EXPERTS, TOKENS, GROUPS, STEPS = 8, 8, 64, 4, 6
ROUTERS = {"base": (experts.BaseLayer, {}), "paper": (experts.BaseLayer, {"frame": "paper"}),
           "two": (experts.BaseLayer, {"per_token": 2, "shared": 1.0}), "switch": (experts.SwitchLayer, {"balance_weight": 0.1}),
           "sparsely_gated": (experts.SparselyGatedLayer, {"capacity": 0})}


class Model(nn.Module):
    def __init__(self, router, group, world):
        super().__init__()
        torch.manual_seed(1)
        self.inner, self.outer = (nn.Linear(WIDTH, WIDTH, dtype=torch.float64) for _ in range(2))
        kind, knobs = ROUTERS[router]
        self.layer = kind(WIDTH, EXPERTS, hidden=16, in_place=True, groups=GROUPS // world, process_group=group,
                          dtype=torch.float64, **knobs)

    def forward(self, x):
        return self.outer(self.layer(self.inner(x)))


def train(router, group, rank, world):
    model = Model(router, group, world)
    trained = DistributedDataParallel(experts.keep_experts_local(model)) if world > 1 else model
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    own = slice(rank * TOKENS // world, (rank + 1) * TOKENS // world)
    losses = []
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(step)
        x, y = (torch.randn(TOKENS, WIDTH, generator=generator, dtype=torch.float64)[own] for _ in range(2))
        optimizer.zero_grad()
        loss = (trained(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        mean = loss.detach() / world
        if world > 1:
            dist.all_reduce(mean)
        losses.append(mean.item())
    model.eval()
    with torch.no_grad():
        tested = model(x)
    return {"losses": losses, "state": model.state_dict(), "tested": tested}


def main(folder, rank, world, routers):
    if world > 1:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    group = dist.group.WORLD if world > 1 else None
    torch.save({router: train(router, group, rank, world) for router in routers}, Path(folder) / f"{rank}.pt")
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
