#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package beside what people would use instead, in turns in one process. Prints medians and ratios.

    PYTHONPATH=build/release/python:benchmarks/twin python benchmarks/python_package.py [--device cuda]

ballast.assign beside scipy's linear_sum_assignment, and a layer of experts, forward and backward, beside the same in
plain PyTorch: a loop over experts that picks each one's tokens, and stacks of weights with the paper's auction
(benchmarks/twin/base_layer.py), as it is and compiled.
"""

import argparse
import statistics
import time

import ballast
import ballast.nn
import numpy
import torch
import torch.nn.functional as F
from base_layer import BaseLayer as StackedLayer
from scipy.optimize import linear_sum_assignment
from torch import nn


def in_turns(rounds, *works):
    """The median seconds of each, after one call that is not counted."""
    seconds = [[] for _ in works]
    for turn in range(rounds + 1):
        for work, taken in zip(works, seconds):
            wait()
            began = time.perf_counter()
            work()
            wait()
            if turn > 0:
                taken.append(time.perf_counter() - began)
    return [statistics.median(taken) for taken in seconds]


def wait():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def by_scipy(scores):
    for problem in scores:
        places = -(-problem.shape[0] // problem.shape[1])
        linear_sum_assignment(problem.repeat(places, axis=1), maximize=True)


def compare_assignments(args):
    print(f"assign, {args.device}: scores of problems x tokens x experts, ms beside scipy (on the CPU)")
    for shape in ((1, 2048, 128), (16, 300, 100)):
        scores = numpy.random.default_rng(1).normal(size=shape).astype(numpy.float32)
        given = torch.from_numpy(scores).to(args.device)
        arrays, tensors, scipy = in_turns(args.rounds, lambda: ballast.assign(scores), lambda: ballast.assign(given),
                                          lambda: by_scipy(scores))
        print(f"  {shape[0]:3} x {shape[1]} x {shape[2]}: numpy {1e3 * arrays:.2f}, torch {1e3 * tensors:.2f}, "
              f"scipy {1e3 * scipy:.1f}; {scipy / tensors:.0f}x")


class LoopedLayer(nn.Module):
    """Top-1 experts as people write them: each takes the tokens that chose it."""

    def __init__(self, width, experts, hidden):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, hidden), nn.ReLU(),
                                                   nn.Linear(hidden, width)) for _ in range(experts))

    def forward(self, x):
        weight, chosen = self.gate(F.layer_norm(x, x.shape[-1:])).softmax(-1).max(-1)
        out = x.clone()
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero().squeeze(1)
            out = out.index_add(0, rows, weight[rows, None] * expert(x[rows]))
        return out


def step_of(layer, x):
    def step():
        for parameter in layer.parameters():
            parameter.grad = None
        layer(x).sum().backward()

    return step


def compare_layers(args):
    cuda = args.device == "cuda"
    width, hidden, tokens = (1024, 4096, 16384) if cuda else (256, 1024, 2048)
    dtype = torch.bfloat16 if cuda else torch.float32
    print(f"layer, {args.device}, {dtype}: {tokens} tokens, width {width}, hidden {hidden}; forward and backward, ms")
    for experts in ((8, 32, 128) if cuda else (8, 32)):
        x = torch.randn(tokens, width, device=args.device, dtype=dtype, requires_grad=True)
        layers = {"BaseLayer": ballast.nn.BaseLayer(width, experts, hidden=hidden, in_place=True, groups=max(tokens // 2048, 1)),
                  "SwitchLayer": ballast.nn.SwitchLayer(width, experts, hidden=hidden, in_place=True),
                  "a loop over experts": LoopedLayer(width, experts, hidden),
                  "stacks and the auction": StackedLayer(experts, 1, width, hidden)}
        layers = {name: layer.to(args.device, dtype) for name, layer in layers.items()}
        if args.compile:
            layers["stacks and the auction, compiled"] = torch.compile(StackedLayer(experts, 1, width, hidden).to(args.device, dtype))
        found = in_turns(args.rounds, *(step_of(layer, x) for layer in layers.values()))
        best = min(found[2:])
        told = ", ".join(f"{name} {1e3 * seconds:.2f}" for name, seconds in zip(layers, found))
        print(f"  {experts:3} experts: {told}; BaseLayer {best / found[0]:.2f}x, SwitchLayer {best / found[1]:.2f}x the fastest other")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--compile", action="store_true", help="also the compiled stacks")
    args = parser.parse_args()
    compare_assignments(args)
    compare_layers(args)


if __name__ == "__main__":
    main()
