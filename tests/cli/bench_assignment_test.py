# SPDX-License-Identifier: Apache-2.0
"""`ballast bench assignment` measures what it says, on generated scores and files. Nothing here looks at the times."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy

BALLAST = pathlib.Path(os.environ["BALLAST_BUILD"]) / "ballast"


def run(*arguments):
    process = subprocess.run([BALLAST, "bench", "assignment", *map(str, arguments)],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return process.returncode, process.stdout.decode(), process.stderr.decode()


class BenchAssignment(unittest.TestCase):
    def measured(self, *arguments):
        code, out, err = run(*arguments, "--json")
        self.assertEqual(code, 0, err)
        return json.loads(out)

    def refused(self, *arguments):
        code, out, err = run(*arguments)
        self.assertEqual(code, 2, err)
        return err

    def test_kinds_sizes_starts_and_solvers(self):
        found = self.measured("--kinds", "gauss", "common", "--sizes", "64,4", "96,5", "--repeats", 2, "--no-scipy")
        self.assertEqual((found["device"], found["threads"], found["repeats"], found["scipy"]), ("cpu", 1, 2, None))
        self.assertEqual([(c["scores"], c["tokens"], c["experts"]) for c in found["cases"]],
                         [("gauss", 64, 4), ("common", 64, 4), ("gauss", 96, 5), ("common", 96, 5)])
        for case in found["cases"]:
            results = {(r["solver"], r["start"]): r for r in case["results"]}
            self.assertEqual({start for solver, start in results if solver == "exact"},
                             {"cold", "warm", "noisy", "random"})
            for solver in ["auction", "sinkhorn", "greedy"]:
                self.assertIn((solver, "cold"), results)
            for (solver, _), result in results.items():
                self.assertGreater(result["fastest_ms"], 0)
                self.assertGreaterEqual(result["milliseconds"], result["fastest_ms"])
                self.assertGreaterEqual(result["slowest_ms"], result["milliseconds"])
                self.assertEqual(result["runs"], 2)
                if solver == "exact":
                    self.assertTrue(result["valid"])
                    self.assertLessEqual(result["relative_gap"], 1e-9)
            self.assertAlmostEqual(case["auction_over_exact"] * results["exact", "cold"]["milliseconds"],
                                   results["auction", "cold"]["milliseconds"])

    def test_files_whole_and_by_odd_rows(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "scores.npy")
            numpy.save(path, numpy.random.default_rng(1).normal(size=(61, 4)).astype(numpy.float16))
            found = self.measured("--scores", path, "--solvers", "exact", "--repeats", 1, "--no-scipy")
        self.assertEqual([(c["scores"], c["part"], c["tokens"], len(c["results"])) for c in found["cases"]],
                         [(path, "all", 61, 1), (path, "odd rows", 30, 4)])

    def test_scipy_finds_the_same_optimum(self):
        found = self.measured("--kinds", "gauss", "cluster", "--sizes", "60,4", "50,7", "--solvers", "exact",
                              "--repeats", 1, "--python", sys.executable)
        self.assertRegex(found["scipy"], r"^\d+\.\d+")
        for case in found["cases"]:
            scipy = [r for r in case["results"] if r["solver"] == "scipy"]
            self.assertEqual(len(scipy), 1)
            self.assertLessEqual(abs(scipy[0]["relative_gap"]), 1e-9)
            self.assertGreater(case["scipy_over_exact"], 0)

    def test_what_people_see(self):
        code, out, _ = run("--kinds", "gauss", "--sizes", "64,4", "--repeats", 1, "--no-scipy")
        self.assertEqual(code, 0)
        for words in ["cold ms", "warm", "noisy", "random", "gap %", "exact", "auction", "sinkhorn", "greedy"]:
            self.assertIn(words, out)

    def test_the_auction_is_left_out_where_it_takes_seconds_unless_named(self):
        size = ["--kinds", "all-equal", "--sizes", "16500,256", "--repeats", 1, "--no-scipy"]
        solvers = {r["solver"] for r in self.measured(*size)["cases"][0]["results"]}
        self.assertEqual(solvers, {"exact", "sinkhorn", "greedy"})

    def test_mistakes(self):
        for arguments, words in [(["--kinds", "gaus"], "gaus"), (["--sizes", "64"], "TOKENS,EXPERTS"),
                                 (["--sizes", "64,0"], "TOKENS,EXPERTS"), (["--sizes", "64,4,2"], "TOKENS,EXPERTS"),
                                 (["--solvers", "best"], "best"), (["--repeats", "0"], "--repeats"),
                                 (["--scores", "missing.npy"], "missing.npy"), (["--device", "tpu"], "--device"),
                                 (["--python", "/bin/false", "--kinds", "gauss", "--sizes", "8,2"], "/bin/false")]:
            with self.subTest(arguments=arguments):
                self.assertIn(words, self.refused(*arguments))


if __name__ == "__main__":
    unittest.main()
