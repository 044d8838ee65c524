# SPDX-License-Identifier: Apache-2.0
"""`ballast bench layer` and `bench step --experts` measure what they say. Nothing here looks at how long it took."""

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from bench_case import Bench
from in_folder import BUILD, ballast


class BenchLayer(Bench):
    def test_a_layer_beside_the_dense_stack_and_its_parts(self):
        found = self.measured("layer", "--size", "96,16,4,2", "--size", "50,8,1,3", "--rounds", 3, "--groups", 2, "--no-twin")
        self.assertEqual((found["device"], found["threads"], found["rounds"], found["groups"], found["shuffle"]), ("cpu", 1, 3, 2, True))
        self.assertEqual([(s["tokens"], s["width"], s["experts"], s["sublayers"]) for s in found["sizes"]],
                         [(96, 16, 4, 2), (50, 8, 1, 3)])
        for size in found["sizes"]:
            for name in ["layer_ms", "assigned_ms", "assigned_written_ms", "dense_ms"]:
                self.assertGreater(size[name], 0)
            for name in ["layer", "dense"]:
                self.assertGreaterEqual(size[f"{name}_ms"], size[f"{name}_fastest_ms"])
            self.assertAlmostEqual(size["ratio"], size["layer_ms"] / size["dense_ms"])
            self.assertEqual(set(size["parts_ms"]), {"assignment", "experts"})
            total = sum(size["parts_ms"].values())
            for part, milliseconds in size["parts_ms"].items():
                self.assertGreater(milliseconds, 0, part)
                self.assertAlmostEqual(size["shares"][part], milliseconds / total)
            # Six for each weight of a matrix; the same for the stack.
            weights = size["sublayers"] * 2 * size["width"] * 4 * size["width"]
            self.assertEqual(size["gflops"], 6e-9 * weights * size["tokens"])
            self.assertAlmostEqual(size["weights_mb"], 4e-6 * weights * size["experts"])

    def test_a_single_group_is_not_shuffled(self):
        found = self.measured("layer", "--size", "96,16,4,2", "--rounds", 1, "--no-twin")
        self.assertEqual((found["groups"], found["shuffle"]), (1, False))

    def test_gated_layers_with_and_without_capacity(self):
        for router, choices in [("switch", 1), ("sparsely_gated", 2)]:
            found = self.measured("layer", "--router", router, "--size", "96,16,4,2", "--rounds", 2, "--no-twin")
            self.assertEqual((found["router"], found["capacity"], found["shuffle"], found["twin"]), (router, None, False, None))
            size = found["sizes"][0]
            self.assertEqual(size["experts_of_token"], choices)
            self.assertEqual(size["gflops"], 6e-9 * choices * 2 * 2 * 16 * 64 * 96)
            self.assertGreater(size["busiest"], 1, "96 tokens of clusters are not divided equally by chance")
            self.assertLessEqual(size["busiest"], 4)
            self.assertIsNone(size["speedup"])
            for part in ["assignment", "experts"]:
                self.assertGreater(size["parts_ms"][part], 0, part)
        found = self.measured("layer", "--router", "switch", "--capacity", 1.25, "--size", "96,16,4,1", "--rounds", 1, "--clusters", 0)
        self.assertEqual((found["capacity"], found["clusters"], found["twin"]), (1.25, 0, None))
        self.assertEqual(found["sizes"][0]["busiest"], 1, "places are computed, whoever stands there")

    def test_without_the_shuffle_nothing_is_drawn(self):
        found = self.measured("layer", "--size", "96,16,4,2", "--rounds", 1, "--no-shuffle", "--groups", 3, "--no-twin")
        self.assertEqual((found["groups"], found["shuffle"]), (3, False))

    def test_people_see_the_ratio_and_the_shares(self):
        result = ballast("bench", "layer", "--size", "96,16,4,2", "--rounds", 1, "--device", "cpu", "--no-twin")
        self.assertEqual(result.returncode, 0, result.stderr)
        for words in ["T=96 D=16 E=4", "assigned", "dense", "experts", "assignment"]:
            self.assertIn(words, result.stdout)

    def test_what_cannot_be_measured_is_refused(self):
        self.refused("layer", "--size", "96,16,4", says="--size: want 4 numbers")
        self.refused("layer", "--size", "96,16,4,2,1", says="--size: want 4 numbers")
        self.refused("layer", "--size", "96,16,four,2", says="--size: want 4 numbers")
        self.refused("layer", "--size", "0,16,4,2", says="--size: want at least 1 token")
        self.refused("layer", "--size", "96,16,0,2", says="experts.count")
        self.refused("layer", "--size", "96,16,4,0", says="--size: want at least 1 sublayer")
        self.refused("layer", "--size", "96,16,4,2", "--groups", 5, says="--groups: 5 groups do not divide 96 tokens")
        self.refused("layer", "--router", "best", says="--router")
        self.refused("layer", "--capacity=-2", says="experts.capacity")
        self.refused("layer", "--router", "switch", "--python", "/no/python", "--size", "96,16,4,1", says="/no/python")
        self.refused("layer", "--mode", "fast", says="--mode")
        for option in ["--groups", "--rounds"]:
            self.refused("layer", option, 0, says="at least 1")
        self.refused("layer", "--threads", -1, says="at least 0")


class BenchStepWithExperts(Bench):
    def test_a_base_model_beside_the_dense_model_of_the_same_operations(self):
        found = self.measured("step", "--size", "32,16,4,2,8,4", "--experts", "4,2,2", "--experts", "1,1", "--rounds", 2, "--steps", 2, "--no-twin")
        self.assertIsNone(found["twin"])
        self.assertEqual([(s["experts"], s["sublayers"], s["groups"]) for s in found["sizes"]], [(4, 2, 2), (1, 1, 1)])
        for size in found["sizes"]:
            dense = size["dense"]
            # The feed-forwards of 4 blocks share what the sublayers of one expert compute.
            self.assertEqual(dense["hidden"], 64 + size["sublayers"] * 64 // 4)
            affinities = 2 * 16 * size["experts"]
            self.assertEqual(size["flops_per_token"] - affinities, dense["flops_per_token"])
            self.assertAlmostEqual(size["ratio"], size["step_ms"] / dense["step_ms"])
            self.assertTrue(size["optimizer_ms"] > 0 and dense["optimizer_ms"] > 0)
            apart = size["step_ms"] - (size["optimizer_ms"] - dense["optimizer_ms"])
            self.assertAlmostEqual(size["of_dense_but_optimizer"], dense["step_ms"] / apart)
            self.assertAlmostEqual(size["ratio_per_flop"], size["ratio"] * dense["flops_per_token"] / size["flops_per_token"])
            self.assertGreater(size["assign_share"], 0)
            self.assertLess(size["assign_share"], 1)
            self.assertEqual(size["exchange_share"], 0, "one worker sends nothing")
            for key in ["twin_step_ms", "twin_tokens_per_second", "twin_assign_ms", "speedup"]:
                self.assertIsNone(size[key])

    def test_without_experts_there_is_no_dense_peer(self):
        found = self.measured("step", "--size", "32,16,1,2,8,4", "--rounds", 1, "--steps", 1, "--no-twin")
        self.assertNotIn("experts", found["sizes"][0])
        self.assertNotIn("dense", found["sizes"][0])

    def test_people_see_both_times_operations_and_shares(self):
        result = ballast("bench", "step", "--size", "32,16,4,2,8,4", "--experts", "4,2", "--rounds", 1, "--steps", 1, "--device", "cpu", "--no-twin")
        self.assertEqual(result.returncode, 0, result.stderr)
        for words in ["E=4", "dense", "FLOP", "assignment"]:
            self.assertIn(words, result.stdout)

    def test_what_cannot_be_measured_is_refused(self):
        self.refused("step", "--experts", "4", says="--experts: want 2 or 3 numbers")
        self.refused("step", "--experts", "4,2,1,1", says="--experts: want 2 or 3 numbers")
        self.refused("step", "--experts", "4,0", says="--experts: want at least 1 sublayer")
        self.refused("step", "--experts", "0,2", says="experts.count")
        self.refused("step", "--size", "32,16,4,2,8,4", "--experts", "4,2,3", says="experts.groups")
        self.refused("step", "--size", "32,16,4", says="--size: want 6 numbers")
        for option in ["--rounds", "--steps"]:
            self.refused("step", option, -1, says="at least 1")
        self.refused("step", "--threads", -1, says="at least 0")
        self.refused("step", "--size", "32,16,4,2,8,4", "--experts", "4,1", "--python", "/no/python", says="/no/python")

    def test_experts_that_do_not_divide_the_tokens_have_no_twin(self):
        size = ["--size", "32,16,4,2,8,4", "--experts"]
        for experts, reason in [("5,1", "5 do not divide 32"), ("4,1,2", "one routing group, not 2")]:
            result = ballast("bench", "step", *size, experts, "--rounds", 1, "--steps", 1, "--device", "cpu")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("warning: no twin in PyTorch: ", result.stderr)
            self.assertIn(reason, result.stderr)
            self.refused("step", *size, experts, "--mode", "eager", says=reason)
        self.refused("step", "--systems", "dense", "--mode", "eager", says="no twin of --systems")
        self.refused("step", "--chunks", "2", says="want --systems")
        self.refused("step", "--hops", "2", says="want --systems")
        self.refused("step", "--size", "32,16,4,2,8,4", "--python", "/bin/echo", says="instead of being ready")


class TwinIsMissing(unittest.TestCase):
    """The program alone, without benchmarks/twin beside it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.place = Path(folder.name).resolve() / "somewhere" / "bin"
        self.place.mkdir(parents=True)
        for path in BUILD.iterdir():
            if path.name in ("ballast", "ballast-bench"):
                shutil.copy2(path, self.place)
            elif path.suffix == ".so":
                (self.place / path.name).symlink_to(path)

    def run_there(self, *arguments):
        return subprocess.run([self.place / "ballast", "bench", "step", "--size", "32,16,1,2,8,4", "--rounds", "1", "--steps", "1",
                               "--device", "cpu", *arguments], capture_output=True, text=True, timeout=120)

    def test_it_is_said_where_it_was_looked_for(self):
        result = self.run_there()
        self.assertEqual(result.returncode, 0, result.stderr)
        for folder in [self.place.parent / "share" / "ballast", self.place.parent.parent]:
            self.assertIn(f"{folder}/benchmarks/twin/step_twin.py", result.stderr)

    def test_who_asks_for_it_is_refused(self):
        for arguments in [["--python", "python3"], ["--mode", "eager"]]:
            result = self.run_there(*arguments)
            self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
            self.assertIn("benchmarks/twin/step_twin.py", result.stderr)


if __name__ == "__main__":
    unittest.main()
