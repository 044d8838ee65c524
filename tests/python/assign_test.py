# SPDX-License-Identifier: Apache-2.0
"""ballast.assign: numpy and torch give what scipy gives, for any strides, capacities and masks; mistakes are named."""

import subprocess
import sys
import unittest

import package
import ballast
import numpy
import torch
from scipy.optimize import linear_sum_assignment


def scores_of(seed, *shape):
    return numpy.random.default_rng(seed).normal(size=shape).astype(numpy.float32)


def best_value(scores, loads):
    """The largest sum of scores with these loads, by scipy: each expert has a column for each of its places."""
    columns = numpy.repeat(scores.astype(float), loads, axis=1)
    rows, chosen = linear_sum_assignment(columns, maximize=True)
    return columns[rows, chosen].sum()


def value_of(scores, experts):
    return numpy.take_along_axis(scores.astype(float), numpy.asarray(experts)[:, None], 1).sum()


class Assign(unittest.TestCase):
    def check(self, scores, found, loads):
        self.assertEqual(numpy.bincount(found.experts, minlength=scores.shape[1]).tolist(), list(loads))
        self.assertEqual(list(found.loads), list(loads))
        best = best_value(scores, loads)
        self.assertAlmostEqual(value_of(scores, found.experts), best, delta=1e-6 * abs(best))
        self.assertTrue(found.certificate.valid)
        self.assertAlmostEqual(found.certificate.primal, best, delta=1e-6 * abs(best))
        self.assertEqual(found.certificate.gap, 0)
        self.assertEqual(found.certificate.relative_gap, 0)

    def test_the_optimum_of_arrays_and_tensors(self):
        scores = scores_of(1, 96, 8)
        for given in (scores, torch.from_numpy(scores), scores.astype(float), torch.from_numpy(scores).double()):
            with self.subTest(type(given), dtype=given.dtype):
                self.check(scores, ballast.assign(given), [12] * 8)

    def test_results_are_what_was_given(self):
        tensors, arrays = ballast.assign(torch.from_numpy(scores_of(1, 6, 2))), ballast.assign(scores_of(1, 6, 2))
        self.assertEqual(tensors.experts.dtype, torch.int32)
        self.assertEqual(tensors.prices.dtype, torch.float64)
        self.assertEqual((arrays.experts.dtype, arrays.prices.dtype), (numpy.int32, numpy.float64))
        self.assertIsInstance(tensors.certificate.primal, float)
        self.assertEqual(arrays.experts.tolist(), tensors.experts.tolist())

    def test_prices_explain_the_choice(self):
        scores = scores_of(2, 64, 4)
        found = ballast.assign(scores)
        left = scores - found.prices
        self.assertTrue(numpy.all(left[numpy.arange(64), found.experts] >= left.max(1) - 1e-6))

    def test_half_precision_is_taken_as_it_is(self):
        for dtype in (torch.float16, torch.bfloat16):
            scores = torch.from_numpy(scores_of(3, 48, 6)).to(dtype)
            self.check(scores.float().numpy(), ballast.assign(scores), [8] * 6)
        scores = scores_of(3, 48, 6).astype(numpy.float16)
        self.check(scores, ballast.assign(scores), [8] * 6)

    def test_any_strides(self):
        whole = scores_of(4, 3, 40, 10)
        views = {"transposed": whole[0].T.copy().T, "reversed": whole[0, ::-1, ::-1], "every other": whole[0, ::2, ::2],
                 "of a record": numpy.rec.fromarrays([whole[0], whole[0].astype("u1")], names="a,b").a}
        for name, view in views.items():
            with self.subTest(name):
                self.assertEqual(ballast.assign(view).experts.tolist(), ballast.assign(view.copy()).experts.tolist())
        tensor = torch.from_numpy(whole)
        for view in (tensor[0].t().contiguous().t(), tensor[1, ::2, ::3], tensor.transpose(0, 1)[::4].transpose(0, 1)):
            self.assertEqual(ballast.assign(view).experts.tolist(), ballast.assign(view.clone()).experts.tolist())
        expanded = tensor[0, 0].expand(40, 10)
        self.assertEqual(ballast.assign(expanded).loads.tolist(), [4] * 10)

    def test_several_problems_are_solved_each_by_itself(self):
        scores = scores_of(5, 4, 24, 3)
        for given in (scores, torch.from_numpy(scores)):
            found = ballast.assign(given)
            self.assertEqual(found.experts.shape, (4, 24))
            self.assertEqual(len(found.certificate.primal), 4)
            for p in range(4):
                self.assertEqual(found.experts[p].tolist(), ballast.assign(scores[p]).experts.tolist())
                self.assertEqual(float(found.certificate.primal[p]), ballast.assign(scores[p]).certificate.primal)

    def test_experts_that_do_not_divide_the_tokens(self):
        found = ballast.assign(scores_of(6, 10, 4))
        self.assertEqual(sorted(found.loads), [2, 2, 3, 3])
        best = max(best_value(scores_of(6, 10, 4), loads) for loads in
                   ([2, 2, 3, 3], [2, 3, 2, 3], [2, 3, 3, 2], [3, 2, 2, 3], [3, 2, 3, 2], [3, 3, 2, 2]))
        self.assertAlmostEqual(found.certificate.primal, best, delta=1e-5)

    def test_capacities(self):
        scores = scores_of(7, 20, 4)
        for capacities in ([8, 2, 0, 10], numpy.array([8, 2, 0, 10]), torch.tensor([8, 2, 0, 10])):
            for given in (scores, torch.from_numpy(scores)):
                self.check(scores, ballast.assign(given, capacities=capacities), [8, 2, 0, 10])

    def test_a_mask_of_tokens_is_padding(self):
        scores, mask = scores_of(8, 12, 3), numpy.arange(12) % 4 != 0
        for given, told in ((scores, mask), (torch.from_numpy(scores), torch.from_numpy(mask)), (scores, mask.tolist())):
            found = ballast.assign(given, mask=told)
            self.assertEqual(list(found.loads), [4, 4, 4])
            others = scores.copy()
            others[~mask] = 0
            self.assertAlmostEqual(found.certificate.primal, best_value(others, [4, 4, 4]), delta=1e-5)

    def test_a_mask_of_pairs_forbids(self):
        scores, mask = scores_of(9, 12, 3), numpy.ones((12, 3), bool)
        mask[:3, 0] = mask[5, 1:] = False
        for given, told in ((scores, mask), (torch.from_numpy(scores), torch.from_numpy(mask))):
            found = ballast.assign(given, mask=told)
            self.assertTrue(mask[numpy.arange(12), numpy.asarray(found.experts)].all())
            self.assertAlmostEqual(found.certificate.primal, best_value(numpy.where(mask, scores, -1e3), [4, 4, 4]), delta=1e-4)

    def test_mistakes_are_named(self):
        scores = scores_of(10, 6, 2)
        nan = scores.copy()
        nan[4, 1] = numpy.nan
        mistakes = [
            (dict(scores=nan), "token 4 for expert 1"), (dict(scores=scores[0]), "want \\[tokens, experts\\]"),
            (dict(scores=scores, capacities=[1, 2]), "room for 3 tokens"), (dict(scores=scores, capacities=[3]), "each of the 2"),
            (dict(scores=scores, capacities=[3.5, 3]), "whole numbers"), (dict(scores=scores, mask=[1, 0]), "does not fit"),
            (dict(scores=scores, mask=numpy.zeros((6, 2), bool)), "forbidden"), (dict(scores=scores, gap=2), "gap of 2"),
            (dict(scores=scores[:, :0]), "no experts")]
        for arguments, words in mistakes:
            with self.subTest(words):
                self.assertRaisesRegex(ValueError, words, ballast.assign, **arguments)
                arguments["scores"] = torch.from_numpy(numpy.ascontiguousarray(arguments["scores"]))
                self.assertRaisesRegex(ValueError, words, ballast.assign, **arguments)
        self.assertRaisesRegex(ValueError, "problem 1: .*token 4", ballast.assign, numpy.stack([scores, nan]))

    def test_numpy_needs_no_torch(self):
        program = ("import sys, numpy, ballast; ballast.assign(numpy.eye(4, dtype='f4'));"
                   "sys.exit('torch' in sys.modules)")
        path = {"PYTHONPATH": str(package.BUILD / "python"), "PATH": "/usr/bin:/bin"}
        subprocess.run([sys.executable, "-c", program], env=path, check=True)

    def test_another_torch_is_refused_by_name(self):
        program = ("import sys, types; torch = types.ModuleType('torch'); torch.__version__ = '1.2.3'; torch.__file__ = '/x/y.py';"
                   "sys.modules['torch'] = torch; import ballast\ntry: ballast.nn\nexcept ImportError as e: print(e)")
        path = {"PYTHONPATH": str(package.BUILD / "python"), "PATH": "/usr/bin:/bin"}
        told = subprocess.run([sys.executable, "-c", program], env=path, check=True, capture_output=True, text=True).stdout
        self.assertRegex(told, "built for torch 2.*this is torch 1.2.3")


if __name__ == "__main__":
    unittest.main()
