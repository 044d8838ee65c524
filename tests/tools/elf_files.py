# SPDX-License-Identifier: Apache-2.0
"""Programs and libraries, read as the loader reads them, with binutils, which come with the compiler."""

import os
import re
import stat
import subprocess
import tempfile
from pathlib import Path


def output_of(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def binaries(folder):
    """All programs and shared libraries in `folder`, as the loader takes them."""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        with path.open("rb") as file:
            head = file.read(18)
        if head[:4] == b"\x7fELF" and int.from_bytes(head[16:18], "little") in (2, 3):  # not object files
            yield path


def dynamic(path, tag):
    """The values of `tag` in the dynamic section of `path`: NEEDED, or RUNPATH and RPATH."""
    return re.findall(rf"\({tag}\)[^\[]*\[(.*)\]", output_of("readelf", "-dW", path))


def run_path(path):
    return [element for tag in ("RPATH", "RUNPATH") for value in dynamic(path, tag) for element in value.split(":")]


def writable_by_all(folder):
    """The part of `folder` in which anyone may put another folder or file; None if there is none."""
    below = None
    for place in (folder, *folder.parents):
        if place.exists():
            mode = place.stat().st_mode
            # In a sticky folder, as /tmp, what is there stays its owner's; what is missing can be made by all.
            if mode & stat.S_IWOTH and not (mode & stat.S_ISVTX and below is not None and below.exists()):
                return place
        below = place
    return None


def faults_of_run_path(path, elements):
    for element in elements:
        if not element:
            yield f"{path}: an empty element, which is the current folder"
            continue
        if element != "$ORIGIN" and not element.startswith(("/", "$ORIGIN/")):
            yield f"{path}: {element} is relative to the current folder"
            continue
        place = writable_by_all(Path(os.path.normpath(element.replace("$ORIGIN", str(path.parent)))))
        if place:
            yield f"{path}: everyone may write to {place}, for {element}"


def faults_of_run_paths(paths):
    return [fault for path in paths for fault in faults_of_run_path(path, run_path(path))]


def run_among_planted_libraries(program, **environment):
    """Runs `program --help` in a folder that has the libraries it needs: each says that it is planted, and ends."""
    with tempfile.TemporaryDirectory() as folder:
        source, planted = Path(folder, "planted.c"), Path(folder, "libzstd.so.1")
        source.write_text('''
            #include <unistd.h>
            __attribute__((constructor)) void start(void) { _exit(write(2, "planted\\n", 8)); }
            ''')
        output_of("g++", "-x", "c", "-shared", "-fPIC", "-o", planted, source)
        for name in dynamic(program, "NEEDED"):
            if not name.startswith(("libc.", "ld-", planted.name)):
                Path(folder, name).symlink_to(planted)
        return subprocess.run([program, "--help"], cwd=folder, capture_output=True, text=True, env={**os.environ, **environment})
