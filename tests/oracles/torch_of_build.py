# SPDX-License-Identifier: Apache-2.0
"""Imports torch: this environment's, or else the Python part of the libtorch that Ballast was built with.

That one came without the gigabytes of CUDA's libraries, which it is linked with and the CPU never calls. Where they
are missing an empty library takes the place of each, so that `import torch` works; symbols are bound when they are
first called, which is never.
"""

import ctypes
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

BUILD = Path(os.environ["BALLAST_BUILD"])


def cached(name):
    found = re.search(rf"^{name}:\w+=(.+)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE)
    return found[1] if found else None


def needed_by(library):
    listing = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.+)\]", listing)


def can_be_loaded(name):
    try:
        ctypes.CDLL(name)
        return True
    except OSError:
        return False


def stand_in_for(name, folder):
    library = folder / name
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        mine = library.with_suffix(f".{os.getpid()}")
        compiler = [cached("CMAKE_CXX_COMPILER"), "-shared", "-x", "c++", os.devnull, f"-Wl,-soname,{name}", "-o", mine]
        subprocess.run(compiler, check=True)
        mine.rename(library)
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


def import_torch():
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if importlib.util.find_spec("torch") is None:
        folder = Path(cached("Libtorch_FOUND_FOLDER"))
        sys.path.append(str(folder.parent))
        here = {path.name for path in [*folder.glob("lib/*.so*"), *folder.parent.glob("nvidia/*/lib/*.so*")]}
        for library in ("libtorch_python.so", "libtorch_cuda.so", "libtorch_nvshmem.so"):
            path = folder / "lib" / library
            for name in needed_by(path) if path.exists() else []:
                if name not in here and not can_be_loaded(name):
                    stand_in_for(name, BUILD / "oracles" / "no_cuda")
    flags = sys.getdlopenflags()
    sys.setdlopenflags(os.RTLD_LAZY)
    try:
        import torch
    finally:
        sys.setdlopenflags(flags)
    return torch


import_torch()
