#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What k assignments one after another lose against the optimum of "k different experts for each token".

Both give each token k different experts and each expert exactly k T / E tokens. The optimum is a linear program whose
vertices are whole numbers (scipy's HiGHS); the rounds are k balanced assignments, each without the pairs of those
before (scipy's linear_sum_assignment), as experts.per_token trains. Told is (optimum - rounds) / (optimum - blind),
where blind is what an equal spread of every token over all experts gets: no shift of rows or columns changes it.

    benchmarks/several_experts.py [--tokens 256] [--experts 16,32] [--k 2,3] [--seeds 3] [SCORES.npy...]

Of .npy files the first --tokens rows are taken, all experts.
"""

import argparse
import statistics

import numpy as np
from scipy import sparse
from scipy.optimize import linear_sum_assignment, linprog


def optimum(scores, k):
    tokens, experts = scores.shape
    pairs = np.arange(tokens * experts)
    of_token = sparse.csr_matrix((np.ones(pairs.size), (pairs // experts, pairs)))
    of_expert = sparse.csr_matrix((np.ones(pairs.size), (pairs % experts, pairs)))
    found = linprog(
        -scores.ravel(),
        A_eq=sparse.vstack([of_token, of_expert]),
        b_eq=np.r_[np.full(tokens, k), np.full(experts, k * tokens / experts)],
        bounds=(0, 1),
        method="highs",
    )
    if found.status != 0:
        raise SystemExit(found.message)
    return -found.fun


def rounds(scores, k):
    tokens, experts = scores.shape
    left, value = scores.astype(np.float64).copy(), 0.0
    never = scores.min() - 1e3 * (scores.max() - scores.min() + 1)
    for _ in range(k):
        row, column = linear_sum_assignment(np.repeat(left, tokens // experts, axis=1), maximize=True)
        expert = column // (tokens // experts)
        value += left[row, expert].sum()
        left[row, expert] = never
    return value


def generated(kind, tokens, experts, seed):
    random = np.random.default_rng(seed)
    if kind == "gauss":
        return random.standard_normal((tokens, experts))
    width = 64  # tokens of clusters of unequal size
    centres = random.standard_normal((2 * experts, width))
    cluster = random.choice(2 * experts, tokens, p=random.dirichlet(np.full(2 * experts, 0.5)))
    return (centres[cluster] + 0.5 * random.standard_normal((tokens, width))) @ random.standard_normal((width, experts)) / 8


def loss_of(scores, k):
    best = optimum(scores, k)
    blind = k * scores.mean(axis=1).sum()
    return (best - rounds(scores, k)) / (best - blind)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="SCORES.npy")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--experts", default="16,32")
    parser.add_argument("--k", default="2,3")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    print(f"{'scores':40} {'tokens':>7} {'experts':>7} {'k':>2}  lost")
    for k in map(int, options.k.split(",")):
        for kind in ("gauss", "cluster"):
            for experts in map(int, options.experts.split(",")):
                lost = [loss_of(generated(kind, options.tokens, experts, s), k) for s in range(options.seeds)]
                print(f"{kind:40} {options.tokens:7} {experts:7} {k:2}  {100 * statistics.median(lost):.3f} %", flush=True)
        for file in options.files:
            scores = np.load(file).astype(np.float64)
            scores = scores.reshape(-1, scores.shape[-1])
            scores = scores[: options.tokens // scores.shape[1] * scores.shape[1]]
            name = file.rsplit("/", 1)[-1]
            print(f"{name:40} {len(scores):7} {scores.shape[1]:7} {k:2}  {100 * loss_of(scores, k):.3f} %", flush=True)


if __name__ == "__main__":
    main()
