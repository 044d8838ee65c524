# SPDX-License-Identifier: Apache-2.0
"""Every system of the paper trains: its perplexity falls, and its experts take part. tests/long/systems_test.py states
what each one reaches."""

import unittest

from every_system import EverySystem

# A model that knows nothing has a perplexity of 256. Seen after so few steps: from 16 to 19, and gates in place of
# feed-forwards 21 (Sparsely Gated) and 30 (Switch).
BELOW = 40


class EverySystemTrains(EverySystem):
    steps = 160

    def test_dense_data_parallel(self):
        self.train("dense", BELOW)

    def test_model_parallel(self):
        self.train("model_parallel", BELOW)

    def test_base(self):
        self.train("base", BELOW)
        self.check_experts()

    def test_sparsely_gated(self):
        self.train("sparsely_gated", BELOW)
        self.check_routing()

    def test_switch(self):
        self.train("switch", BELOW)
        self.check_routing()

    def test_gates_between_blocks(self):
        self.train("gates_between_blocks", BELOW)
        self.check_experts()


if __name__ == "__main__":
    unittest.main()
