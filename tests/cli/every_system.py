# SPDX-License-Identifier: Apache-2.0
"""Trains each system of the paper on the built-in corpus, on the same steps, and looks at its experts."""

from in_folder import InFolder

# Two blocks of width 32 on bytes, 0.8M of them.
SETTING = (
    "--model.width=32 --model.layers=2 --model.heads=2 --model.context=64 --training.batch=16 "
    "--training.validate_every=0 --training.validate_batches=16 --training.last_validate_batches=16 --training.sample_tokens=0 --training.log_every=100 "
    "--data.builtin_bytes=1_000_000 --optimizer.learning_rate=5e-3 --checkpoint.every=0"
).split()
EXPERTS = "--experts.count=8 --experts.groups=2".split()
BETWEEN = [*EXPERTS, "--experts.layers=1", "--experts.sublayers=2"]
IN_PLACE = [*EXPERTS, "--experts.layers=1", "--experts.placement=replace"]
GATES = "--experts.scores=dot --experts.router_rate=1 --experts.look_ahead=false".split()  # their papers' frame
SYSTEMS = {
    "dense": ["--workers", 2],
    "model_parallel": ["--workers", 2, "--training.model_parallel=2"],
    "base": BETWEEN,
    "sparsely_gated": [*IN_PLACE, *GATES, "--experts.router=sparsely_gated"],
    "switch": [*IN_PLACE, *GATES, "--experts.router=switch"],
    "gates_between_blocks": [*BETWEEN, *GATES, "--experts.router=sparsely_gated"],
}


class EverySystem(InFolder):
    steps = 0

    def train(self, name, below):
        steps = [f"--training.steps={self.steps}", f"--optimizer.warmup_steps={self.steps // 10}"]
        self.run_well("train", *SETTING, *steps, *SYSTEMS[name], "--run", "run")
        self.assertLess(self.validation("run")["valid_perplexity"], below)

    def check_experts(self):
        """They take part: a layer between blocks that did nothing would leave a dense model, which learns as well."""
        steps = [line for line in self.records("run") if "layers" in line]
        self.assertEqual(len(steps), self.steps)
        self.assertGreater(min(line["expert_grad_norm"] for line in steps), 0)
        return [line["layers"][0] for line in steps]

    def check_use(self, dead=None):
        """More than half of the experts get tokens of the validation; `dead` are those that are told to get none."""
        use = self.validation("run")["experts"][0]
        self.assertGreater(sum(load > 0 for load in use["loads"]), 4)
        if dead is not None:
            self.assertEqual(use["dead_experts"], dead)

    def check_routing(self):
        """The balance loss has kept experts in use, and some choices were dropped on the way."""
        layers = self.check_experts()
        self.assertTrue(all(0.5 < layer["balance_loss"] <= 8 for layer in layers))
        self.assertLess(layers[-1]["balance_loss"], 1.5)
        self.assertTrue(any(layer["dropped_share"] > 0 for layer in layers))
        self.assertLess(layers[-1]["dropped_share"], 0.3)
        self.assertTrue(all(layer["passed_share"] <= layer["dropped_share"] * 2 for layer in layers))
