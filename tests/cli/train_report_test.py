# SPDX-License-Identifier: Apache-2.0
"""`ballast train --report`: a run ends with its page."""

import json
import unittest

from in_folder import InFolder

TINY = (
    "--model.width=16 --model.layers=2 --model.heads=2 --model.context=32 --training.batch=8 --training.threads=1 "
    "--training.validate_batches=1 --training.sample_tokens=0 --data.builtin_bytes=100000 --experts.layers=1 "
    "--experts.sublayers=1 --experts.count=4 --experts.groups=2 --checkpoint.every=0"
).split()


class TrainReport(InFolder):
    def train(self, *arguments):
        return json.loads(self.run_well("train", "--run", "run", *TINY, "--json", *arguments).stdout)

    def test_a_finished_run_has_its_page(self):
        for steps, workers in ((4, 1), (6, 2)):
            found = self.train("--report", f"--training.steps={steps}", f"--workers={workers}", "--resume=auto")
            self.assertEqual(found["report"], "run/report/index.html")
            page = (self.folder / found["report"]).read_text()
            self.assertIn("<title>run · BASE x1, 4 experts · Ballast report</title>", page)
            self.assertEqual("--workers=2" in page and ", 2 workers" in page, workers == 2)  # the whole command
            self.assertTrue((self.folder / "run/report/figures/perplexity_time.svg").exists())

    def test_without_it_there_is_none_and_a_stopped_run_has_what_there_is(self):
        self.assertIsNone(self.train("--training.steps=4")["report"])
        self.assertFalse((self.folder / "run/report").exists())
        found = self.train("--report", "--resume=auto", "--training.steps=1000000", "--training.max_time=1s")
        self.assertFalse(found["finished"])
        self.assertIn("of 1000000", (self.folder / found["report"]).read_text())

    def test_a_page_that_cannot_be_written_does_not_fail_the_run(self):
        self.train("--training.steps=4")
        (self.folder / "run/report").write_text("a file where a folder should be")
        done = self.run_well("train", "--run", "run", *TINY, "--report", "--resume=auto", "--training.steps=6")
        self.assertIn("no report was written", done.stderr)


if __name__ == "__main__":
    unittest.main()
