# SPDX-License-Identifier: Apache-2.0
"""Imports torch and the package as it was built: what all tests of it begin with."""

import os
import sys
from pathlib import Path

SOURCE = Path(os.environ["BALLAST_SOURCE"])
BUILD = Path(os.environ["BALLAST_BUILD"])
BALLAST = BUILD / "ballast"
sys.path[:0] = [str(BUILD / "python"), str(SOURCE / "tests" / "oracles")]

import torch_of_build  # noqa: E402, F401  torch before anybody else imports it
import ballast  # noqa: E402
import ballast.nn  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)
