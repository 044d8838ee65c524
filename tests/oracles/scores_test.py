# SPDX-License-Identifier: Apache-2.0
"""Score files that numpy and safetensors write, as we read them; and lists that we write, as numpy reads them."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import numpy
import safetensors.numpy

TOOL = os.path.join(os.environ["BALLAST_BUILD"], "score_tool")


def read(*paths):
    output = subprocess.run([TOOL, "read", *map(str, paths)], stdout=subprocess.PIPE, check=True).stdout
    return [json.loads(line) for line in output.splitlines()]


class ScoreFiles(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.random = numpy.random.default_rng(3)

    def expect(self, found, values, kind):
        self.assertEqual((found.get("type"), found.get("shape")), (kind, list(values.shape)), found.get("error"))
        bits = numpy.array(found["scores"], dtype=numpy.uint32).reshape(values.shape)
        numpy.testing.assert_array_equal(bits, values.astype(numpy.float32).view(numpy.uint32))

    def test_arrays_of_every_type_order_and_byte_order(self):
        cases = []
        for dtype, kind in [("<f2", "float16"), (">f2", "float16"), ("<f4", "float32"), (">f4", "float32"),
                            ("<f8", "float32"), (">f8", "float32"), ("<i4", "float32"), (">i8", "float32"),
                            ("<u2", "float32"), ("|i1", "float32"), ("|b1", "float32")]:
            for order in "CF":
                for shape in [(5, 3), (1, 7), (7, 1), (0, 4)]:
                    values = numpy.array(self.random.normal(size=shape) * 50, dtype=dtype, order=order)
                    path = self.folder / f"{len(cases)}.npy"
                    numpy.save(path, values)
                    cases.append((path, values, kind))
        for (_, values, kind), found in zip(cases, read(*(path for path, _, _ in cases))):
            with self.subTest(dtype=values.dtype.str, shape=values.shape):
                self.expect(found, values, kind)

    def test_every_version_of_the_format(self):
        values = self.random.normal(size=(4, 6)).astype(numpy.float32)
        for version in [(1, 0), (2, 0), (3, 0)]:
            path = self.folder / "scores.npy"
            with open(path, "wb") as file:
                numpy.lib.format.write_array(file, values, version=version)
            self.expect(read(path)[0], values, "float32")

    def test_a_slice_and_a_transposed_array(self):
        values = self.random.normal(size=(8, 6))
        for name, view in [("slice", values[::2, 1:5]), ("transposed", values.T)]:
            numpy.save(self.folder / f"{name}.npy", view)
            self.expect(read(self.folder / f"{name}.npy")[0], view, "float32")

    def test_what_numpy_can_write_and_we_cannot_use_is_refused(self):
        for name, values in [("text", numpy.array([["a"]])), ("complex", numpy.ones((2, 2), complex)),
                             ("records", numpy.zeros((2, 2), dtype=[("x", "f4")])), ("flat", numpy.ones(4)),
                             ("objects", numpy.array([[None]], dtype=object)), ("scalar", numpy.float32(1))]:
            path = self.folder / f"{name}.npy"
            numpy.save(path, values, allow_pickle=True)
            self.assertIn(str(path), read(path)[0].get("error", "read"), name)

    def test_safetensors(self):
        path = self.folder / "scores.safetensors"
        for dtype, kind in [("float16", "float16"), ("float32", "float32"), ("float64", "float32")]:
            values = self.random.normal(size=(5, 3)).astype(dtype)
            safetensors.numpy.save_file({"scores": values, "bias": values[0].copy()}, path)
            self.expect(read(path)[0], values, kind)
            self.expect(read(f"{path}:scores")[0], values, kind)

    def test_what_savetxt_writes(self):
        values = self.random.normal(size=(9, 4)).astype(numpy.float32)
        for name, options in [("plain.txt", {}), ("comma.csv", {"delimiter": ","}), ("tab.csv", {"delimiter": "\t"}),
                              ("semicolon.csv", {"delimiter": ";"}), ("titled.csv", {"delimiter": ",", "header": "a,b"}),
                              ("bare.csv", {"delimiter": ",", "header": "a,b,c,d", "comments": ""}),
                              ("dos.csv", {"delimiter": ",", "newline": "\r\n"})]:
            numpy.savetxt(self.folder / name, values, **options)
            self.expect(read(self.folder / name)[0], values, "float32")

    def test_numpy_reads_the_lists_we_write(self):
        ids, prices = [3, 0, 2147483647, 5], [0.0, 0.1, 1e-300, 123456789.125]
        for name, numbers, dtype in [("ids", ids, "int32"), ("prices", prices, "float64"), ("ids", [], "int32")]:
            files = [str(self.folder / "list.npy"), str(self.folder / "list.csv")]
            subprocess.run([TOOL, "write", name, *files], input=json.dumps(numbers), text=True, check=True)
            array = numpy.load(files[0])
            self.assertEqual((array.dtype, array.shape), (numpy.dtype(dtype), (len(numbers),)))
            self.assertEqual(array.tolist(), numbers)
            self.assertEqual(os.path.getsize(files[0]) % 64, array.nbytes % 64)  # the data is aligned
            if numbers:
                self.assertEqual(numpy.loadtxt(files[1], dtype=dtype, ndmin=1).tolist(), numbers)


if __name__ == "__main__":
    unittest.main()
