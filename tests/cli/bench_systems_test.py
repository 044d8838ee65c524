# SPDX-License-Identifier: Apache-2.0
"""`ballast bench step --systems` measures all systems of the paper in one run. Nothing here looks at how long it took."""

import unittest

from bench_case import Bench
from in_folder import ballast

SETTING = ["--size", "64,32,6,4,16,8", "--rounds", 1, "--steps", 2]
ALONE = ["dense", "base", "base_x2", "base_x3", "sparsely_gated", "switch"]


class BenchSystems(Bench):
    def measured(self, *arguments):
        return super().measured("step", *SETTING, *arguments)

    def refused(self, *arguments, says):
        super().refused("step", *SETTING, *arguments, says=says)

    def check(self, found, names, workers):
        self.assertEqual((found["device"], found["workers"]), ("cpu", workers))
        size, = found["sizes"]
        self.assertEqual([size[key] for key in ["vocabulary", "width", "layers", "heads", "context", "batch"]], [64, 32, 6, 4, 16, 8])
        self.assertEqual([system["system"] for system in size["systems"]], names)
        by_name = {system["system"]: system for system in size["systems"]}
        for system in by_name.values():
            self.assertGreaterEqual(system["step_ms"], system["fastest_ms"])
            self.assertAlmostEqual(system["tokens_per_second"], 8 * 16 / (system["step_ms"] / 1e3))
            self.assertAlmostEqual(system["of_dense"], system["tokens_per_second"] / by_name["dense"]["tokens_per_second"])
        return by_name

    def test_all_that_one_worker_can_run(self):
        found = self.check(self.measured("--systems", "all"), ALONE, 1)
        bases = ["base", "base_x2", "base_x3"]
        self.assertEqual([found[name]["words"] for name in ["dense", *bases]], ["dense", "BASE x1", "BASE x2", "BASE x3"])
        self.assertEqual([found[name]["sublayers"] for name in [*bases, "dense", "switch"]], [6, 6, 6, None, None])
        dense, of_expert = found["dense"], 2 * 32 * 128 + 128 + 32 + 2 * 32  # two matrices, their biases, the norm
        # Six sublayers of each of 8 experts, in one layer, two or three; the experts' embeddings and the router's norm.
        for layers, name in enumerate(bases, 1):
            self.assertEqual(found[name]["parameters"], dense["parameters"] + 6 * 8 * of_expert + layers * (8 * 32 + 2 * 32))
        for system in found.values():
            self.assertEqual((system["shards"], system["parameters_of_worker"]), (1, system["parameters"]))
        # Every other of six feed-forwards is 8 experts; a token meets one or two of them.
        self.assertEqual(found["switch"]["parameters"], found["sparsely_gated"]["parameters"])
        self.assertEqual(found["sparsely_gated"]["active"] - found["switch"]["active"], 3 * of_expert)

    def test_two_workers_run_the_model_divided_too(self):
        found = self.check(self.measured("--systems", "all", "--workers", 2), ["dense", "model_parallel", *ALONE[1:]], 2)
        dense, divided = found["dense"], found["model_parallel"]
        self.assertEqual(divided["parameters"], dense["parameters"])
        self.assertIn("x2", divided["words"])
        # What a worker really holds: half of the matrices (12 D D and 7 D biases of a block, V D of the vocabulary), all of norms,
        # positions and biases of outputs.
        self.assertEqual((dense["shards"], dense["parameters_of_worker"]), (1, dense["parameters"]))
        self.assertEqual(divided["shards"], 2)
        self.assertEqual(dense["parameters"] - divided["parameters_of_worker"], (6 * (12 * 32 * 32 + 7 * 32) + 64 * 32) // 2)
        # Experts are divided among the workers, too.
        self.assertLess(found["base_x2"]["parameters_of_worker"], 0.6 * found["base_x2"]["parameters"])

    def test_sublayers_that_layers_do_not_divide_are_left_out_as_in_the_paper(self):
        found = self.measured("--systems", "base,base_x2,base_x3", "--experts", "4,5")
        size, = found["sizes"]
        self.assertEqual([system["sublayers"] for system in size["systems"]], [5, 4, 3])

    def test_some_of_them_with_other_experts(self):
        found = self.measured("--systems", "switch,base", "--experts", "4,2,2")
        size, = found["sizes"]
        self.assertEqual(size["experts"], 4)
        self.assertEqual([(system["system"], system["of_dense"]) for system in size["systems"]], [("switch", None), ("base", None)])

    def test_people_see_tokens_a_second_of_each(self):
        result = ballast("bench", "step", *SETTING, "--systems", "dense,base")
        self.assertEqual(result.returncode, 0, result.stderr)
        for words in ["dense", "base", "tok/s", "of dense"]:
            self.assertIn(words, result.stdout)

    def test_what_cannot_be_measured_is_refused(self):
        self.refused("--systems", "dense,bse", says='there is no "bse"; want all, or some of dense')
        self.refused("--systems", "model_parallel", says="--systems: model_parallel wants several workers")
        self.refused("--workers", 2, says="--workers: want --systems")
        self.refused("--systems", "base_x3", "--experts", "8,2", says="--experts: 3 BASE layers want 3 sublayers at least, got 2")
        self.refused("--systems", "base", "--experts", "8,2", "--experts", "4,2", says="--experts: want it once")
        self.refused("--systems", "base", "--experts", "8,0", says="--experts: want at least 1 sublayer")
        self.refused("--systems", "base", "--experts", "7,2", "--workers", 2, says="experts.count")


if __name__ == "__main__":
    unittest.main()
