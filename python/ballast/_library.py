# SPDX-License-Identifier: Apache-2.0
"""Finds and loads the compiled part of the package."""

import ctypes
import functools
from pathlib import Path

FOLDER = Path(__file__).absolute().parent / "lib"


def version() -> str:
    return (FOLDER / "ballast-version").read_text().strip()


@functools.cache
def assignment() -> ctypes.CDLL:
    """The solver alone. It needs no torch."""
    library = ctypes.CDLL(str(FOLDER / "libballast_assign.so"))
    library.ballast_assign.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    return library


@functools.cache
def operations():  # type: ignore[no-untyped-def]
    """torch.ops.ballast, with the CUDA kernels where torch has a GPU."""
    wanted = (FOLDER / "libtorch-version").read_text().strip()
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"this part of ballast needs torch {_minor(wanted)}: pip install 'torch=={_minor(wanted)}.*'") from error
    if _minor(torch.__version__) != _minor(wanted):
        # torch's C++ interface changes from version to version: another one would fail in obscure ways.
        raise ImportError(f"ballast was built for torch {_minor(wanted)}, and this is torch {torch.__version__}: install that "
                          f"one, or build ballast for this one (LIBTORCH={Path(torch.__file__).parent} pip install .)")
    torch.ops.load_library(str(FOLDER / "libballast_python.so"))
    torch.library.register_fake("ballast::balanced_assignment", _fake_assignment)
    cuda = FOLDER / "libballast_cuda.so"
    if cuda.exists() and torch.cuda.is_available():
        ctypes.CDLL(str(cuda), mode=ctypes.RTLD_GLOBAL)  # others look for what is in it
    return torch.ops.ballast


def _fake_assignment(scores, counted, capacities, forbids, gap):  # type: ignore[no-untyped-def]
    """Shapes and types of the operation's results, for torch.compile."""
    import torch

    problems, tokens, experts = scores.shape
    return (scores.new_empty((problems, tokens), dtype=torch.int32), scores.new_empty((problems, experts), dtype=torch.int32),
            scores.new_empty((problems, experts), dtype=torch.float64), torch.empty((problems, 5), dtype=torch.float64))


@functools.cache
def models():  # type: ignore[no-untyped-def]
    """torch.classes.ballast, for trained models."""
    operations()
    import torch

    torch.classes.load_library(str(FOLDER / "libballast_models.so"))
    return torch.classes.ballast


def _minor(version_text: str) -> str:
    return ".".join(version_text.split(".")[:2])
