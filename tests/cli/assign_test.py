# SPDX-License-Identifier: Apache-2.0
"""`ballast assign` as people and programs use it."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import numpy
import safetensors.numpy

BALLAST = pathlib.Path(os.environ["BALLAST_BUILD"]) / "ballast"
GENERATED = ["--kind", "gauss", "--tokens", "60", "--experts", "4"]


def run(*arguments):
    process = subprocess.run([BALLAST, "assign", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return process.returncode, process.stdout.decode(), process.stderr.decode()


class Assign(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.out = self.folder / "experts.npy"
        # Best: tokens 0 and 1 to expert 0, 2 and 3 to expert 1: 5 + 4 + 2 + 2.
        self.scores = numpy.array([[5, 1], [4, 1], [3, 2], [0, 2]], dtype=numpy.float32)

    def save(self, values, name="scores.npy"):
        path = self.folder / name
        numpy.save(path, values)
        return path

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def answer(self, *arguments):
        code, out, err = run(*arguments, "--json")
        self.assertEqual((code, out.count("\n"), err), (0, 1, ""))
        return json.loads(out)

    def experts(self, *arguments):
        self.answer(*arguments, "--out", self.out)
        return numpy.load(self.out).tolist()

    def refused(self, *arguments):
        code, out, err = run(*arguments)
        self.assertEqual((code, out), (2, ""), err)
        self.assertTrue(err.startswith("ballast: "), err)
        return err

    def test_the_optimum_is_found_and_proved(self):
        found = self.answer("--scores", self.save(self.scores))
        self.assertEqual(list(found)[:4], ["tokens", "experts", "solver", "device"])
        self.assertEqual((found["tokens"], found["experts"], found["solver"], found["device"]), (4, 2, "exact", "cpu"))
        self.assertEqual((found["valid"], found["primal"], found["dual"], found["gap"]), (True, 13, 13, 0))
        self.assertEqual((found["smallest_load"], found["largest_load"], found["replaced_scores"]), (2, 2, 0))
        self.assertGreater(found["milliseconds"], 0)
        self.assertEqual(found["repeats"], 0)
        again = self.answer("--scores", self.save(self.scores), "--repeat", 5)
        self.assertEqual((again["primal"], again["repeats"]), (13, 5))
        self.assertGreater(again["milliseconds"], 0)

    def test_experts_are_written_for_numpy_and_as_text(self):
        path = self.save(self.scores)
        self.assertEqual(self.experts("--scores", path), [0, 0, 1, 1])
        self.assertEqual(numpy.load(self.out).dtype, numpy.int32)
        self.answer("--scores", path, "--out", self.folder / "experts.csv")
        self.assertEqual((self.folder / "experts.csv").read_text(), "0\n0\n1\n1\n")

    def test_the_same_scores_in_every_format(self):
        wanted = [0, 0, 1, 1]
        for dtype in ["float16", "float32", "float64", ">f4"]:
            for order in "CF":
                path = self.save(numpy.array(self.scores, dtype=dtype, order=order))
                self.assertEqual(self.experts("--scores", path), wanted, (dtype, order))
        for name, text in [("a.csv", "x,y\n5,1\n4,1\n3,2\n0,2\n"), ("b.csv", "5;1\n4;1\n3;2\n0;2"),
                           ("c.txt", "5 1\n4 1\n3 2\n0 2\n")]:
            self.assertEqual(self.experts("--scores", self.write(name, text)), wanted, name)
        tensors = self.folder / "a.safetensors"
        safetensors.numpy.save_file({"router": self.scores, "other": self.scores[::-1].copy()}, tensors)
        self.assertEqual(self.experts("--scores", f"{tensors}:router"), wanted)
        self.assertEqual(self.experts("--scores", f"{tensors}:other"), wanted[::-1])
        self.assertIn("name one as", self.refused("--scores", tensors))

    def test_every_solver_and_kind(self):
        for solver in ["exact", "auction", "sinkhorn", "greedy"]:
            found = self.answer("--kind", "cluster", "--tokens", 500, "--experts", 7, "--solver", solver)
            self.assertEqual(found["solver"], solver)
            self.assertEqual(found["valid"], solver != "greedy")
            self.assertEqual(found["proved_optimal"], solver == "exact")
            if solver == "exact":
                optimum = found["primal"]
                self.assertLessEqual(found["relative_gap"], 1e-8)
            elif found["valid"]:
                self.assertLessEqual(found["primal"], optimum + 1e-6)
                self.assertGreaterEqual(found["dual"], optimum - 1e-6)
        for kind in ["gauss", "cluster", "common", "near-duplicates", "padded", "quantised", "three-values",
                     "all-equal", "equal-rows", "one-preferred", "low-rank", "outliers"]:
            found = self.answer("--kind", kind, "--tokens", 300, "--experts", 6)
            self.assertTrue(found["proved_optimal"] and found["relative_gap"] <= 1e-9, kind)

    def test_the_gap_is_measured_from_a_blind_spread_and_no_shift_flatters_it(self):
        scores = numpy.random.default_rng(3).integers(0, 1000, (60, 5)).astype(numpy.float32)
        plain, shifted = self.folder / "plain.npy", self.folder / "shifted.npy"
        numpy.save(plain, scores)
        numpy.save(shifted, scores + 100_000)
        for solver in ["exact", "auction", "sinkhorn"]:
            found = self.answer("--scores", plain, "--solver", solver)
            self.assertAlmostEqual(found["blind"], float(scores.mean(1, dtype=float).sum()), 6)
            self.assertAlmostEqual(found["relative_gap"], found["gap"] / (found["dual"] - found["blind"]))
            self.assertEqual(found["relative_gap"] == 0, solver == "exact")
        moved = self.answer("--scores", shifted)
        self.assertTrue(moved["proved_optimal"])
        self.assertEqual(moved["relative_gap"], 0)

    def test_a_gap_can_be_allowed_and_the_cpu_is_exact_all_the_same(self):
        found = self.answer(*GENERATED, "--gap", 0.1)
        self.assertTrue(found["proved_optimal"])
        self.assertEqual(found["primal"], self.answer(*GENERATED)["primal"])
        self.assertIn("--gap is for --solver exact", self.refused(*GENERATED, "--solver", "auction", "--gap", 0.1))
        for wrong in ["0.6", "-0.1", "nan", "much"]:
            self.assertIn("is not a number from 0 to 0.5", self.refused(*GENERATED, f"--gap={wrong}"))

    def test_generated_scores_depend_on_seed_and_batch(self):
        primal = {self.answer(*GENERATED, *more)["primal"]
                  for more in [[], ["--seed", 1], ["--seed", 1, "--batch", 3], ["--seed", 0]]}
        self.assertEqual(len(primal), 3)

    def test_uneven_tokens_no_tokens_one_expert(self):
        found = self.answer("--kind", "gauss", "--tokens", 50, "--experts", 8)
        self.assertEqual((found["valid"], found["smallest_load"], found["largest_load"]), (True, 6, 7))
        for solver in ["exact", "auction", "sinkhorn", "greedy"]:
            none = self.answer("--kind", "gauss", "--tokens", 0, "--experts", 8, "--solver", solver)
            self.assertEqual((none["valid"], none["primal"], none["gap"]), (True, 0, 0), solver)
            one = self.answer("--kind", "gauss", "--tokens", 9, "--experts", 1, "--solver", solver)
            self.assertEqual((one["valid"], one["largest_load"]), (True, 9), solver)
        self.assertEqual(self.experts("--scores", self.save(numpy.zeros((0, 3), numpy.float32))), [])
        fewer = self.answer("--kind", "gauss", "--tokens", 3, "--experts", 8)
        self.assertEqual((fewer["valid"], fewer["largest_load"]), (True, 1))

    def test_capacities_as_a_list_or_a_file(self):
        path = self.save(self.scores)
        self.assertEqual(self.experts("--scores", path, "--capacities", "3,1"), [0, 0, 0, 1])
        self.assertEqual(self.experts("--scores", path, "--capacities", " 4, 4 "), [0, 0, 0, 1])
        self.assertEqual(self.experts("--scores", path, "--capacities", "0,4"), [1, 1, 1, 1])
        for file in [self.write("capacities.csv", "1,3\n"), self.write("capacities.txt", "1\n3\n"),
                     self.save(numpy.array([1, 3]), "capacities.npy")]:
            self.assertEqual(self.experts("--scores", path, "--capacities", file), [0, 1, 1, 1])

    def test_capacities_that_do_not_fit(self):
        path = self.save(self.scores)
        for capacities, words in [("1,2", "room for 3"), ("2,-1", "negative"), ("1,2,3", "names 3 experts"),
                                  ("4", "names 1 experts"), ("2,,2", "not a whole number"), ("", "not a whole number"),
                                  ("4,", "not a whole number"), (",4", "not a whole number"),
                                  ("2,2.5", "2,2.5"), ("missing.csv", "no such file"),
                                  ("1e3,4", "\"1e3,4\" is not a list of whole numbers"),
                                  ("99999999999999999999,2", "not a whole number")]:
            self.assertIn(words, self.refused("--scores", path, "--capacities", capacities))

    def test_padding_does_not_count(self):
        scores = self.scores.copy()
        scores[1] = numpy.nan
        mask = self.write("mask.csv", "1\n0\n1\n1\n")
        path = self.save(scores)
        self.assertEqual(self.experts("--scores", path, "--mask", mask), [0, 1, 0, 1])
        self.assertEqual(self.answer("--scores", path, "--mask", mask)["primal"], 10)
        self.assertEqual(self.experts("--scores", path, "--mask", self.save(numpy.array([1, 0, 1, 1], bool), "m.npy")),
                         [0, 1, 0, 1])
        self.assertIn("holds 2 numbers, and there are 4 tokens",
                      self.refused("--scores", path, "--mask", self.write("short.csv", "1\n0\n")))
        self.assertIn("token 2 has 7", self.refused("--scores", path, "--mask", self.write("odd.csv", "1\n0\n7\n1\n")))

    def test_scores_that_are_not_finite(self):
        scores = self.scores.copy()
        scores[2, 1] = numpy.nan
        path = self.save(scores)
        for policy in ["reject", "forbid"]:
            message = self.refused("--scores", path, "--non-finite", policy)
            self.assertIn(f"{path}: the score of token 2 for expert 1 is not a number", message)
            self.assertIn("--non-finite lowest", message)
        found = self.answer("--scores", path, "--non-finite", "lowest")
        self.assertEqual((found["replaced_scores"], found["valid"]), (1, True))
        scores[2, 1] = -numpy.inf
        self.assertIn("token 2 for expert 1", self.refused("--scores", self.save(scores)))
        self.assertEqual(self.experts("--scores", path, "--non-finite", "forbid"), [0, 1, 0, 1])
        scores[0, 1] = scores[1, 1] = -numpy.inf
        self.assertIn("forbid", self.refused("--scores", self.save(scores), "--non-finite", "forbid"))

    def test_prices_are_written_and_started_from(self):
        for name in ["prices.npy", "prices.csv"]:
            prices = self.folder / name
            cold = self.answer("--kind", "cluster", "--tokens", 900, "--experts", 9, "--prices-out", prices)
            warm = self.answer("--kind", "cluster", "--tokens", 900, "--experts", 9, "--start-prices", prices)
            self.assertAlmostEqual(cold["primal"], warm["primal"], delta=1e-9 * abs(cold["primal"]))
            self.assertIn("9 prices", self.refused(*GENERATED, "--start-prices", prices))
        self.assertEqual(len((self.folder / "prices.csv").read_text().split()), 9)
        self.assertIn("price of expert 1", self.refused(
            *GENERATED, "--start-prices", self.write("nan.csv", "0\nnan\n1\n2\n")))

    def test_threads_do_not_change_the_result(self):
        found = [self.experts("--kind", "cluster", "--tokens", 3000, "--experts", 16, "--threads", n) for n in [1, 3, 0]]
        self.assertEqual(found[0], found[1])
        self.assertEqual(found[0], found[2])
        for solver in ["exact", "auction", "sinkhorn", "greedy"]:
            many = self.answer("--kind", "gauss", "--tokens", 9000, "--experts", 128, "--solver", solver, "--threads", 10**15)
            self.assertEqual(many["tokens"], 9000)

    def test_what_people_see(self):
        code, out, err = run(*GENERATED, "--out", self.out)
        self.assertEqual((code, err), (0, ""))
        for words in ["60 tokens, 4 experts", "solver exact on cpu", "ms (a first call)", "sum of scores", "nothing is better", "yes",
                      "15 to 15", f"written to {self.out}"]:
            self.assertIn(words, out)
        self.assertIn("(median of 3 calls)", run(*GENERATED, "--repeat", 3)[1])
        self.assertIn("no: some experts", run(*GENERATED, "--solver", "greedy")[1])
        inexact = run("--kind", "cluster", "--tokens", 500, "--experts", 16, "--solver", "auction")[1]
        self.assertRegex(inexact, r"may lack       up to .* by the prices of auction")
        self.assertNotIn("gap", inexact)

    def test_help_has_kinds_formats_and_examples(self):
        code, out, _ = run("--help")
        self.assertEqual(code, 0)
        for words in ["near-duplicates", "one-preferred", ".safetensors", "Examples", "--capacities", "JSON keys", "greedy"]:
            self.assertIn(words, out)

    def test_flags_that_are_wrong_or_do_not_go_together(self):
        path = self.save(self.scores)
        for arguments, words in [
                ([], "--scores FILE or --kind NAME"),
                (["--scores", path, "--kind", "gauss"], "either"),
                (["--kind", "gauss"], "--tokens and --experts"),
                (["--kind", "gauss", "--tokens", "4"], "--tokens and --experts"),
                (["--scores", path, "--seed", "1"], "--seed is for --kind"),
                (["--kind", "gaussian", "--tokens", "4", "--experts", "2"], "near-duplicates"),
                (["--kind", "gauss", "--tokens", "-4", "--experts", "2"], "--tokens: \"-4\" is not a whole number of at least 0"),
                (["--kind", "gauss", "--tokens", "4", "--experts", "0"], "--experts: \"0\" is not a whole number of at least 1"),
                (["--kind", "gauss", "--tokens", "4.5", "--experts", "2"], "--tokens"),
                (["--kind", "gauss", "--tokens", str(2**60), "--experts", "2"], "more than this machine can hold"),
                ([*GENERATED, "--solver", "best"], "sinkhorn"),
                ([*GENERATED, "--device", "tpu"], "--device"),
                ([*GENERATED, "--non-finite", "ignore"], "--non-finite"),
                ([*GENERATED, "--threads", "-1"], "--threads"),
                ([*GENERATED, "--repeat", "-1"], "--repeat"),
                ([*GENERATED, "--seed", "x"], "--seed"),
                ([*GENERATED, "--seed", "-1"], "--seed"),
                ([*GENERATED, "--out", "experts.bin"], ".npy or .csv"),
                ([*GENERATED, "--prices-out", "prices"], ".npy or .csv"),
                ([*GENERATED, "--out", self.folder / "none" / "experts.npy"], "none"),
                ([*GENERATED, "--out", self.folder / "a.csv", "--prices-out", self.folder / "." / "b" / ".." / "a.csv"],
                 "the same file"),
                ([*GENERATED, "--out", "both.csv", "--prices-out", "./both.csv"], "the same file"),
                ([*GENERATED, "--colour"], "--colour"),
                ([*GENERATED, "more"], "more")]:
            with self.subTest(arguments=arguments):
                self.assertIn(words, self.refused(*arguments))

    def test_a_gpu_that_is_not_there_is_said_so(self):
        if os.path.exists("/dev/nvidiactl"):
            self.assertTrue(self.answer(*GENERATED, "--device", "cuda")["valid"])
        else:
            self.assertIn("no GPU can be used", self.refused(*GENERATED, "--device", "cuda"))

    def test_files_that_are_no_scores(self):
        whole = self.save(self.scores).read_bytes()
        for name, content in [("empty.npy", b""), ("short.npy", whole[:-1]), ("text.npy", b"5,1\n"),
                              ("empty.csv", b""), ("odd.csv", b"1,2\n3\n"), ("empty.safetensors", b""),
                              ("short.safetensors", b"\xff" * 20), ("scores.xlsx", b"PK")]:
            path = self.folder / name
            path.write_bytes(content)
            self.assertIn(name, self.refused("--scores", path))
        for values, words in [(numpy.ones(4), "two dimensions"), (numpy.ones((2, 0)), "0 experts"),
                              (numpy.ones((2, 2, 2)), "[2, 2, 2]"), (numpy.full((2, 2), 1e300), "token 0 for expert 0")]:
            self.assertIn(words, self.refused("--scores", self.save(values)))
        self.assertIn("missing.npy", self.refused("--scores", self.folder / "missing.npy"))
        self.assertIn(str(self.folder), self.refused("--scores", self.folder))

    def test_an_output_that_fails_leaves_the_old_file(self):
        self.out.write_text("old")
        self.refused("--scores", self.folder / "missing.npy", "--out", self.out)
        self.assertEqual(self.out.read_text(), "old")


if __name__ == "__main__":
    unittest.main()
