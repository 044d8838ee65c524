# SPDX-License-Identifier: Apache-2.0
"""The official TensorBoard reader reads our event files, across resumes."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import numpy
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator as PageAccumulator

TOOL = os.path.join(os.environ["BALLAST_BUILD"], "event_writer")


def step(number, scalars=None, texts=None):
    return {"step": number, "scalars": scalars or {}, "texts": texts or {}}


class TensorboardTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, lines):
        subprocess.run([TOOL, self.folder], input="\n".join(map(json.dumps, lines)), text=True, check=True)

    def load(self):
        accumulator = EventAccumulator(self.folder, size_guidance={"scalars": 0, "tensors": 0})
        accumulator.Reload()
        return accumulator

    def scalars(self, tag):
        scalars = [(event.step, event.value) for event in self.load().Scalars(tag)]
        page = PageAccumulator(self.folder, size_guidance={"tensors": 0})  # behind TensorBoard's pages
        page.Reload()
        self.assertEqual([(e.step, e.tensor_proto.float_val[0]) for e in page.Tensors(tag)], scalars)
        return scalars

    def test_scalars_come_back(self):
        values = [0.1, -2.5e30, 0.0, 1e-30, 3.0]
        self.write([{"first_step": 0}] + [step(i * 2**33, {"train/loss": v, "größe": 1}) for i, v in enumerate(values)])
        self.assertEqual(self.scalars("train/loss"), [(i * 2**33, float(numpy.float32(v))) for i, v in enumerate(values)])
        self.assertEqual(set(self.load().Tags()["scalars"]), {"train/loss", "größe"})
        for event in self.load().Scalars("größe"):
            self.assertGreater(event.wall_time, 1.6e9)

    def test_texts_come_back_as_texts(self):
        text = "[model]\nwidth = 128  # Größe\n" * 1000
        self.write([{"first_step": 0}, step(0, texts={"config": text}), step(500, texts={"sample": "Once"})])
        accumulator = self.load()
        self.assertEqual([(e.step, e.tensor_proto.string_val) for e in accumulator.Tensors("config")],
                         [(0, [text.encode()])])
        self.assertEqual([(e.step, e.tensor_proto.string_val) for e in accumulator.Tensors("sample")], [(500, [b"Once"])])
        self.assertEqual(accumulator.SummaryMetadata("sample").plugin_data.plugin_name, "text")

    def test_a_resumed_run_has_each_step_once(self):
        self.write([{"first_step": 0}] + [step(i, {"loss": i}) for i in range(0, 10)])
        self.write([{"first_step": 6}] + [step(i, {"loss": -i}) for i in range(6, 12)])  # within the same second
        self.assertEqual(self.scalars("loss"), [(i, float(i)) for i in range(6)] + [(i, float(-i)) for i in range(6, 12)])
        self.write([{"first_step": 12}] + [step(i, {"loss": i}) for i in range(12, 15)])
        self.assertEqual([s for s, _ in self.scalars("loss")], list(range(15)))
        self.write([{"first_step": 0}] + [step(i, {"loss": 7}) for i in range(0, 3)])  # from the start
        self.assertEqual(self.scalars("loss"), [(i, 7.0) for i in range(3)])

    def test_a_file_torn_by_a_crash_is_read_up_to_there(self):
        self.write([{"first_step": 0}] + [step(i, {"loss": i}) for i in range(0, 3)])
        [file] = pathlib.Path(self.folder).iterdir()
        file.write_bytes(file.read_bytes()[:-5])
        self.assertEqual([s for s, _ in self.scalars("loss")], [0, 1])
        self.write([{"first_step": 2}, step(2, {"loss": 2})])
        self.assertEqual([s for s, _ in self.scalars("loss")], [0, 1, 2])

    def test_the_first_event_is_the_version(self):
        self.write([{"first_step": 3}])
        [file] = pathlib.Path(self.folder).iterdir()
        version, start = EventFileLoader(str(file)).Load()
        self.assertEqual(version.file_version, "brain.Event:2")
        self.assertEqual((start.step, start.session_log.status), (3, 1))


if __name__ == "__main__":
    unittest.main()
