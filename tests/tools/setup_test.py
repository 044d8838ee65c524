# SPDX-License-Identifier: Apache-2.0
"""tools/setup chooses libtorch by its rules and leaves nothing half done. Uses no network: the torch
folders are made here, and where it would install one, pip is told to use no index."""

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CHECKOUT = Path(os.environ["BALLAST_SOURCE"])


def make_torch(folder, version="2.11.0"):
    """The files that tools/setup looks at in a libtorch."""
    numbers = zip(("MAJOR", "MINOR", "PATCH"), version.split("."))
    files = {
        "__init__.py": "raise SystemExit('tools/setup must not import torch')",
        "include/ATen/core/Tensor.h": "",
        "include/torch/headeronly/version.h": "".join(f"#define TORCH_VERSION_{name} {n}\n" for name, n in numbers),
        "lib/libtorch_cpu.so": "",
        "lib/libc10.so": "",
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def make_arrow(environment):
    """What tools/setup looks at in the pyarrow of an environment, of the version it wants."""
    (requirement,) = re.findall("^pyarrow==(.*)$", (CHECKOUT / "tools/requirements.txt").read_text(), re.MULTILINE)
    (packages,) = environment.glob("lib/python3*/site-packages")
    config = packages / "pyarrow/include/arrow/util/config.h"
    config.parent.mkdir(parents=True)
    config.write_text(f'#define ARROW_VERSION_STRING "{requirement}"\n')
    return packages / "pyarrow"


# What tools/setup calls and looks for.
PROGRAMS = """apt-get bash cat dirname dpkg-query env flock grep id mkdir mv paste realpath rm sed sha256sum tail tr
    ccache chromium chromium-browser cmake g++ google-chrome mold mpirun ninja pkg-config python3 rsvg-convert""".split()


def is_open(folder):
    """Every user may run what is in it."""
    path = Path(folder).resolve()
    return path.exists() and all(place.stat().st_mode & stat.S_IXOTH for place in (path, *path.parents))


def setUpModule():
    """An environment with pip, which takes seconds to make and is the same for all."""
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    SetupCase.pip = Path(folder.name).resolve() / "python"
    subprocess.run([sys.executable, "-m", "venv", SetupCase.pip], check=True)
    make_arrow(SetupCase.pip)


class SetupCase(unittest.TestCase):
    user = {}  # who calls, where it is not the one who tests

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = Path(folder.name).resolve()
        self.root = self.top / "checkout"
        (self.root / "tools").mkdir(parents=True)
        for name in ("setup", "requirements.txt"):
            shutil.copy(CHECKOUT / "tools" / name, self.root / "tools" / name)
        (self.root / ".deps/cudnn-frontend").mkdir(parents=True)  # what is fetched where there is a CUDA compiler
        (self.root / ".deps/python").symlink_to(self.pip)
        (self.top / "site").mkdir()
        # The active Python's torch is the one in `site`, if any.
        self.environment = {
            **{k: v for k, v in os.environ.items() if k not in ("LIBTORCH", "PIP_FIND_LINKS")},
            "PYTHONPATH": str(self.top / "site"),
            "PIP_NO_INDEX": "1",
            "PIP_CONFIG_FILE": os.devnull,
        }

    def run_setup(self, *arguments, cwd=None, **environment):
        return subprocess.run(
            [self.root / "tools/setup", *arguments],
            env={**self.environment, **environment},
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=120,
            start_new_session=True,  # no terminal at which it could ask for a password
            **self.user,
        )

    def recorded(self):
        record = self.root / ".deps/libtorch"
        return record.read_text().strip() if record.exists() else None


class Setup(SetupCase):
    def test_the_one_that_is_given_wins(self):
        given = make_torch(self.top / "given")
        make_torch(self.top / "site/torch")
        result = self.run_setup(LIBTORCH=str(given))
        self.assertEqual((result.returncode, self.recorded()), (0, str(given)), result.stderr)

    def test_a_given_one_that_is_wrong_is_an_error(self):
        for given in (self.top / "nowhere", make_torch(self.top / "old", version="1.13.1")):
            result = self.run_setup(LIBTORCH=str(given))
            self.assertEqual((result.returncode, self.recorded()), (2, None))
            self.assertIn(str(given), result.stderr)

    def test_the_active_pythons_is_used_without_importing_it(self):
        torch = make_torch(self.top / "site/torch")
        result = self.run_setup()
        self.assertEqual((result.returncode, self.recorded()), (0, str(torch)), result.stderr)
        self.assertNotIn("warning", result.stderr)

    def test_another_version_gets_a_warning(self):
        torch = make_torch(self.top / "site/torch", version="2.9.1")
        result = self.run_setup()
        self.assertEqual((result.returncode, self.recorded()), (0, str(torch)), result.stderr)
        self.assertIn("warning", result.stderr)
        self.assertIn("2.9.1", result.stderr)

    def test_the_choice_is_kept_and_the_second_call_says_nothing(self):
        first = make_torch(self.top / "given")
        self.run_setup(LIBTORCH=str(first))
        make_torch(self.top / "site/torch")
        result = self.run_setup()
        self.assertEqual((result.returncode, result.stderr, self.recorded()), (0, "", str(first)))

    def test_a_choice_that_is_gone_is_made_again(self):
        first = make_torch(self.top / "given")
        self.run_setup(LIBTORCH=str(first))
        shutil.rmtree(first)
        torch = make_torch(self.top / "site/torch")
        result = self.run_setup()
        self.assertEqual((result.returncode, self.recorded()), (0, str(torch)), result.stderr)
        self.assertIn("gone", result.stderr)

    def test_one_with_the_old_abi_is_passed_over(self):
        torch = make_torch(self.top / "site/torch", version="2.4.0")
        config = torch / "share/cmake/Torch/TorchConfig.cmake"
        config.parent.mkdir(parents=True)
        config.write_text('set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=0")\n')
        result = self.run_setup()
        self.assertIn("passed over", result.stderr)
        self.assertIsNone(self.recorded())

    def test_an_installation_that_fails_leaves_nothing_that_looks_complete(self):
        result = self.run_setup()
        self.assertEqual(result.returncode, 2)
        self.assertIn("pip could not install", result.stderr)
        self.assertIsNone(self.recorded())
        self.assertFalse((self.root / ".deps/torch-2.11.0").exists())

    def test_half_an_installation_is_done_again(self):
        make_torch(self.root / ".deps/torch-2.11.0.partial/torch")
        result = self.run_setup()
        self.assertEqual((result.returncode, self.recorded()), (2, None), result.stderr)

    def test_tests_environment_that_fails_is_not_complete(self):
        make_torch(self.top / "site/torch")
        result = self.run_setup("--tests")
        self.assertEqual(result.returncode, 2)
        self.assertFalse((self.root / ".deps/python/complete").exists())

    def test_a_torch_in_the_current_folder_is_not_taken(self):
        make_torch(self.top / "data/torch")
        result = self.run_setup(cwd=self.top / "data")
        self.assertEqual((result.returncode, self.recorded()), (2, None), result.stderr)

    def test_where_arrow_is_stands_in_a_file(self):
        make_torch(self.top / "site/torch")
        result = self.run_setup()
        self.assertEqual(result.returncode, 0, result.stderr)
        folder = Path((self.root / ".deps/pyarrow").read_text().strip())
        self.assertTrue((folder / "include/arrow/util/config.h").exists(), folder)

    def test_without_arrow_all_else_is_set_up(self):
        (self.root / ".deps/python").unlink()
        subprocess.run([sys.executable, "-m", "venv", self.root / ".deps/python"], check=True)
        torch = make_torch(self.top / "site/torch")
        for another in (False, True):  # another version than the wanted one is none
            if another:
                config = make_arrow(self.root / ".deps/python") / "include/arrow/util/config.h"
                config.write_text('#define ARROW_VERSION_STRING "1.0.0"')
            result = self.run_setup()
            self.assertEqual((result.returncode, self.recorded()), (0, str(torch)), result.stderr)
            self.assertIn("will not read Parquet", result.stderr)
            self.assertEqual((self.root / ".deps/pyarrow").read_text(), "")

    def test_an_unknown_argument_is_refused(self):
        result = self.run_setup("--test")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--test", result.stderr)


class SetupWithoutRoot(SetupCase):
    """As a user who is not root, on this machine less some programs, or with others in their place."""

    def setUp(self):
        super().setUp()
        self.programs = self.top / "programs"
        self.programs.mkdir()
        for name in PROGRAMS:
            found = shutil.which(name, path=os.pathsep.join(folder for folder in os.get_exec_path() if is_open(folder)))
            if found:
                (self.programs / name).symlink_to(found)
        self.environment |= {"PATH": str(self.programs), "HOME": str(self.top)}
        if os.geteuid() == 0:
            nobody = 65534
            self.user = {"user": nobody, "group": nobody, "extra_groups": []}
            self.pip.parent.chmod(0o755)
            for path in (self.top, *self.top.rglob("*")):
                os.chown(path, nobody, nobody, follow_symlinks=False)

    def remove(self, *names):
        for name in names:
            (self.programs / name).unlink(missing_ok=True)

    def replace(self, name, script):
        self.remove(name)
        path = self.programs / name
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    def assert_all_is_said_and_nothing_fetched(self, result, why):
        self.assertEqual(result.returncode, 2, result.stderr)
        for words in (why, "libtorch 2.11.0 (530 MB)", f"{self.root}/.deps/torch-2.11.0", f"{self.root}/.deps/python"):
            self.assertIn(words, result.stderr)
        command = result.stderr.splitlines()[-1]
        self.assertRegex(command, "^  (sudo )?apt-get update && (sudo )?apt-get install -y --no-install-recommends ")
        self.assertLessEqual({"mold", "librsvg2-bin"}, set(command.split()))
        self.assertNotIn("pip", result.stderr)
        self.assertEqual({path.name for path in (self.root / ".deps").iterdir()}, {"cudnn-frontend", "lock", "python"})

    def test_and_without_sudo_all_that_is_missing_is_said_before_anything_is_fetched(self):
        self.remove("mold", "rsvg-convert")
        self.assert_all_is_said_and_nothing_fetched(self.run_setup("--tests"), "there is no sudo")

    def test_and_with_a_sudo_that_wants_a_password_it_is_the_same(self):
        self.remove("mold", "rsvg-convert")
        self.replace("sudo", 'echo "sudo: a password is required" >&2; exit 1')
        self.assert_all_is_said_and_nothing_fetched(self.run_setup("--tests"), "sudo asks for a password")

    def test_and_with_sudo_packages_are_installed(self):
        make_torch(self.top / "site/torch")
        self.remove("mold", "rsvg-convert")
        self.replace("sudo", 'if [[ $1 == -n ]]; then shift; fi; AS_ROOT=yes "$@"')
        self.replace("apt-get", f'if [[ $AS_ROOT ]]; then echo "$@" >>{self.top}/apt; fi')
        result = self.run_setup()
        self.assertEqual(result.returncode, 0, result.stderr)
        calls = (self.top / "apt").read_text().splitlines()
        self.assertEqual(calls, ["--version", "update", "install -y --no-install-recommends mold"])

    def test_the_size_is_that_of_the_packages_though_apt_has_some_of_them(self):
        self.remove("mold")
        self.replace("apt-get", 'echo "Need to get 0 B/12 MB of archives."')
        self.assertIn("missing system packages (12 MB): mold\n", self.run_setup().stderr)

    def test_and_without_sudo_it_goes_through_where_nothing_is_missing(self):
        torch = make_torch(self.top / "site/torch")
        result = self.run_setup()
        self.assertEqual((result.returncode, self.recorded()), (0, str(torch)), result.stderr)

    def test_a_checkout_of_someone_else_is_refused(self):
        (self.root / ".deps").chmod(0o555)
        result = self.run_setup()
        self.assertEqual(result.returncode, 2)
        self.assertIn("cannot write", result.stderr)
