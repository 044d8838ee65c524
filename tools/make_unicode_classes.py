#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes ballast/tokenizer/unicode_class_runs.h: for each code point, whether the GPT-2 pattern takes
it for a letter (\\p{L}), a number (\\p{N}), white space (\\s) or none of these.

The classes are read off Hugging Face `tokenizers` itself, so that our pre-tokenizer agrees with it on
every code point whatever Unicode version it was built with. Run it when `tokenizers` is upgraded:

    .deps/python/bin/python tools/make_unicode_classes.py
"""

import pathlib

import tokenizers
from tokenizers.pre_tokenizers import ByteLevel

OTHER, LETTER, NUMBER, SPACE = range(4)
PER_LINE = 10


def class_of(pre_tokenizer, code_point):
    """The class whose run a character joins: 'a' + c stays one pre-token only if c is a letter."""
    if 0xD800 <= code_point < 0xE000:
        return OTHER  # a surrogate has no UTF-8 form
    for start, name in (("a", LETTER), ("1", NUMBER), ("!", OTHER)):
        if len(pre_tokenizer.pre_tokenize_str(start + chr(code_point))) == 1:
            return name
    return SPACE


def main():
    pre_tokenizer = ByteLevel(add_prefix_space=False)
    runs = []
    for code_point in range(0x110000):
        name = class_of(pre_tokenizer, code_point)
        if not runs or runs[-1][1] != name:
            runs.append((code_point, name))
    values = [f"0x{start << 2 | name:x}," for start, name in runs]
    lines = [" ".join(values[i : i + PER_LINE]) for i in range(0, len(values), PER_LINE)]
    path = pathlib.Path(__file__).resolve().parent.parent / "ballast/tokenizer/unicode_class_runs.h"
    path.write_text(
        "// SPDX-License-Identifier: Apache-2.0\n"
        "// Written by tools/make_unicode_classes.py "
        f"from tokenizers {tokenizers.__version__}. Do not edit.\n"
        "#pragma once\n\n#include <cstdint>\n\nnamespace ballast::tokenizer {\n\n"
        "// Runs of code points of one class, in order: (first code point << 2) | class, where the class is\n"
        "// 0 other, 1 letter, 2 number, 3 white space. A run ends where the next begins.\n"
        "// clang-format off\n"
        "inline constexpr uint32_t kUnicodeClassRuns[] = {\n"
        + "\n".join(lines)
        + "\n};\n// clang-format on\n\n}  // namespace ballast::tokenizer\n"
    )
    print(f"{path}: {len(runs)} runs")


if __name__ == "__main__":
    main()
