# SPDX-License-Identifier: Apache-2.0
"""`ballast bench step --systems` measures all systems of the paper in one run. Nothing here looks at how long it took."""

import unittest

from bench_case import Bench
from in_folder import ballast

SETTING = ["--size", "64,32,6,4,16,8", "--rounds", 1, "--steps", 2]
ALONE = ["dense", "base", "base_x3", "sparsely_gated", "switch"]


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
        self.assertEqual([found[name]["words"] for name in ["dense", "base", "base_x3"]], ["dense", "BASE x1", "BASE x3"])
        dense, of_expert = found["dense"], 2 * 32 * 128 + 128 + 32 + 2 * 32  # two matrices, their biases, the norm
        # Three sublayers of each of 8 experts, in one layer or three, and the experts' embeddings.
        self.assertEqual(found["base"]["parameters"], dense["parameters"] + 3 * 8 * of_expert + 8 * 32)
        self.assertEqual(found["base_x3"]["parameters"], dense["parameters"] + 3 * 8 * of_expert + 3 * 8 * 32)
        # Every other of six feed-forwards is 8 experts; a token meets one or two of them.
        self.assertEqual(found["switch"]["parameters"], found["sparsely_gated"]["parameters"])
        self.assertEqual(found["sparsely_gated"]["active"] - found["switch"]["active"], 3 * of_expert)

    def test_two_workers_run_the_model_divided_too(self):
        found = self.check(self.measured("--systems", "all", "--workers", 2), ["dense", "model_parallel", *ALONE[1:]], 2)
        self.assertEqual(found["model_parallel"]["parameters"], found["dense"]["parameters"])
        self.assertIn("x2", found["model_parallel"]["words"])

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
        self.refused("--systems", "base_x3", "--experts", "8,2", says="--experts: 3 BASE layers do not divide 2 sublayers")
        self.refused("--systems", "base", "--experts", "8,2", "--experts", "4,2", says="--experts: want it once")
        self.refused("--systems", "base", "--experts", "8,0", says="--experts: want at least 1 sublayer")
        self.refused("--systems", "base", "--experts", "7,2", "--workers", 2, says="experts.count")


if __name__ == "__main__":
    unittest.main()
