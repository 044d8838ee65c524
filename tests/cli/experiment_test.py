# SPDX-License-Identifier: Apache-2.0
"""`ballast experiment`: whole small ones, killed and gone on with, refused changes, systems that fail. No test looks at how long it took."""

import json
import signal
import subprocess
import time
import unittest

from in_folder import BALLAST, InFolder, ballast

# Models so small that starting the program takes longer than training them.
TINY = (
    "--model.width=16 --model.layers=2 --model.heads=2 --model.context=32 --training.batch=4 --training.threads=1 "
    "--training.device=cpu --data.builtin_bytes=100000 --data.builtin_vocabulary=257 --sublayers=1 --experts=4"
).split()


class ExperimentTest(InFolder):
    def experiment(self, *arguments, systems="dense,base-x1", budget="1s"):
        return ["experiment", "overview", "--systems", systems, "--budget", budget, "--out", "x", *TINY, *arguments]

    def record(self, out="x"):
        return json.loads((self.folder / out / "experiment.json").read_text())

    def steps(self, run):
        return [line["step"] for line in self.records(run) if "loss" in line]


class WholeExperiments(ExperimentTest):
    def test_two_systems_are_measured_swept_and_trained_alike(self):
        result = self.run_well(*self.experiment("--json", "--seeds", 2, "--at-once", 2))
        found, record = json.loads(result.stdout), self.record()
        self.assertTrue(found["finished"])
        self.assertIn("BASE x1", (self.folder / found["report"]).read_text())
        self.assertEqual([system["id"] for system in found["systems"]], ["dense", "base-x1-e4"])
        self.assertEqual([panel["systems"] for panel in record["panels"]], [["dense", "base-x1-e4"]])
        self.assertEqual((record["seeds"], record["at_once"], record["data"]), (2, 2, "builtin"))
        for system in record["systems"]:
            self.check_system(system, record)
        dense, base = found["systems"]
        self.assertIsNone(dense["priced_perplexity"])
        self.assertEqual((dense["perplexity"], dense["routing"]), (dense["greedy_perplexity"], None))
        both = {routing: base[f"{routing}_perplexity"] for routing in ("greedy", "priced")}
        self.assertGreater(both["priced"], 1)
        self.assertEqual((base["perplexity"], base["routing"]), min((value, routing) for routing, value in both.items()))
        self.assertEqual(base["routing_at_equal_tokens"], "priced")
        self.assertEqual(found["panels"], record["panels"])
        self.assertEqual((record["panels"][0]["plan"]["workers"], list(record["panels"][0]["plan"]["tokens_per_second"])), (4, ["base-x1-e4", "dense"]))
        self.assertGreaterEqual(base["busiest"], 1)
        fewest = min(system["tokens"] for system in record["systems"])
        self.assertEqual(found["equal_tokens"], fewest)
        for system in found["systems"]:
            self.assertGreater(system["perplexity_at_equal_tokens"], 1)

        # People see which routing a number is of.
        table = self.run_well(*self.experiment("--seeds", 2)).stdout
        # What was told when a system was trained is what the table says.
        self.assertIn(f"base-x1-e4: perplexity {base['perplexity']:.3f} {base['routing']} (mean of 2 seeds) after", result.stderr)
        self.assertIn(f"dense: perplexity {dense['perplexity']:.3f} (mean of 2 seeds) after", result.stderr)
        self.assertRegex(table, rf"BASE x1 +4 +{base['perplexity']:.3f} {base['routing']} ")
        self.assertRegex(table, r"base-x1-e4: perplexity [\d.]+ \+- [\d.]+ greedy, [\d.]+ \+- [\d.]+ priced, mean")

        # Once more: nothing is repeated.
        before = (self.folder / "x/runs/dense-s1/run.json").read_bytes()
        again = json.loads(self.run_well(*self.experiment("--json", "--seeds", 2)).stdout)
        self.assertEqual(again["systems"], found["systems"])
        self.assertEqual((self.folder / "x/runs/dense-s1/run.json").read_bytes(), before)
        for changed, words in [
            (self.experiment("--seeds", 2, budget="2s"), "--budget: 1s -> 2s"),
            (self.experiment("--seeds", 2, "--rates", 1), "--rates: 3 -> 1"),
            (self.experiment(), "--seeds: 2 -> 1"),
            (self.experiment("--seeds", 2, "--model.heads", 8), "model.heads of dense: 2 -> 8"),
            (self.experiment("--seeds", 2, systems="dense"), "systems: dense, base-x1-e4 -> dense"),
        ]:
            self.refused(*changed, says=["started otherwise", words])

    def check_system(self, system, record):
        self.assertEqual(system["status"], "trained")
        steps = system["steps"]
        self.assertAlmostEqual(steps, max(20, record["training_seconds"] / system["step_seconds"]), delta=1)
        self.assertGreater(system["early_step_seconds"], 0)
        self.assertEqual(system["tokens"], steps * system["tokens_per_step"])
        self.assertGreaterEqual(len(system["sweep"]), 3)
        best = min((rate for rate in system["sweep"] if rate["loss"] is not None), key=lambda rate: rate["loss"])
        self.assertEqual(system["learning_rate"], best["learning_rate"])
        self.assertEqual([run["seed"] for run in system["runs"]], [1, 2])
        run = f"x/{system['runs'][0]['run']}"
        self.assertEqual(self.steps(run), list(range(1, steps + 1)))
        rates = [line["learning_rate"] for line in self.records(run) if "loss" in line]
        self.assertAlmostEqual(max(rates), system["learning_rate"], delta=0.1 * system["learning_rate"])
        self.assertLess(rates[-1], 0.1 * max(rates), "the decay ends with the run")
        validations = [line for line in self.records(run) if "valid_loss" in line]
        self.assertIn(len(validations), range(8, 32))
        self.assertEqual(len({line["valid_tokens"] for line in validations}), 1, "all are of the whole split")

    def test_a_second_budget_takes_the_rates_of_the_first(self):
        found = json.loads(self.run_well(*self.experiment("--json", "--max-epochs", 100, systems="dense,base-in-place", budget="1s,2s")).stdout)
        short, long = found["experiments"]
        self.assertEqual([short["folder"], long["folder"]], ["x/1s", "x/2s"])
        self.assertTrue(short["finished"] and long["finished"])
        first, second = self.record("x/1s"), self.record("x/2s")
        self.assertEqual((first["rates_from"], second["rates_from"]), ("", "x/1s"))
        self.assertFalse((self.folder / "x/2s/sweeps").exists())
        for one, other in zip(first["systems"], second["systems"]):
            for key in ["learning_rate", "sweep", "step_seconds", "early_step_seconds"]:
                self.assertEqual(one[key], other[key], key)
            self.assertAlmostEqual(2 * one["steps"], other["steps"], delta=2)
        command = self.experiment("--json", "--max-epochs", 100, systems="dense,base-in-place", budget="2s")
        again = json.loads(self.run_well(*("x/2s" if word == "x" else word for word in command)).stdout)
        self.assertEqual(again, long, "each is an experiment by itself")

    def test_a_rate_that_is_given_is_swept_around_where_that_is_asked_for(self):
        knobs = ["--optimizer.learning_rate", 3e-3, "--max-epochs", 100]
        self.run_well(*self.experiment("--rates", 3, *knobs, systems="dense"))
        self.assertIn(3e-3, [rate["learning_rate"] for rate in self.record()["systems"][0]["sweep"]])
        self.run_well("experiment", "overview", "--systems", "dense", "--budget", "1s", "--out", "y", *TINY, *knobs)
        self.assertEqual(self.record("y")["systems"][0]["sweep"], [])

    def test_two_workers_train_the_larger_model_divided(self):
        self.run_well("experiment", "dense", *TINY, "--systems", "dense-x2", "--budget", "1s", "--rates", 1, "--workers", 2, "--out", "x")
        system, = self.record()["systems"]
        self.assertEqual((system["title"], system["knobs"]["training.model_parallel"]), ("Model parallel x2", "2"))
        self.assertEqual((system["knobs"]["training.batch"], system["tokens_per_step"]), ("2", 2 * 32), "half of the others' batch")
        self.assertEqual(system["status"], "trained")


class Interruptions(ExperimentTest):
    def kill(self, command, number, when):
        process = subprocess.Popen([BALLAST, *map(str, command)], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        end = time.monotonic() + 120
        while not when() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.002)
        process.send_signal(number)
        output = process.communicate(timeout=60)
        return process.returncode, output

    def has_lines(self, path):
        def look():
            file = self.folder / path
            return file.exists() and len(file.read_bytes().splitlines()) >= 5
        return look

    def test_killed_in_a_sweep_and_in_training_it_goes_on(self):
        command = self.experiment("--json")
        code, _ = self.kill(command, signal.SIGKILL, lambda: any((self.folder / "x/sweeps").glob("*/*/metrics.jsonl")))
        self.assertEqual(code, -signal.SIGKILL)
        measured = [system["step_seconds"] for system in self.record()["systems"]]
        self.assertNotIn(None, measured)
        code, _ = self.kill(command, signal.SIGKILL, self.has_lines("x/runs/dense-s1/metrics.jsonl"))
        self.assertEqual(code, -signal.SIGKILL)
        sweeps = [system["sweep"] for system in self.record()["systems"]]
        found = json.loads(self.run_well(*command).stdout)
        self.assertTrue(found["finished"])
        record = self.record()
        self.assertEqual([system["step_seconds"] for system in record["systems"]], measured)
        self.assertEqual([system["sweep"] for system in record["systems"]], sweeps)
        for system in record["systems"]:
            run = f"x/{system['runs'][0]['run']}"
            self.assertEqual(self.steps(run), list(range(1, system["steps"] + 1)), "each step once")

    def test_asked_to_stop_it_saves_and_goes_on(self):
        command = self.experiment("--rates", 1, "--checkpoint.every", 10_000)
        code, (_, stderr) = self.kill(command, signal.SIGINT, self.has_lines("x/runs/dense-s1/metrics.jsonl"))
        self.assertEqual(code, 130, stderr)
        self.assertIn(b"the same command goes on", stderr)
        self.assertTrue(any((self.folder / "x/runs/dense-s1/checkpoints").glob("step_*")), "the run was saved")
        self.run_well(*command)
        self.assertEqual([system["status"] for system in self.record()["systems"]], ["trained", "trained"])


class Failures(ExperimentTest):
    def test_a_system_that_fails_does_not_hold_up_the_others(self):
        command = self.experiment("--rates", 1)
        blocked = self.folder / "x/runs/base-x1-e4-s1"
        blocked.parent.mkdir(parents=True)
        blocked.write_text("in the way of its run")
        result = ballast(*command, cwd=self.folder)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("base-x1-e4 failed with code 2; the last lines", result.stderr)
        self.assertIn("is a file, not a run directory", result.stderr)
        self.assertIn("not trained: base-x1-e4", result.stderr)
        self.assertEqual([system["status"] for system in self.record()["systems"]], ["trained", "swept"])
        blocked.unlink()
        self.run_well(*command)
        self.assertEqual([system["status"] for system in self.record()["systems"]], ["trained", "trained"])

    def test_rates_that_diverge_are_told_and_passed_over(self):
        knobs = ["--config", "hot.toml", "--experts", 4, "--systems", "dense", "--training.threads", 1, "--training.device", "cpu"]
        # Once it knows 64 norms, the guard takes every step for a spike.
        (self.folder / "hot.toml").write_text(
            "[model]\nwidth = 16\nlayers = 2\nheads = 2\ncontext = 32\n[training]\nbatch = 4\nspike_factor = 0.1\nmax_skipped = 3\n"
            "[data]\nbuiltin_bytes = 100000\n"
        )
        result = ballast("experiment", "overview", *knobs, "--budget", "20s", "--out", "x", cwd=self.folder)
        self.assertEqual(result.returncode, 1, result.stderr)
        system, = self.record()["systems"]
        self.assertEqual([rate["loss"] for rate in system["sweep"]], [None] * 5)
        self.assertIn("all learning rates diverged", result.stderr)

    def test_wrong_requests_are_refused_before_anything_is_made(self):
        self.refused("experiment", "dens", says='there is no experiment "dens"')
        self.refused("experiment", "overview", "--systems", "bass", says='--systems: there is no "bass"')
        self.refused("experiment", "overview", "--budget", "soon", says="--budget")
        self.refused("experiment", "overview", "--rates", 2, says="--rates: want an odd number")
        self.refused("experiment", "overview", "--training.steps", 5, says="--training.steps: the experiment decides it")
        self.refused("experiment", "sparse", "--experts", 3, "--workers", 2, says="experts.count")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_damaged_record_is_not_overwritten(self):
        (self.folder / "x").mkdir()
        (self.folder / "x/experiment.json").write_text('{"format": "ballast-exp')
        self.refused(*self.experiment(), says="damaged")
        self.assertEqual((self.folder / "x/experiment.json").read_text(), '{"format": "ballast-exp')


class DryRuns(ExperimentTest):
    def test_it_lists_systems_and_time_and_makes_nothing(self):
        result = self.run_well("experiment", "overview", "--experts", 8, "--dry-run", "--budget", "2m")
        for words in ["Dense, equal FLOPs", "base-x3-e8", "FLOPs/token", "9 systems, 2m00s of training each"]:
            self.assertIn(words, result.stdout)
        planned = json.loads(self.run_well("experiment", "overview", "--experts", 8, "--dry-run", "--json").stdout)
        self.assertRegex(result.stdout, r"8 experts, planned tokens/s on 8 v100 over infiniband: dense \d.*, base-x1-e8 \d")
        flops = {system["id"]: system["flops_per_token"] for system in planned["systems"]}
        self.assertAlmostEqual(flops["dense-l6"] / flops["base-x1-e8"], 1, delta=0.05)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_frames_of_the_router_differ_in_little_else(self):
        result = self.run_well("experiment", "frames", "--experts", 8, "--dry-run", "--json", "--budget", "2m,10m")
        short, long = json.loads(result.stdout)["experiments"]
        self.assertEqual(short["systems"], long["systems"])
        words = {system["id"]: system["words"] for system in short["systems"]}
        self.assertIn("raw features, sigmoid gate, dot scores", words["base-paper-e8"])
        self.assertIn("look-ahead", words["base-in-place-e8"])
        self.assertNotIn("look-ahead", words["base-in-place-near-e8"] + words["switch-e8"])
        experts = {system["id"]: system["experts"] for system in short["systems"]}
        self.assertEqual((experts["base-top2-e16"], experts["base-shared-e8"], experts["dense"]), (16, 8, None))


if __name__ == "__main__":
    unittest.main()
