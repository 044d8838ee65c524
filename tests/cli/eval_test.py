# SPDX-License-Identifier: Apache-2.0
"""`ballast eval` and `ballast generate` of BASE models: ways of routing, experts, the causality audit, workers."""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

BALLAST = Path(os.environ["BALLAST_BUILD"]) / "ballast"
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n"]
AUDIT_FAILED = 3

# A model so small that starting the program takes longer than training it.
TINY = (
    "--model.width=16 --model.layers=2 --model.heads=2 --model.context=32 --training.batch=8 --training.threads=1 "
    "--training.validate_every=0 --training.validate_batches=1 --training.sample_tokens=0 --data.builtin_bytes=200000 "
    "--training.steps=60 --optimizer.learning_rate=1e-2 --optimizer.warmup_steps=5 --checkpoint.every=0"
).split()
SPARSE = [*TINY, "--experts.layers=2", "--experts.sublayers=1"]


RUNS = {
    "dense": TINY,
    "sparse": [*SPARSE, "--experts.count=8", "--experts.test_routing=priced"],
    "many": [*TINY, "--experts.layers=1", "--experts.sublayers=1", "--experts.count=128", "--training.steps=5"],
}
FOLDER = Path(tempfile.mkdtemp(prefix="ballast-test-"))


def ballast(*arguments, starter=(), **options):
    command = [*starter, str(BALLAST), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, encoding="utf-8", cwd=FOLDER, timeout=120, **options)


def setUpModule():
    """Trains the models that all look at."""
    unittest.addModuleCleanup(shutil.rmtree, FOLDER, ignore_errors=True)
    for run, arguments in RUNS.items():
        result = ballast("train", *arguments, "--run", run)
        assert result.returncode == 0, result.stderr


class Evaluating(unittest.TestCase):
    def run_well(self, *arguments, **options):
        result = ballast(*arguments, **options)
        self.assertEqual(result.returncode, 0, f"{arguments}\n{result.stderr}\n{result.stdout}")
        return result.stdout

    def eval_json(self, *arguments, **options):
        return json.loads(self.run_well("eval", *arguments, "--json", **options))

    def refused(self, *arguments, says, code=2, **options):
        result = ballast(*arguments, **options)
        self.assertEqual(result.returncode, code, f"{arguments}\n{result.stderr}\n{result.stdout}")
        self.assertIn(says, result.stderr)
        self.assertEqual(result.stdout, "")
        return result


class Routings(Evaluating):
    def test_all_are_as_each_alone_and_the_default_is_the_configs(self):
        every = self.eval_json("sparse", "--routing", "all")
        self.assertEqual([one["routing"] for one in every["routings"]], ["greedy", "priced", "balanced"])
        for one in every["routings"]:
            alone = self.eval_json("sparse", "--routing", one["routing"])
            self.assertEqual(alone["routing"], one["routing"])
            self.assertEqual(alone["routings"], [one])
            for key in ("loss", "perplexity", "bits_per_byte"):
                self.assertEqual(alone[key], one[key])
        default = self.eval_json("sparse")
        self.assertEqual(default["routing"], "priced")
        self.assertEqual(every["routing"], "priced", "the outer numbers are those of the default")
        self.assertEqual(every["loss"], default["loss"])
        self.assertEqual(len({one["loss"] for one in every["routings"]}), 3, "they differ")

    def test_layers_tell_of_balance(self):
        every = self.eval_json("sparse", "--routing", "all")
        keys = {"layer", "busiest_share", "experts_in_use", "dead_experts", "domain_information_bits", "loads"}
        for one in every["routings"]:
            self.assertEqual([layer["layer"] for layer in one["layers"]], [0, 1])
            for layer in one["layers"]:
                self.assertEqual(set(layer), keys)
                self.assertEqual(sum(layer["loads"]), every["tokens"])
                self.assertAlmostEqual(layer["busiest_share"], max(layer["loads"]) * 8 / every["tokens"])
                self.assertEqual(layer["experts_in_use"], sum(load > 0 for load in layer["loads"]))
                self.assertIsNone(layer["domain_information_bits"], "no domain has 2,000 tokens")
        shares = [one["layers"][1]["busiest_share"] for one in every["routings"]]
        self.assertLess(shares[2], 1.1, "balanced")
        self.assertGreater(shares[0], shares[2], "greedy is not")

    def test_people_see_them_side_by_side(self):
        text = self.run_well("eval", "sparse", "--routing", "all")
        for routing in ("greedy", "priced", "balanced"):
            self.assertRegex(text, rf"(?m)^  {routing} +\d+\.\d+ +\d+\.\d+ +0 +\d+\.\d\d +\d / 8")
        self.assertIn("sees the future", text)
        self.assertIn("sees the future", self.run_well("eval", "--help"))
        self.assertNotIn("sees the future", self.run_well("eval", "sparse"))

    def test_a_dense_model_has_nothing_to_route(self):
        dense = self.eval_json("dense")
        self.assertEqual((dense["routing"], dense["routings"]), (None, []))
        for routing in ("greedy", "all"):
            self.refused("eval", "dense", "--routing", routing, says="dense model")
        self.refused("eval", "dense", "--experts", says="dense model")
        self.refused("generate", "dense", "--routing", "priced", says="dense model")
        self.refused("eval", "sparse", "--routing", "random", says="--routing")

    def test_the_audit_passes_what_looks_back_alone(self):
        for model, routing in (("sparse", "greedy"), ("sparse", "priced"), ("dense", None)):
            with self.subTest(model=model, routing=routing):
                more = ["--routing", routing] if routing else []
                summary = self.eval_json(model, "--audit", *more)
                self.assertTrue(summary["passed"])
                (audit,) = summary["audits"]
                self.assertEqual((audit["routing"], audit["windows"], audit["cuts"]), (routing, 64, 256))
                self.assertEqual(audit["changed_routes"] + audit["changed_logits"], 0)
                self.assertGreater(audit["logits"], 2000)
                self.assertEqual(audit["routes"], 0 if model == "dense" else 2 * (audit["logits"] + audit["left_out"]))
                self.assertLessEqual(audit["logit_difference"], audit["logit_bound"])
                self.assertLess(audit["logit_bound"], 1e-4)
                self.assertIsNone(audit["first_leak"])
        self.assertIn("causality, greedy routing: passed", self.run_well("eval", "sparse", "--audit", "--routing", "greedy"))

    def test_the_audit_catches_balanced_routing(self):
        for more in ([], ["--batch", "1"]):
            result = ballast("eval", "sparse", "--audit", "--routing", "balanced", *more)
            self.assertEqual(result.returncode, AUDIT_FAILED, result.stderr)
            self.assertIn("FAILED", result.stdout)
            self.assertRegex(result.stdout, r"first: window \d+, prefix of \d+ tokens: token \d+ goes to expert")
        result = ballast("eval", "sparse", "--audit", "--routing", "all", "--json")
        self.assertEqual(result.returncode, AUDIT_FAILED, result.stderr)
        summary = json.loads(result.stdout)
        self.assertFalse(summary["passed"])
        self.assertEqual([one["passed"] for one in summary["audits"]], [True, True, False])

    def test_generate_routes_as_asked(self):
        def written(*more):
            arguments = ["--max-tokens", "200", "--endless", "--json"]
            return json.loads(self.run_well("generate", "sparse", *arguments, *more))["completions"]

        self.assertEqual(written(), written("--routing", "priced"))
        self.assertNotEqual(written(), written("--routing", "greedy"))
        self.refused("generate", "sparse", "--routing", "balanced", says="--routing")


class Domains(Evaluating):
    def test_their_losses_are_parts_of_the_whole(self):
        for run in ("dense", "sparse"):
            result = self.eval_json(run, "--data", f"{run}/data", "--split", "train")
            names = [domain["name"] for domain in result["domains"]]
            self.assertEqual(len(set(names)), len(names))
            self.assertIn("weather", names)
            self.assertEqual(sum(domain["tokens"] for domain in result["domains"]), result["tokens"])
            self.assertEqual([domain for domain in result["domains"] if domain["tokens"] < 2000 or domain["loss"] is None], [])
            whole = sum(domain["tokens"] * (domain["loss"] or 0) for domain in result["domains"]) / result["tokens"]
            self.assertAlmostEqual(whole, result["loss"], delta=1e-6, msg="the losses are fp32, their sums double")
        self.assertEqual(result["routings"][0]["domains"], result["domains"])
        self.assertGreater(result["routings"][0]["layers"][0]["domain_information_bits"], 0)

    def test_of_one_with_few_tokens_nothing_is_said(self):
        for domain in self.eval_json("dense")["domains"]:
            self.assertLess(domain["tokens"], 2000)
            self.assertIsNone(domain["loss"])

    def test_people_see_them(self):
        text = self.run_well("eval", "sparse", "--routing", "all")
        self.assertRegex(text, r"(?m)^  domain +tokens +greedy +priced +balanced$")
        self.assertRegex(text, r"(?m)^  weather +\d+( +-){3}  too few tokens$")
        text = self.run_well("eval", "dense", "--data", "dense/data", "--split", "train")
        self.assertRegex(text, r"(?m)^  domain +tokens +perplexity$")
        self.assertRegex(text, r"(?m)^  weather +\d+ +\d+\.\d{3}$")
        (FOLDER / "plain.txt").write_text("a few words, " * 60)
        self.assertNotIn("domain ", self.run_well("eval", "dense", "--data", "plain.txt"), "there is one alone")


class Experts(Evaluating):
    def rows(self, text):
        """The lines of experts of the first layer."""
        return re.findall(r"(?m)^ +\d+ +\d+ +\d+\.\d\d\b.*$", text.split("\n\n")[2])

    def test_each_expert_tells_what_it_got(self):
        for expert in self.eval_json("sparse", "--experts")["routings"][0]["layers"][0]["experts"]:
            self.assertEqual(set(expert["domains"].values()), {None}, "of so few tokens nothing is said")
        result = self.eval_json("sparse", "--experts", "--data", "sparse/data", "--split", "train")
        for layer in result["routings"][0]["layers"]:
            self.assertGreater(layer["token_information_bits"], 0)
            self.assertEqual([one["load"] for one in layer["experts"]], layer["loads"])
            for expert in layer["experts"]:
                if expert["load"] == 0:
                    continue
                self.assertAlmostEqual(sum(expert["domains"].values()), 1, delta=0.05, msg="the first token has none")
                counts = [top["count"] for top in expert["top_tokens"]]
                self.assertEqual(counts, sorted(counts, reverse=True))
                self.assertLessEqual(sum(counts), expert["load"])
                for top in expert["top_tokens"]:
                    self.assertEqual(len(top["text"]), 1 if top["token"] < 256 else 13)

    def test_the_tokens_before_an_experts_tokens_are_told_as_in_the_papers_table(self):
        # In "ababab..." the token before is the other one. An end-of-text comes first, so that windows of 32 start with b.
        (FOLDER / "ab.txt").write_text("ab" * 500)
        result = self.eval_json("sparse", "--experts", "--routing", "all", "--data", "ab.txt")
        for routing in result["routings"]:
            for layer in routing["layers"]:
                self.assertGreaterEqual(layer["previous_information_bits"], 0)
                of_letter, before = {"a": 0, "b": 0}, {"a": 0, "b": 0}
                for expert in layer["experts"]:
                    here = {top["text"]: top["count"] for top in expert["top_tokens"]}
                    previous = {top["text"]: top["count"] for top in expert["previous_tokens"]}
                    self.assertLessEqual(previous.get("a", 0), here.get("b", 0))
                    self.assertLessEqual(previous.get("b", 0), here.get("a", 0))
                    for letter in "ab":
                        of_letter[letter] += here.get(letter, 0)
                        before[letter] += previous.get(letter, 0)
                self.assertEqual(before["b"], of_letter["a"] - 1, "the first a comes after the end-of-text")
                self.assertEqual(before["a"], of_letter["b"] - 1000 // 32, "a window's first token has none before it")
        text = self.run_well("eval", "sparse", "--experts", "--data", "ab.txt")
        self.assertRegex(text, r'(?m)^ +\d+ +\d+ .*   "[ab]".*\n         after   "[ab]"')
        self.assertRegex(text, r"tells: .*\d\.\d{3} of the token, \d\.\d{3} of the one before\n")

    def test_a_table_for_a_terminal(self):
        text = self.run_well("eval", "sparse", "--experts", "--data", "sparse/data", "--split", "train")
        self.assertEqual(len(self.rows(text)), 8)
        self.assertLessEqual(max(map(len, text.splitlines()[8:])), 100)
        self.assertRegex(text, r'"\\(n|x[0-9a-f]{2})"')
        self.assertNotRegex(text.replace("\n", ""), r"[\x00-\x1f]")
        for word in ("of its domain, ", "weather", "priced routing"):
            self.assertIn(word, text)

    def test_of_many_experts_the_busiest_and_the_least_busy(self):
        text = self.run_well("eval", "many", "--experts", "--routing", "greedy")
        rows = [line.split() for line in self.rows(text)]
        self.assertEqual(len(rows), 20)
        self.assertIn("108 more, not shown", text)
        loads = [int(row[1]) for row in rows]
        self.assertEqual(loads, sorted(loads, reverse=True))
        every = self.eval_json("many", "--experts", "--routing", "greedy")["routings"][0]["layers"][0]
        self.assertEqual(len(every["experts"]), 128)
        self.assertEqual(loads[0], max(every["loads"]))
        self.assertEqual(loads[-1], min(every["loads"]))
        self.assertLessEqual(max(map(len, text.splitlines()[8:])), 100)


class Workers(Evaluating):
    def test_any_number_of_workers_finds_the_same(self):
        # In fp32 a balanced assignment may decide a near-tie otherwise, where rows are multiplied in other numbers.
        wish = ["sparse", "--routing", "all", "--experts", "--precision", "fp64"]
        alone = self.eval_json(*wish)
        for workers in (1, 2, 4):
            with self.subTest(workers=workers):
                result = self.eval_json(*wish, starter=[*MPIRUN, str(workers)])
                self.assertEqual(result["tokens"], alone["tokens"])
                for one, other in zip(result["routings"], alone["routings"]):
                    self.assertAlmostEqual(one["loss"], other["loss"], delta=1e-12)
                    self.assertEqual(one["layers"], other["layers"])

    def test_workers_without_data_just_wait(self):
        (FOLDER / "short.txt").write_text("a few words, " * 6)
        alone = self.eval_json("sparse", "--data", "short.txt")
        self.assertLess(alone["tokens"], 4 * 32)
        temporary = FOLDER / "temporary"
        temporary.mkdir()
        for starter, more in ((), ["--workers", "4"]), ([*MPIRUN, "8"], ["--batch", "1"]):
            result = self.eval_json("sparse", "--data", "short.txt", *more, starter=starter,
                                    env={**os.environ, "TMPDIR": str(temporary)})
            self.assertEqual(result["tokens"], alone["tokens"])
            self.assertAlmostEqual(result["loss"], alone["loss"], delta=1e-6)
        self.assertEqual(list(temporary.glob(".ballast-*")), [])

    def test_the_audit_is_that_of_all(self):
        for routing, code in (("greedy", 0), ("balanced", AUDIT_FAILED)):
            alone = ballast("eval", "sparse", "--audit", "--routing", routing, "--json")
            four = ballast("eval", "sparse", "--audit", "--routing", routing, "--json", "--workers", "4")
            self.assertEqual((alone.returncode, four.returncode), (code, code), four.stderr)
            one, other = (json.loads(result.stdout)["audits"][0] for result in (alone, four))
            for key in ("passed", "windows", "cuts", "logit_bound"):
                self.assertEqual(one[key], other[key], key)
            self.assertAlmostEqual(one["routes"], other["routes"], delta=one["routes"] / 100, msg="ties leave out some")

    def test_generate_writes_the_same(self):
        arguments = ["generate", "sparse", "--prompt", "The", "--prompt", "", "--max-tokens", "20", "--json"]
        alone, together = (json.loads(self.run_well(*arguments, *more)) for more in ([], ["--workers", "2"]))
        for one in (alone, together):
            self.assertGreater(one.pop("seconds"), 0)
        self.assertEqual(together, alone)

    def test_what_does_not_fit_is_said_once(self):
        result = self.refused("eval", "sparse", "--workers", "3", says="cannot be divided among 3 workers")
        self.assertEqual(result.stderr.count("cannot be divided"), 1)
        self.refused("eval", "nowhere", "--workers", "2", says="nowhere")
        self.refused("eval", "sparse", "--data", "nowhere.txt", "--workers", "2", says="nowhere.txt")
        self.refused("eval", "sparse", "--data", "-", "--workers", "2", says="standard input")

    def workers_catch_signals(self):
        """Whether both workers of the job are at work: they then catch SIGUSR1."""
        catching = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
                fields = dict(re.findall(r"(?m)^(\w+):\s*(.*)$", (process / "status").read_text()))
                parent = (Path("/proc") / fields["PPid"] / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue  # it has ended meanwhile
            if os.fsencode(FOLDER / "sparse") in words and Path(os.fsdecode(parent[0])).name == "mpirun":
                catching.append(int(fields["SigCgt"], 16) >> (signal.SIGUSR1 - 1) & 1)
        return catching == [1, 1]

    def test_a_signal_stops_all(self):
        command = [BALLAST, "eval", FOLDER / "sparse", "--stride", "1", "--batch", "1", "--split", "train",
                   "--data", FOLDER / "sparse" / "data", "--workers", "2"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            end = time.monotonic() + 60
            while not self.workers_catch_signals():
                self.assertLess(time.monotonic(), end, "the workers did not begin")
                self.assertIsNone(process.poll(), "it ended before it was stopped")
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            out, error = process.communicate(timeout=60)
        finally:
            process.kill()
        self.assertEqual(out, "")
        self.assertEqual(error.count("stopped before the end"), 1, error)
        self.assertEqual(process.returncode, 130, error)


if __name__ == "__main__":
    unittest.main()
