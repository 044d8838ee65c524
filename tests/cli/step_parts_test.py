# SPDX-License-Identifier: Apache-2.0
"""Where the time of a step goes, in metrics.jsonl and TensorBoard."""

import unittest

from in_folder import InFolder

TINY = (
    "--model.width=32 --model.layers=2 --model.heads=2 --model.context=32 --training.batch=8 --training.threads=1 "
    "--training.validate_every=0 --training.validate_batches=1 --training.sample_tokens=0 --data.builtin_bytes=60000 "
    "--training.steps=23 --training.log_every=10 --checkpoint.every=0"
).split()
DENSE = {"attention", "feed_forward", "vocabulary", "optimizer"}


class StepParts(InFolder):
    def parts(self, run, *arguments):
        """Of each step that has them."""
        self.run_well("train", "--run", run, *TINY, *arguments)
        found = {}
        for record in self.records(run):
            if "parts" not in record:
                continue
            found[record["step"]] = record["parts"]
            self.assertGreaterEqual(min(record["parts"].values()), 0)
            # A rate has been rounded: the step's time comes back to within a few units in the last place.
            self.assertLessEqual(sum(record["parts"].values()), 8 * 32 / record["tokens_per_second"] * (1 + 1e-12))
        return found

    def test_logged_steps_have_them(self):
        parts = self.parts("dense")
        self.assertEqual(sorted(parts), [1, 10, 20, 23])
        self.assertEqual([set(one) for one in parts.values()], [DENSE] * 4)
        events = b"".join(file.read_bytes() for file in (self.folder / "dense" / "tensorboard").iterdir())
        for name in DENSE:
            self.assertEqual(events.count(f"time/{name}".encode()), 4)

    def test_experts_and_workers_add_theirs(self):
        sparse = ["--experts.layers=1", "--experts.count=4", "--experts.sublayers=1"]
        self.assertEqual(set(self.parts("alone", *sparse)[10]), DENSE | {"experts", "assignment"})
        self.assertEqual(set(self.parts("two", *sparse, "--workers", "2")[10]), DENSE | {"experts", "assignment", "communication"})


if __name__ == "__main__":
    unittest.main()
