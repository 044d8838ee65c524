# SPDX-License-Identifier: Apache-2.0
"""The package as it is installed, away from checkout and build: README's examples, and the one that trains, run there."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import package

PREPARE = "import sys; sys.path.insert(0, {!r}); import torch_of_build\n".format(str(package.SOURCE / "tests" / "oracles"))


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        subprocess.run(["cmake", "--install", package.BUILD, "--component", "python", "--prefix", cls.folder / "site"],
                       check=True, capture_output=True)
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(package.SOURCE / "python" / "ballast", cls.folder / "site" / "ballast", dirs_exist_ok=True, ignore=ignored)

    def run_python(self, *words, **options):
        environment = dict(os.environ, PYTHONPATH=str(self.folder / "site"), OMP_NUM_THREADS="1")
        result = subprocess.run([sys.executable, "-B", *words], cwd=self.folder, env=environment, capture_output=True, text=True,
                                timeout=300, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_readme(self):
        text = (package.SOURCE / "python" / "README.md").read_text()
        blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        self.assertEqual(len(blocks), 3)
        checks = "assert found.loads.tolist() == [16] * 128 and found.certificate.gap == 0\nassert y.shape == (4, 256, 512)\n"
        self.run_python("-c", PREPARE + blocks[0] + blocks[1] + checks)

    def test_libraries_need_each_other_torch_and_what_every_machine_has(self):
        folder = self.folder / "site" / "ballast" / "lib"
        names = {path.name for path in folder.iterdir()}
        self.assertLessEqual({"libballast_assign.so", "libballast_python.so", "libballast_models.so", "libballast_experts.so"}, names)
        elsewhere = re.compile(r"lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|gomp|torch\w*|c10\w*|cu\w+|nccl|cudart)\.so|ld-linux")
        for library in folder.glob("*.so*"):
            listing = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
            needed = re.findall(r"\(NEEDED\).*\[(.*)\]", listing)
            self.assertEqual([name for name in needed if name not in names and not elsewhere.match(name)], [], library)
            if library.name.startswith("libballast"):
                self.assertEqual(re.findall(r"R(?:UN)?PATH\).*\[(.*)\]", listing), ["$ORIGIN"], library)

    def test_the_example_learns(self):
        (self.folder / "text").mkdir()
        (self.folder / "text" / "a.txt").write_text("the cat sat on the mat and looked at the dog; " * 200)
        script = shutil.copy(package.SOURCE / "examples" / "python" / "train.py", self.folder)
        sizes = "--steps 60 --width 32 --context 32 --batch 8 --blocks 2 --experts 4 --rate 0.01".split()
        for router in ("base", "switch"):
            program = PREPARE + f"import runpy; sys.argv = {[script, 'text', '--router', router, *sizes]!r}; runpy.run_path({script!r}, run_name='__main__')"
            told = self.run_python("-c", program)
            first, last = (float(x) for x in re.findall(r"loss ([\d.]+)", told))
            self.assertLess(last, 2.5, told)
            self.assertRegex(told, r"held out: [\d.]+ bits a byte")


if __name__ == "__main__":
    unittest.main()
