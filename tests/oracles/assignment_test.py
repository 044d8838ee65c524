# SPDX-License-Identifier: Apache-2.0
"""Exact assignments against scipy's linear_sum_assignment, which sees each expert as many columns."""
import json
import os
import subprocess
import unittest

import numpy
from scipy.optimize import linear_sum_assignment

TOOL = os.path.join(os.environ["BALLAST_BUILD"], "assignment_tool")


def solve(problems):
    lines = "".join(json.dumps(problem) + "\n" for problem in problems)
    output = subprocess.run([TOOL], input=lines, text=True, stdout=subprocess.PIPE, check=True).stdout
    return [json.loads(line) for line in output.splitlines()]


def problem(scores, lower=None, upper=None):
    made = {"solver": "exact", "tokens": scores.shape[0], "experts": scores.shape[1],
            "scores": scores.ravel().tolist()}
    if upper is not None:
        made |= {"lower": [int(n) for n in lower], "upper": [int(n) for n in upper]}
    return made


def optimum(scores, lower, upper):
    """By scipy: a column for each place. Rows that score nothing take the places that may stay empty."""
    scores = scores.astype(numpy.float64)
    columns = [scores[:, [e]] for e in range(scores.shape[1]) for _ in range(upper[e])]
    optional = [place >= lower[e] for e in range(scores.shape[1]) for place in range(upper[e])]
    matrix = numpy.hstack(columns)
    fillers = matrix.shape[1] - matrix.shape[0]
    # What no optimum can afford once, however many other pairs are at their best.
    prohibitive = -1 - 4 * matrix.shape[1] * numpy.abs(scores).max(initial=1)
    matrix = numpy.vstack([matrix, numpy.tile(numpy.where(optional, 0.0, prohibitive), (fillers, 1))])
    rows, chosen = linear_sum_assignment(matrix, maximize=True)
    return matrix[rows, chosen].sum()


def random_scores(random, tokens, experts):
    sort = random.integers(6)
    if sort == 0:
        return random.integers(0, 3, (tokens, experts)).astype(numpy.float32)
    if sort == 1:
        return numpy.round(random.normal(size=(tokens, experts)) * 8).astype(numpy.float32) / 8
    if sort == 2:  # what all prefer
        return (random.normal(size=experts) + 0.05 * random.normal(size=(tokens, experts))).astype(numpy.float32)
    if sort == 3:  # clusters
        means = random.normal(size=(4, experts))
        return (means[random.integers(4, size=tokens)] + 0.3 * random.normal(size=(tokens, experts))).astype(numpy.float32)
    return random.normal(size=(tokens, experts)).astype(numpy.float32)


class AgainstScipy(unittest.TestCase):
    def expect_optimal(self, cases):
        """Cases: (scores, lower, upper)."""
        results = solve(problem(*case) for case in cases)
        self.assertEqual(len(results), len(cases))
        for i, ((scores, lower, upper), found) in enumerate(zip(cases, results)):
            with self.subTest(case=i, shape=scores.shape):
                self.assertNotIn("error", found)
                self.assertTrue(found["valid"])
                loads = numpy.bincount(found["experts"], minlength=scores.shape[1])
                self.assertTrue(((loads >= lower) & (loads <= upper)).all())
                value = scores[numpy.arange(len(scores)), found["experts"]].astype(numpy.float64).sum()
                magnitude = numpy.abs(scores).max(axis=1).astype(numpy.float64).sum()
                self.assertAlmostEqual(found["primal"], value, delta=1e-12 * magnitude)
                self.assertAlmostEqual(value, optimum(scores, lower, upper), delta=1e-9 * magnitude)
                self.assertLessEqual(found["gap"], 1e-9 * magnitude)

    def test_equal_loads(self):
        random = numpy.random.default_rng(1)
        cases = []
        for _ in range(250):
            tokens, experts = random.integers(1, 200), random.integers(1, 40)
            share, extra = divmod(tokens, experts)
            cases.append((random_scores(random, tokens, experts), numpy.full(experts, share),
                          numpy.full(experts, share + (extra > 0))))
        self.expect_optimal(cases)

    def test_uneven_loads(self):
        random = numpy.random.default_rng(2)
        cases = []
        for _ in range(150):
            tokens, experts = random.integers(1, 150), random.integers(1, 30)
            loads = numpy.bincount(random.integers(0, random.integers(1, experts + 1), tokens), minlength=experts)
            lower, upper = loads.copy(), loads.copy()
            if random.random() < 0.7:
                upper += random.integers(0, 4, experts)
            if random.random() < 0.5:
                lower = random.integers(0, lower + 1)
            cases.append((random_scores(random, tokens, experts), lower, upper))
        self.expect_optimal(cases)

    def test_larger_ones(self):
        random = numpy.random.default_rng(3)
        for tokens, experts in [(600, 70), (512, 8), (640, 64)]:
            share = tokens // experts
            scores = random.normal(size=(tokens, experts)).astype(numpy.float32)
            self.expect_optimal([(scores, numpy.full(experts, share),
                                  numpy.full(experts, share + (tokens % experts > 0)))])


if __name__ == "__main__":
    unittest.main()
