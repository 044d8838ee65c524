# SPDX-License-Identifier: Apache-2.0
"""`ballast bench kernels` measures what it says. Nothing here looks at how long it took."""

import unittest

from bench_case import Bench
from in_folder import ballast

NAMES = ["adam", "gradient_norm", "cross_entropy", "layer_norm", "embedding", "expert_gate", "spread_rows"]


class BenchKernels(Bench):
    def test_every_kernel_beside_libtorch(self):
        found = self.measured("kernels", "--size", "50,16,100,4", "--rounds", 3)
        self.assertEqual([found[name] for name in ["device", "dtype", "threads", "rounds", "tokens", "width", "vocabulary", "experts"]],
                         ["cpu", "Float", 1, 3, 50, 16, 100, 4])
        self.assertEqual([kernel["name"] for kernel in found["kernels"]], NAMES)
        for kernel in found["kernels"]:
            for name in ["kernel", "plain"]:
                self.assertGreater(kernel[f"{name}_fastest_ms"], 0, kernel)
                self.assertGreaterEqual(kernel[f"{name}_ms"], kernel[f"{name}_fastest_ms"])
            self.assertAlmostEqual(kernel["speedup"], kernel["plain_ms"] / kernel["kernel_ms"])
            self.assertAlmostEqual(kernel["gb_per_s"], 1e-6 * kernel["bytes"] / kernel["kernel_ms"])
        # In fp32 the weights are the master copy: it and two moments in and out, the gradient in and cleared.
        self.assertEqual([kernel["bytes"] for kernel in found["kernels"]],
                         [4 * 8 * 1600, 4 * 1600, 4 * 2 * 50 * 100, 4 * 5 * 800, 4 * 16 * (4 * 50 + 2 * (50 + 50)), 4 * 8 * 16 * 48, 4 * 4 * 800])

    def test_people_see_times_bytes_and_the_ratio(self):
        result = ballast("bench", "kernels", "--size", "50,16,100,4", "--rounds", 1, "--device", "cpu")
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()
        self.assertEqual([line.split()[0] for line in lines], NAMES)
        for line in lines:
            self.assertRegex(line, r"ms \| libtorch .* ms \| .*x \| .* MB, .* GB/s")

    def test_what_cannot_be_measured_is_refused(self):
        self.refused("kernels", "--size", "50,16,100", says="--size: want 4 numbers")
        self.refused("kernels", "--size", "0,16,100,1", says="--size: want numbers of at least 1")
        self.refused("kernels", "--size", "3,16,100,4", says="--size: want as many tokens as experts")
        self.refused("kernels", "--rounds", 0, says="at least 1")
        self.refused("kernels", "--threads", -1, says="at least 0")


if __name__ == "__main__":
    unittest.main()
