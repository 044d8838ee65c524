# SPDX-License-Identifier: Apache-2.0
"""A trace of some steps, for Chrome's and Perfetto's viewers."""

import json
import unittest

from in_folder import InFolder

TINY = (
    "--model.width=32 --model.layers=2 --model.heads=2 --model.context=32 --training.batch=8 --training.threads=1 "
    "--training.validate_every=0 --training.validate_batches=1 --training.sample_tokens=0 --data.builtin_bytes=60000 "
    "--training.steps=7 --training.log_every=4 --checkpoint.every=0 --training.device=cpu"
).split()
BASE = ["--experts.layers=1", "--experts.count=4", "--experts.sublayers=1"]


class Profile(InFolder):
    def trace(self, run):
        """The file's ranges: all have a name, a beginning and a length."""
        trace = json.loads((self.folder / run / "profile.json").read_text())
        events = trace["traceEvents"]
        for event in events:
            self.assertIsInstance(event["ph"], str)
        ranges = [event for event in events if event["ph"] == "X"]
        for event in ranges:
            self.assertIsInstance(event["name"], str)
            self.assertIsInstance(event["ts"], (int, float))
            self.assertGreaterEqual(event["dur"], 0)
        tracks = [e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"]
        self.assertEqual(tracks.count("parts"), 1)
        return ranges

    def of_kind(self, ranges, kind):
        return sorted((e for e in ranges if e.get("cat") == kind), key=lambda e: e["ts"])

    def parts_of_steps(self, ranges):
        """Names of the parts in each step, in their order; each is within its step and before the next."""
        steps = {step["name"]: [] for step in self.of_kind(ranges, "step")}
        parts = self.of_kind(ranges, "part")
        for part, after in zip(parts, parts[1:]):
            self.assertLessEqual(part["ts"] + part["dur"], after["ts"] + 0.001)  # a nanosecond: they are rounded
        for step in self.of_kind(ranges, "step"):
            inside = [p for p in parts if step["ts"] <= p["ts"] and p["ts"] + p["dur"] <= step["ts"] + step["dur"] + 0.001]
            steps[step["name"]] = [part["name"] for part in inside]
        self.assertEqual(sum(map(len, steps.values())), len(parts))
        return steps

    def test_steps_and_their_parts_are_in_it(self):
        result = self.run_well("train", "--run", "traced", *TINY, *BASE, "--profile", "2")
        self.assertIn("steps 4 to 5 are in traced/profile.json", result.stderr)
        self.assertNotIn("ERROR", result.stderr)  # of the profiler, which looks for a GPU
        self.assertEqual(list((self.folder / "traced").glob("profile.json?*")), [])  # nothing half done
        ranges = self.trace("traced")
        steps = self.parts_of_steps(ranges)
        self.assertEqual(list(steps), ["step 4", "step 5"])
        # Two blocks, with the layer of experts after the first, there and back.
        block, layer = ["attention", "feed_forward"], ["experts", "assignment", "experts"]
        forward = ["vocabulary", *block, *layer, *block, "vocabulary"]
        for parts in steps.values():
            self.assertEqual(parts, forward + forward[-2::-1] + ["optimizer"])
        # Operators are there too, by the same clock: each part but a moment's has some within it.
        operators = self.of_kind(ranges, "cpu_op")
        for part in self.of_kind(ranges, "part"):
            end = part["ts"] + part["dur"]
            if part["name"] in ("attention", "feed_forward", "vocabulary", "optimizer"):
                self.assertTrue(any(part["ts"] <= e["ts"] and e["ts"] + e["dur"] <= end for e in operators), part)

    def test_the_losses_are_those_of_a_run_without(self):
        self.run_well("train", "--run", "traced", *TINY, *BASE, "--profile", "2")
        self.run_well("train", "--run", "plain", *TINY, *BASE)
        self.assertEqual(self.losses("traced"), self.losses("plain"))
        self.assertFalse((self.folder / "plain" / "profile.json").exists())
        self.assertEqual((self.folder / "traced" / "config.toml").read_text(), (self.folder / "plain" / "config.toml").read_text())

    def test_a_short_run_is_traced_as_far_as_it_goes(self):
        result = self.run_well("train", "--run", "short", *TINY, "--training.steps=2", "--profile", "5")
        self.assertIn("steps 1 to 2 are in", result.stderr)
        self.assertEqual(list(self.parts_of_steps(self.trace("short"))), ["step 1", "step 2"])
        self.run_well("train", "--run", "short", "--resume", "auto", "--training.steps=8", "--profile", "1")
        self.assertEqual(list(self.parts_of_steps(self.trace("short"))), ["step 6"])

    def test_of_several_workers_the_first_writes_it(self):
        self.run_well("train", "--run", "two", *TINY, *BASE, "--profile", "1", "--workers", "2")
        parts = self.parts_of_steps(self.trace("two"))
        self.assertEqual(list(parts), ["step 4"])
        self.assertIn("communication", parts["step 4"])
        self.assertEqual([file.name for file in (self.folder / "two").glob("profile*")], ["profile.json"])

    def test_a_number_that_makes_no_sense_is_refused(self):
        for number in ("0", "-1", "two"):
            self.refused("train", "--run", "none", *TINY, "--profile", number, says=["--profile", "is not a whole number of at least 1"])
        self.assertFalse((self.folder / "none").exists())


if __name__ == "__main__":
    unittest.main()
