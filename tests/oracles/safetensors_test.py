# SPDX-License-Identifier: Apache-2.0
"""Our safetensors files and the official package's: each reads the other's."""
import json
import os
import pathlib
import random
import subprocess
import tempfile
import unittest

import numpy
import safetensors
import safetensors.numpy

TOOL = os.path.join(os.environ["BALLAST_BUILD"], "safetensors_tool")
SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E8M0": 1, "I16": 2, "U16": 2, "F16": 2,
         "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "C64": 8, "F64": 8, "I64": 8, "U64": 8}
NUMPY_DTYPES = {"BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "F16": "float16",
                "I32": "int32", "U32": "uint32", "F32": "float32", "F64": "float64", "I64": "int64", "U64": "uint64"}


def tensor(name, dtype, shape, seed=0):
    count = SIZES[dtype] * int(numpy.prod(shape))
    values = random.Random(f"{name}{seed}")
    top = 1 if dtype == "BOOL" else 255
    return {"name": name, "dtype": dtype, "shape": shape,
            "bytes": bytes(values.randint(0, top) for _ in range(count)).hex()}


def run_tool(mode, path, spec):
    subprocess.run([TOOL, mode, path], input=json.dumps(spec), text=True, check=True)


def read_ours(paths):
    output = subprocess.run([TOOL, "read", *paths], stdout=subprocess.PIPE, check=True).stdout
    return [json.loads(line) for line in output.splitlines()]


def official(path):
    """The official reader's view in the form of the tool's."""
    entries = safetensors.deserialize(pathlib.Path(path).read_bytes())
    return sorted((name, e["dtype"], list(e["shape"]), bytes(e["data"]).hex()) for name, e in entries)


def plain(tensors):
    return sorted((t["name"], t["dtype"], t["shape"], t["bytes"]) for t in tensors)


class SafetensorsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.tensors = [tensor(f"of {dtype}", dtype, [3, 5]) for dtype in SIZES]
        self.tensors += [tensor("scalar", "F32", []), tensor("empty", "F32", [0, 4]), tensor("one", "BF16", [1, 1, 1]),
                         tensor('quote " backslash \\ tab \t line \n delete \x7f', "U8", [2]),
                         tensor("Größe 😀", "I64", [2])]

    def path(self, name):
        return os.path.join(self.folder, name)

    def test_official_reader_accepts_ours(self):
        metadata = {"format": "pt", "text": "line\n\"é\""}
        run_tool("write", self.path("ours"), {"metadata": metadata, "tensors": self.tensors})
        self.assertEqual(official(self.path("ours")), plain(self.tensors))
        with safetensors.safe_open(self.path("ours"), framework="numpy") as file:
            self.assertEqual(file.metadata(), metadata)
            self.assertEqual(set(file.keys()), {t["name"] for t in self.tensors})
        numeric = [t for t in self.tensors if t["dtype"] in NUMPY_DTYPES]
        run_tool("write", self.path("numeric"), {"metadata": {}, "tensors": numeric})
        for name, array in safetensors.numpy.load_file(self.path("numeric")).items():
            wanted = next(t for t in numeric if t["name"] == name)
            self.assertEqual(array.dtype, NUMPY_DTYPES[wanted["dtype"]])
            self.assertEqual(array.tobytes().hex(), wanted["bytes"])

    def test_official_reader_accepts_exports(self):
        run_tool("export", self.path("export"), {"metadata": {"tokens": "5"}, "tensors": self.tensors})
        self.assertEqual(official(self.path("export")), plain(self.tensors))
        with safetensors.safe_open(self.path("export"), framework="numpy") as file:
            manifest = json.loads(file.metadata()["ballast.manifest"])
        self.assertEqual(manifest["state"], {"tokens": "5"})
        self.assertEqual(len(manifest["tensors"]), len(self.tensors))

    def test_we_read_official_files_and_write_the_same_bytes(self):
        numeric = [t for t in self.tensors if t["dtype"] in NUMPY_DTYPES]
        arrays = {t["name"]: numpy.frombuffer(bytes.fromhex(t["bytes"]), NUMPY_DTYPES[t["dtype"]]).reshape(t["shape"])
                  for t in numeric}
        metadata = {"one": "key"}  # the official writer shuffles several
        safetensors.numpy.save_file(arrays, self.path("theirs"), metadata=metadata)
        [read] = read_ours([self.path("theirs")])
        self.assertEqual(read["metadata"], metadata)
        self.assertEqual(plain(read["tensors"]), plain(numeric))
        run_tool("write", self.path("ours"), {"metadata": metadata, "tensors": numeric})
        self.assertEqual(pathlib.Path(self.path("ours")).read_bytes(), pathlib.Path(self.path("theirs")).read_bytes())

    def test_what_we_accept_of_damaged_files_the_official_reader_accepts_too(self):
        small = [tensor("layer.weight", "F32", [2, 3]), tensor("bias", "BF16", [3]), tensor("mask", "U8", [5])]
        run_tool("write", self.path("whole"), {"metadata": {"a": "b"}, "tensors": small})
        whole = pathlib.Path(self.path("whole")).read_bytes()
        header = 8 + int.from_bytes(whole[:8], "little")
        values = random.Random(1)
        paths = []
        for number in range(2000):
            changed = bytearray(whole)
            for _ in range(values.randint(1, 2)):
                changed[values.randrange(header)] = values.choice(b'0123456789{}[]":, aU\x00\xff')
            paths.append(self.path(f"changed_{number}"))
            pathlib.Path(paths[-1]).write_bytes(changed)
        accepted = 0
        for path, ours in zip(paths, read_ours(paths)):
            if "error" in ours:
                continue
            accepted += 1
            self.assertEqual(official(path), plain(ours["tensors"]))
        self.assertGreater(accepted, 20)
        self.assertLess(accepted, 1000)


if __name__ == "__main__":
    unittest.main()
