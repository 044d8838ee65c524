# SPDX-License-Identifier: Apache-2.0
"""`ballast bench assignment` measures what it says, on generated scores and files. Nothing here looks at the times."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import numpy

BALLAST = pathlib.Path(os.environ["BALLAST_BUILD"]) / "ballast"


def run(*arguments, **options):
    process = subprocess.run([BALLAST, "bench", "assignment", *map(str, arguments)],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
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
        self.assertEqual(found["gap"], 0)
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
                    self.assertLessEqual(result["relative_gap"], 1e-8)
            self.assertAlmostEqual(case["auction_over_exact"] * results["exact", "cold"]["milliseconds"],
                                   results["auction", "cold"]["milliseconds"])

    def test_cold_starts_alone(self):
        found = self.measured("--kinds", "cluster", "--sizes", "64,4", "--solvers", "exact", "greedy", "--cold",
                              "--repeats", 1, "--no-scipy")
        self.assertEqual([(r["solver"], r["start"]) for r in found["cases"][0]["results"]],
                         [("exact", "cold"), ("greedy", "cold")])

    def test_files_whole_and_by_odd_rows(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "scores.npy")
            numpy.save(path, numpy.random.default_rng(1).normal(size=(61, 4)).astype(numpy.float16))
            found = self.measured("--scores", path, "--solvers", "exact", "--repeats", 1, "--no-scipy")
        self.assertEqual([(c["scores"], c["part"], c["tokens"], len(c["results"])) for c in found["cases"]],
                         [(path, "all", 61, 1), (path, "odd rows", 30, 4)])

    def test_several_problems_at_a_time(self):
        exact = ["--solvers", "exact", "--cold", "--repeats", 1, "--python", sys.executable]
        found = self.measured("--kinds", "gauss", "--sizes", "64,4", "--problems", 3, *exact)
        case, = found["cases"]
        self.assertEqual((found["problems"], case["tokens"], case["experts"]), (3, 64, 4))
        result, = case["results"]  # scipy solves single problems alone
        self.assertTrue(result["valid"])
        self.assertLessEqual(result["relative_gap"], 1e-8)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "scores.npy")
            numpy.save(path, numpy.random.default_rng(1).normal(size=(61, 4)).astype(numpy.float16))
            found = self.measured("--scores", path, "--problems", 3, *exact)
            self.assertEqual([(c["part"], c["tokens"]) for c in found["cases"]], [("all", 20), ("odd rows", 10)])
            self.assertIn("holds 61 tokens; want at least 62", self.refused("--scores", path, "--problems", 31, *exact))

    def test_scipy_finds_the_same_optimum(self):
        found = self.measured("--kinds", "gauss", "cluster", "--sizes", "60,4", "50,7", "--solvers", "exact",
                              "--repeats", 1, "--python", sys.executable)
        self.assertRegex(found["scipy"], r"^\d+\.\d+")
        for case in found["cases"]:
            scipy = [r for r in case["results"] if r["solver"] == "scipy"]
            self.assertEqual(len(scipy), 1)
            self.assertLessEqual(scipy[0]["relative_gap"], 1e-9)
            self.assertGreater(case["scipy_over_exact"], 0)

    def test_python_takes_no_module_from_the_current_folder_or_where_everyone_writes(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ["json", "numpy", "scipy"]:
                pathlib.Path(folder, f"{name}.py").write_text(f"raise SystemExit('the planted {name} runs')")
            code, _, err = run("--kinds", "gauss", "--sizes", "60,4", "--solvers", "exact", "--repeats", 1, "--python", sys.executable,
                               cwd=folder, env={**os.environ, "TMPDIR": folder})
            self.assertEqual(code, 0, err)

    def test_waiting_threads_sleep_soon_unless_the_user_chose(self):
        waiting = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
        with tempfile.TemporaryDirectory() as folder:
            python, seen = pathlib.Path(folder, "a python"), pathlib.Path(folder, "seen")
            python.write_text(f'#!/bin/sh\necho "$GOMP_SPINCOUNT" >"{seen}"\n')
            python.chmod(0o755)
            for given, spins in [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "passive"}, "")]:
                # What the program starts has its environment; that it was named shows that all arguments arrived.
                _, _, err = run("--kinds", "gauss", "--sizes", "8,2", "--python", python, env={**waiting, **given})
                self.assertIn(str(python), err)
                self.assertEqual(seen.read_text().strip(), spins)

    def test_all_are_measured_by_the_best_bound(self):
        gaps = {}
        for others in [["greedy", "exact", "auction"], ["greedy", "auction"]]:
            found = self.measured("--kinds", "gauss", "--sizes", "64,4", "--solvers", *others, "--repeats", 1,
                                  "--python", sys.executable)
            case, = found["cases"]
            results = {(r["solver"], r["start"]): r["relative_gap"] for r in case["results"]}
            self.assertEqual(case["bound_by"], others[1])
            self.assertIsNone(results["greedy", "cold"], "shares are not kept")
            # An optimum is at least as near to a bound as the result that proved it, up to rounding.
            self.assertLessEqual(results["scipy", "cold"], results[others[1], "cold"] + 1e-12)
            gaps[case["bound_by"]] = results["auction", "cold"]
        # Beside the exact solver it is what the auction really lacks, less than what its own prices leave open.
        self.assertGreater(gaps["exact"], 0)
        self.assertLess(gaps["exact"], gaps["auction"])

    def test_bad_files_are_refused_before_anything_is_measured(self):
        with tempfile.TemporaryDirectory() as folder:
            good, bad = os.path.join(folder, "good.npy"), os.path.join(folder, "bad.npy")
            scores = numpy.random.default_rng(1).normal(size=(64, 4)).astype(numpy.float32)
            numpy.save(good, scores)
            broken = scores.copy()
            broken[37, 2] = numpy.nan
            for values, words in [(None, "bad.npy"), (numpy.ones(3), "two dimensions"), (scores[:0], "holds 0 tokens"),
                                  (scores[:1], "holds 1 tokens; want at least 2"),
                                  (broken, f"{bad}: the score of token 37 for expert 2 is not a number")]:
                if values is not None:
                    numpy.save(bad, values)
                code, out, err = run("--scores", good, bad, "--solvers", "greedy", "--repeats", 1, "--no-scipy")
                self.assertEqual((code, out), (2, ""), err)
                self.assertIn(words, err)
            self.assertIn("--non-finite", err)

    def test_ctrl_c_leaves_nothing_on_stdout(self):
        process = subprocess.Popen([BALLAST, "bench", "assignment", "--json", "--repeats", "1000000", "--python", sys.executable],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        self.assertIn(b"cold ms", process.stderr.readline())
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the Python beside it as well
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out), (2, b""), err)
        self.assertIn(b"stopped before the end", err)
        self.assertNotIn(b"Traceback", err)

    def test_threads_are_at_most_the_cores(self):
        size = ["--kinds", "gauss", "--sizes", "64,4", "--repeats", 1, "--no-scipy"]
        self.assertEqual(self.measured(*size, "--threads", 10**6)["threads"], self.measured(*size, "--threads", 0)["threads"])

    def test_what_people_see(self):
        code, out, _ = run("--kinds", "gauss", "--sizes", "64,4", "--repeats", 1, "--no-scipy")
        self.assertEqual(code, 0)
        for words in ["cold ms", "warm", "noisy", "random", "short %", "exact", "auction", "sinkhorn", "greedy"]:
            self.assertIn(words, out)

    def test_the_auction_is_left_out_where_it_takes_seconds_unless_named(self):
        size = ["--kinds", "all-equal", "--sizes", "16500,256", "--repeats", 1, "--no-scipy"]
        solvers = {r["solver"] for r in self.measured(*size)["cases"][0]["results"]}
        self.assertEqual(solvers, {"exact", "sinkhorn", "greedy"})

    def test_mistakes(self):
        for arguments, words in [(["--kinds", "gaus"], "gaus"), (["--sizes", "64"], "TOKENS,EXPERTS"),
                                 (["--sizes", "64,0"], "TOKENS,EXPERTS"), (["--sizes", "64,4,2"], "TOKENS,EXPERTS"),
                                 (["--solvers", "best"], "best"),
                                 (["--solvers", "exact", "auction", "exact", "--kinds", "gauss", "--sizes", "8,2"], "exact twice"),
                                 (["--seed", "-1"], "--seed: \"-1\" is not a whole number of at least 0"), (["--repeats", "0"], "--rounds"),
                                 (["--problems", "0"], "--problems"),
                                 (["--scores", "missing.npy"], "missing.npy"), (["--device", "tpu"], "--device"),
                                 (["--python", "/bin/false", "--kinds", "gauss", "--sizes", "8,2"], "/bin/false")]:
            with self.subTest(arguments=arguments):
                self.assertIn(words, self.refused(*arguments))


if __name__ == "__main__":
    unittest.main()
