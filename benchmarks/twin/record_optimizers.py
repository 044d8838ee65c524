# SPDX-License-Identifier: Apache-2.0
"""Trains the PyTorch twin with Muon, with an average of its weights and with frozen parameters, and prints the losses.

    python benchmarks/twin/record_optimizers.py > tests/golden/optimizer_losses.json

Weights and tokens are those of record_losses.py. All of it is in fp64, so that what is left of a difference is rounding.
The C++ trainer must give the same (tests/training/optimizer_twin_test.cpp).
"""

import json
import math
import sys

import torch

from language_model import LanguageModel
from record_losses import EXPERTS, SHAPE, TRAINING, best_assignment, decays, set_weights, tokens_of

MUON = {"matrix_rate": 2.0, "momentum": 0.9}
AVERAGE = 0.9
FROZEN = ("token_embedding", "block.0.*", "block.1.attention.qkv.*")
STEPS_OF_ITERATION, COEFFICIENTS = 5, (3.4445, -4.7750, 2.0315)


def orthogonalised(matrix):  # [R, C]
    a, b, c = COEFFICIENTS
    x = matrix / matrix.norm()
    for _ in range(STEPS_OF_ITERATION):
        gram = x @ x.t()
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


class Muon:
    """For one parameter: matrices that stand one above another ([3 D, D] of qkv), or a stack of them ([E, in, out])."""

    def __init__(self, parameter, parts):
        self.parameter, self.parts = parameter, parts
        self.momentum = torch.zeros_like(parameter)

    def matrices(self, tensor):
        return list(tensor) if tensor.dim() == 3 else tensor.chunk(self.parts)

    @torch.no_grad()
    def step(self, rate):
        beta = MUON["momentum"]
        self.momentum.mul_(beta).add_(self.parameter.grad, alpha=1 - beta)
        ahead = self.momentum * beta + self.parameter.grad * (1 - beta)
        self.parameter.mul_(1 - rate * TRAINING["weight_decay"])
        for weights, direction in zip(self.matrices(self.parameter), self.matrices(ahead)):
            weights.sub_(orthogonalised(direction), alpha=rate * 0.2 * math.sqrt(max(direction.shape)))


def is_muons(name):
    return name.endswith("weight") and "norm" not in name and ("blocks." in name or "sublayers." in name)


def is_frozen(name):
    return name.startswith(("token_embedding.", "blocks.0.", "blocks.1.qkv."))


def cosine(step):
    warmup = TRAINING["warmup_steps"]
    if step < warmup:
        return TRAINING["learning_rate"] * (step + 1) / warmup
    done = (step - warmup) / (TRAINING["steps"] - warmup)
    return TRAINING["learning_rate"] * (0.1 + 0.9 * (1 + math.cos(math.pi * done)) / 2)


def train(experts=0, sublayers=0, muon=True, frozen=False):
    """The losses, and in the end the sum of squares of the average of weights."""
    torch.set_num_threads(1)
    model = LanguageModel(*(SHAPE[key] for key in ("vocabulary", "width", "layers", "heads", "context")), experts, sublayers)
    if model.base is not None:
        model.base.assign = best_assignment
    set_weights(model)
    model.double()
    named = dict(model.named_parameters())
    if frozen:
        for name in filter(is_frozen, named):
            named[name].requires_grad_(False)
    trained = {name: p for name, p in named.items() if p.requires_grad}
    matrices = [Muon(p, 3 if "qkv" in name else 1) for name, p in trained.items() if muon and is_muons(name)]
    rest = {name: p for name, p in trained.items() if not (muon and is_muons(name))}
    groups = [{"params": [p for name, p in rest.items() if decays(name) == chosen], "weight_decay": decay}
              for chosen, decay in ((True, TRAINING["weight_decay"]), (False, 0.0))]
    adam = torch.optim.AdamW(groups, betas=(TRAINING["beta1"], TRAINING["beta2"]), eps=TRAINING["epsilon"])
    averages, losses = {}, []
    for step in range(TRAINING["steps"]):
        rate = cosine(step)
        for group in adam.param_groups:
            group["lr"] = rate
        model.zero_grad()
        tokens = tokens_of(step)
        loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        norm = torch.nn.utils.get_total_norm([p.grad for p in model.clipped_by() if p.grad is not None])
        torch.nn.utils.clip_grads_with_norm_(trained.values(), TRAINING["clip_norm"], norm)
        adam.step()
        for matrix in matrices:
            matrix.step(rate * MUON["matrix_rate"])
        share = max(1 - AVERAGE, 1 / (step + 1))
        for name, p in trained.items():
            averages[name] = averages.get(name, 0) * (1 - share) + p.detach() * share
        losses.append(loss.item())
    return {"losses": losses, "average": sum(a.square().sum().item() for a in averages.values())}


if __name__ == "__main__":
    record = {"shape": SHAPE, "experts": EXPERTS, "training": TRAINING, "muon": MUON, "average": AVERAGE, "frozen": FROZEN,
              "torch": torch.__version__,
              "dense": train(), "base": train(EXPERTS["count"], EXPERTS["sublayers"]),
              "partly_frozen": train(EXPERTS["count"], EXPERTS["sublayers"], frozen=True),
              "adam_partly_frozen": train(muon=False, frozen=True)}
    json.dump(record, sys.stdout, indent=2)
    print()
