# SPDX-License-Identifier: Apache-2.0
"""validation.json: what a run's last validation leaves for reports, and `ballast eval --out`."""

import json
import unittest

from in_folder import InFolder, ballast

TINY = (
    "--model.width=16 --model.layers=2 --model.heads=2 --model.context=32 --training.batch=8 --training.threads=1 "
    "--training.validate_every=10 --training.validate_batches=1 --training.last_validate_batches=1 --training.sample_tokens=0 --data.builtin_bytes=100000 "
    "--training.steps=20 --optimizer.learning_rate=1e-2 --optimizer.warmup_steps=5 --checkpoint.every=0"
).split()
SPARSE = [*TINY, "--experts.layers=2", "--experts.sublayers=1", "--experts.count=8", "--training.last_validate_batches=0"]


class ValidationFile(InFolder):
    def read(self, path):
        return json.loads((self.folder / path).read_text())

    def train(self, run, *arguments):
        self.run_well("train", "--run", run, *arguments)
        return self.read(f"{run}/validation.json")

    def validations(self, run):
        lines = self.records(run)
        return {line["step"]: line for line in lines if "valid_loss" in line}

    def test_a_dense_run_has_domains_and_no_layers(self):
        found = self.train("run", *TINY)
        self.assertEqual((found["format"], found["version"], found["step"]), ("ballast-validation", 1, 20))
        self.assertEqual((found["tokens"], found["whole_split"], found["system"]), (256, False, "dense"))
        self.assertGreater(found["floor_per_token"], 0)
        (routing,) = found["routings"]
        self.assertEqual((routing["routing"], routing["layers"]), (None, []))
        record = self.validations("run")[20]
        self.assertEqual((routing["loss"], routing["domains"]), (record["valid_loss"], record["domains"]))
        self.assertEqual(sum(domain["tokens"] for domain in record["domains"]), 256)
        self.assertIn("domains", self.validations("run")[10])

    def test_a_base_run_has_all_ways_of_routing_over_the_whole_split(self):
        found = self.train("run", *SPARSE, "--experts.test_routing=priced")
        self.assertTrue(found["whole_split"])
        self.assertEqual(self.validations("run")[10]["valid_tokens"], 256, "the others are shorter")
        self.assertEqual(self.validations("run")[20]["valid_tokens"], found["tokens"])
        self.assertEqual([one["routing"] for one in found["routings"]], ["greedy", "priced", "balanced"])
        self.assertEqual(found["routings"][1]["loss"], self.validations("run")[20]["valid_loss"])
        self.assertIsNotNone(found["routings"][0]["bits_per_byte"])
        for routing in found["routings"]:
            self.assertEqual([layer["layer"] for layer in routing["layers"]], [0, 1])
            for layer in routing["layers"]:
                self.assertEqual(sum(layer["loads"]), found["tokens"])
        for layer in found["routings"][0]["layers"]:
            names = [domain["name"] for domain in found["routings"][0]["domains"]]
            self.assertEqual({len(loads) for loads in layer["domain_loads"]}, {len(names)})
            self.assertEqual(sum(map(sum, layer["domain_loads"])), found["tokens"] - 1, "the first token has no domain")
            for expert, load in zip(layer["experts"], layer["loads"]):
                self.assertEqual(len(expert["tokens"]) > 0, load > 0)
                self.assertLessEqual(len(expert["previous"]), 10)

    def test_the_last_validation_reads_the_whole_split_where_that_is_short(self):
        found = self.train("run", *TINY, "--training.last_validate_batches=-1", "--training.steps=400", "--training.validate_every=200",
                           "--data.builtin_bytes=30000")
        self.assertTrue(found["whole_split"])
        self.assertEqual((found["tokens"], found["windows"]), (found["split_tokens"], found["split_windows"]))
        first, last = self.validations("run")[200], self.validations("run")[400]
        self.assertEqual((first["valid_tokens"], first["valid_windows"], first["whole_split"]), (256, 8, False))
        self.assertEqual((first["split_tokens"], first["split_windows"]), (last["split_tokens"], last["split_windows"]))
        self.assertEqual((last["valid_tokens"], last["whole_split"]), (found["tokens"], True))

    def test_else_it_reads_a_part_of_every_domain_and_says_so(self):
        for workers in (1, 2):
            result = self.run_well("train", "--run", f"run{workers}", *SPARSE, "--training.last_validate_batches=-1", "--training.validate_every=0",
                                   "--data.builtin_bytes=2000000", "--training.validate_batches=4", "--workers", workers)
            found = self.read(f"run{workers}/validation.json")
            self.assertFalse(found["whole_split"])
            self.assertEqual((found["tokens"], found["windows"]), (4 * 256, 4 * 8))
            self.assertGreater(found["split_windows"], 500)
            self.assertIn("more than a tenth of the training", result.stderr)
            self.assertRegex(result.stdout, r"validation perplexity .* of the split's [\d.]+k tokens\)")
            for domain in found["routings"][0]["domains"]:
                self.assertGreater(domain["tokens"], 0)
                self.assertIsNone(domain["loss"], "of so few tokens nothing is said")
            self.assertIsNone(found["routings"][0]["layers"][0]["domain_bits"])
            self.assertIn("too few tokens to tell of domains", result.stderr)
            self.assertIn("domain(s) not told of: too few tokens", result.stdout)

    def test_a_run_that_goes_on_writes_it_again(self):
        first = self.train("run", *SPARSE)
        again = self.train("run", "--resume", "auto", "--training.steps=30")
        self.assertEqual((first["step"], again["step"]), (20, 30))
        self.assertNotEqual(first["routings"][0]["loss"], again["routings"][0]["loss"])
        self.assertEqual(sorted(self.validations("run")), [10, 20, 30])
        self.assertEqual(list((self.folder / "run").glob("*.tmp")), [])

    def test_a_run_that_goes_on_keeps_none_of_an_earlier_end(self):
        self.train("run", *SPARSE)
        self.run_well("train", "--run", "run", "--resume", "auto", "--training.steps=1000000", "--training.max_time=1s")
        self.assertFalse((self.folder / "run/validation.json").exists())

    def test_a_finished_run_without_it_gets_it_when_it_is_started_again(self):
        first = self.train("run", *SPARSE)
        (self.folder / "run/validation.json").unlink()
        self.assertEqual(self.train("run", "--resume", "auto"), first)

    def test_what_cannot_be_written_costs_no_training(self):
        for workers in (1, 2):
            run = self.folder / f"run{workers}"
            self.train(run.name, *SPARSE, f"--workers={workers}")
            (run / "validation.json").unlink()
            (run / "validation.json").mkdir()
            (run / "validation.json/file").touch()
            ended = ballast("train", "--run", run, "--resume", "auto", "--training.steps=30", f"--workers={workers}")
            self.assertNotEqual(ended.returncode, 0)
            self.assertIn("validation.json", ended.stderr)
            self.assertTrue((run / "checkpoints/step_00000030/manifest.json").exists(), workers)

    def test_eval_replaces_nothing_else_and_says_so_before_it_reads(self):
        self.train("run", *TINY)
        self.run_well("eval", "run", "--out", "again.json")
        self.run_well("eval", "run", "--out", "again.json")
        (self.folder / "notes.md").write_text("mine")
        self.refused("eval", "run", "--out", "notes.md", says="is not replaced")
        self.assertEqual((self.folder / "notes.md").read_text(), "mine")
        self.refused("eval", "run", "--out", "nowhere/validation.json", says="no folder nowhere")

    def test_gates_route_greedily(self):
        for router in ("sparsely_gated", "switch"):
            found = self.train(router, *SPARSE, f"--experts.router={router}", "--experts.placement=replace")
            (routing,) = found["routings"]
            self.assertEqual(routing["routing"], "greedy")
            for layer in routing["layers"]:
                self.assertEqual("second_loads" in layer, router == "sparsely_gated")

    def test_the_run_and_eval_agree_to_the_bit(self):
        for workers in (1, 2):
            for routing in ("greedy", "priced"):
                name = f"{routing}{workers}"
                trained = self.train(name, *SPARSE, f"--experts.test_routing={routing}", "--training.batch=12", "--workers", workers)
                self.run_well("eval", name, "--workers", workers, "--out", f"{name}.json")
                self.assertEqual(self.read(f"{name}.json"), trained, name)
                told = json.loads(self.run_well("eval", name, "--workers", workers, "--json").stdout)
                last = self.validations(name)[20]
                self.assertEqual((told["routing"], told["loss"], told["tokens"]), (routing, last["valid_loss"], last["valid_tokens"]))
                self.assertEqual(told["domains"], last["domains"])
                self.assertEqual(told["routings"][0]["layers"][0]["loads"], last["experts"][0]["loads"])

    def test_eval_writes_what_the_run_wrote_whoever_evaluates(self):
        trained = self.train("run", *SPARSE)
        self.run_well("eval", "run", "--out", "alone.json")
        alone = self.read("alone.json")
        self.assertEqual(alone, trained)
        for name, more in (("two", ["--workers", "2"]), ("shards", ["--workers", "2", "--model-parallel", "2"])):
            self.run_well("eval", "run", *more, "--out", f"{name}.json")
            found = self.read(f"{name}.json")
            self.assertEqual(found["tokens"], alone["tokens"])
            for one, other in zip(found["routings"][:2], alone["routings"][:2]):
                self.assertAlmostEqual(one["loss"], other["loss"], delta=1e-6)
                for layer, same in zip(one["layers"], other["layers"]):  # scores are fp32
                    self.assertAlmostEqual(layer.pop("first_direction_share"), same["first_direction_share"], delta=1e-6)
                    self.assertEqual(layer, {key: value for key, value in same.items() if key != "first_direction_share"})
                for domain, same in zip(one["domains"], other["domains"]):
                    self.assertEqual((domain["name"], domain["tokens"]), (same["name"], same["tokens"]))
                    self.assertAlmostEqual(domain["loss"], same["loss"], delta=1e-6)
            for layer in found["routings"][2]["layers"]:
                self.assertEqual(sum(layer["loads"]), alone["tokens"])

    def test_eval_writes_the_routing_it_is_told(self):
        self.train("run", *SPARSE)
        self.run_well("eval", "run", "--routing", "priced", "--out", "priced.json")
        self.assertEqual([one["routing"] for one in self.read("priced.json")["routings"]], ["priced"])
        self.refused("eval", "run", "--audit", "--out", "no.json", says="--out")
        self.refused("eval", "run", "--out", "nowhere/no.json", says="nowhere/no.json")

    def test_several_workers_write_one(self):
        found = self.train("run", *SPARSE, "--workers", "2")
        self.assertEqual(sum(found["routings"][0]["layers"][0]["loads"]), found["tokens"])


if __name__ == "__main__":
    unittest.main()
