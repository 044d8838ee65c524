#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the source to the rules of the house: tools/check_rooms.py [CHECKOUT]

Rooms and arrows are read from ballast/CMakeLists.txt. Prints one line for each fault, exits 1 if any.
"""

import re
import sys
from pathlib import Path

import function_lengths
import unused_code

MAX_LINES = 400
MAX_FUNCTION = 60
MAX_DOCS_COLUMNS = 120
CODE = {".h", ".cpp", ".cu", ".cuh"}
FOLDERS = ("ballast", "cli", "python", "tests", "benchmarks", "tools")
# Folders of tests that belong to no room, and hold Python tests, fuzzers, or what several tests share.
ROOMLESS_TESTS = {"cli", "fuzz", "long", "oracles", "python", "support", "tools"}
# Folders of tests that belong to no room, and are built by a CMakeLists.txt of their own beside their tests.
TESTS_OF_THEIR_OWN = ("emulator",)
# Compiled with OpenMP.
KERNEL_ROOMS = {("ballast", "kernels"), ("ballast", "experts")}
BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}

KEYWORDS = {"DEPENDS", "LINK", "SHARED", "STOREY", "TORCH"}
ROOM = re.compile(r"ballast_room\(\s*(\w+)([^)]*)\)")
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"|<(?=ballast/))([^">]+)[">]', re.MULTILINE)
PLATFORM_SWITCH = re.compile(
    r"^\s*#\s*(?:if|ifdef|ifndef|elif)\b.*?(?<![A-Z])(CUDA|NCCL|O?MPI(?![A-Z]))", re.MULTILINE
)
GLOBAL_KERNEL = re.compile(r"\b__global__\b")
# Readers that a deep enough file ends: each is called in one place, which bounds the depth.
BOUNDED_READERS = (
    (re.compile(r"\b\w*json\s*::\s*(?:sax_)?parse\s*\(", re.IGNORECASE), "ballast/system/json.cpp", "parse_json"),
    (re.compile(r"\btoml\s*::\s*parse(?:_file)?\s*\("), "ballast/config/config_toml.cpp", "read_config_text"),
)
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def read_rooms(text):
    """The rooms in order, each with the rooms it may include, from the table's text."""
    text = re.sub(r"#[^\n]*", "", text)
    rooms = {}
    for name, arguments in ROOM.findall(text):
        words = arguments.split()
        rooms[name] = []
        if "DEPENDS" in words:
            for word in words[words.index("DEPENDS") + 1 :]:
                if word in KEYWORDS:
                    break
                rooms[name].append(word)
    return rooms


def read_storeys(text):
    """The storeys of those rooms that lie in one, from the table's text."""
    words = {name: arguments.split() for name, arguments in ROOM.findall(re.sub(r"#[^\n]*", "", text))}
    return {name: said[said.index("STOREY") + 1] for name, said in words.items() if "STOREY" in said}


def check_table(root, rooms, storeys):
    known = set()
    for room, depends in rooms.items():
        for other in depends:
            if other not in known:
                yield f"ballast/CMakeLists.txt: {room} DEPENDS on {other}, which is not declared above it"
        known.add(room)
    for place in folders(root / "ballast", set(storeys.values())):
        storey, room = place.parent.as_posix().removeprefix("."), place.name
        if room not in rooms or storeys.get(room, "") != storey:
            yield f"ballast/{place}: not a room of ballast/CMakeLists.txt"


def folders(house, storeys):
    """Where the folders of `house` lie that are not empty, those of each storey in its place."""
    for folder in sorted(house.iterdir()):
        if folder.is_dir() and any(folder.iterdir()):
            inside = sorted(folder.iterdir()) if folder.name in storeys else [folder]
            yield from (place.relative_to(house) for place in inside)


def check_includes(path, text, rooms):
    """Faults in the includes of a file in ballast/, where `path` is relative to the checkout."""
    room = path.parent.name  # that it lies at its place, check_table sees
    if room == "ballast":
        yield f"{path}: in no room"
        return
    allowed = {room, *rooms.get(room, [])}
    for included in INCLUDE.findall(text):
        parts = included.split("/")
        if parts[0] != "ballast" or len(parts) < 3:
            yield f'{path}: includes "{included}"; write it as "ballast/room/file.h"'
        elif parts[-2] not in allowed:
            yield f"{path}: includes {included}, but {room} does not DEPEND on {parts[-2]}"


def check_arrows(texts, rooms):
    """Arrows of the table that no include goes along. `texts`: those of all code, by path."""
    used = set()
    for path, text in texts.items():
        if path.parts[0] == "ballast" and len(path.parts) > 2:
            used |= {(path.parts[-2], included.split("/")[-2]) for included in INCLUDE.findall(text) if "/" in included}
    for room, depends in rooms.items():
        for other in depends:
            if (room, other) not in used:
                yield f"ballast/CMakeLists.txt: {room} DEPENDS on {other}, and includes nothing of it"


def check_unused(texts):
    """What headers of the library and the programs declare for nobody but tests."""
    own = {path: text for path, text in texts.items() if path.parts[0] != "tests"}
    for path, name in unused_code.unused(own):
        yield f"{path}: nothing but tests uses {name}; delete it, or say in tools/unused_code.py why it stays"


def check_code(path, text):
    if not text.startswith("// SPDX-License-Identifier: Apache-2.0\n"):
        yield f"{path}: the first line is not // SPDX-License-Identifier: Apache-2.0"
    bare = COMMENT.sub("", text)
    if GLOBAL_KERNEL.search(bare) and not path.name.endswith(("_cuda.cu", "_cuda.cuh")):
        yield f"{path}: __global__ outside a CUDA file"
    if path.suffix in (".cu", ".cuh") and not path.stem.endswith("_cuda"):
        yield f"{path}: CUDA files are named *_cuda{path.suffix}, or the plugin does not hold them"
    if "at::parallel_for" in bare and path.parts[:2] not in KERNEL_ROOMS:
        yield f"{path}: at::parallel_for has one thread outside kernels and experts; use parallel_ranges"
    for reader, place, instead in BOUNDED_READERS:
        if path.parts[0] in ("ballast", "cli") and path.as_posix() != place and reader.search(bare):
            yield f"{path}: {reader.search(bare).group(0)}...) may take any depth; use {instead}"
    for match in PLATFORM_SWITCH.finditer(bare):
        yield f"{path}: a preprocessor switch on {match.group(1)}; put it into a file of the plugin"
    for name, line, lines in function_lengths.functions(text) if path.parts[0] != "tests" else ():
        if lines > MAX_FUNCTION:
            yield f"{path}:{line}: {name} has {lines} lines, more than {MAX_FUNCTION}"


def named_in_cmake(root):
    """What the CMakeLists.txt of tests/ name, relative to tests/."""
    for folder in ("", *(f"{folder}/" for folder in TESTS_OF_THEIR_OWN)):
        table = root / "tests" / folder / "CMakeLists.txt"
        if table.exists():
            yield from (folder + word for word in table.read_text(encoding="utf-8").replace(")", " ").split())


def check_test_place(path, rooms, named):
    """A C++ file in tests/ is one that CMake makes a test of, or `named`, in a CMakeLists.txt of tests/."""
    folder = path.parts[1] if len(path.parts) > 2 else None
    if folder in ROOMLESS_TESTS:
        if path.name.endswith("_test.cpp"):
            yield f"{path}: no test program is made of tests/{folder}; put it into a room's folder"
    elif folder not in TESTS_OF_THEIR_OWN and (folder not in rooms or len(path.parts) > 3):
        yield f"{path}: not in tests/ROOM/, so it is never run"
    elif path.suffix == ".cpp" and not path.name.endswith("_test.cpp") and f"{folder}/{path.name}" not in named:
        yield f"{path}: neither named *_test.cpp nor in tests/CMakeLists.txt, so it is never run"


def check_file(root, path, rooms):
    text = (root / path).read_text(encoding="utf-8")
    lines = text.count("\n")
    if lines > MAX_LINES:
        yield f"{path}: {lines} lines, more than {MAX_LINES}"
    if path.stem in BANNED_NAMES or path.parent.name in BANNED_NAMES:
        yield f"{path}: name it after the thing in it"
    if path.suffix not in CODE:
        return
    yield from check_code(path, text)
    if path.parts[0] == "ballast":
        yield from check_includes(path, text, rooms)
    if path.parts[0] == "tests":
        yield from check_test_place(path, rooms, set(named_in_cmake(root)))


def check_docs(root):
    pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / "benchmarks").rglob("*.md")]
    for path in sorted(pages):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if len(line) > MAX_DOCS_COLUMNS:
                yield f"{path.relative_to(root)}:{number}: {len(line)} columns, more than {MAX_DOCS_COLUMNS}"


def check(root):
    """All faults of the checkout at `root`, as lines of text."""
    root = Path(root)
    table = (root / "ballast/CMakeLists.txt").read_text(encoding="utf-8")
    rooms = read_rooms(table)
    if not rooms:
        yield "ballast/CMakeLists.txt: no ballast_room() was found"
        return
    yield from check_table(root, rooms, read_storeys(table))
    code = [path for folder in (*FOLDERS, "examples") for path in sorted((root / folder).rglob("*")) if path.suffix in CODE]
    texts = {path.relative_to(root): path.read_text(encoding="utf-8") for path in code if path.is_file()}
    yield from check_arrows(texts, rooms)
    yield from check_unused(texts)
    yield from check_docs(root)
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in CODE | {".py"} and path.is_file():
                yield from check_file(root, path.relative_to(root), rooms)


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    faults = list(check(root))
    for fault in faults:
        print(fault)
    if faults:
        sys.exit(1)
    print("rooms: every file is where it belongs")


if __name__ == "__main__":
    main()
