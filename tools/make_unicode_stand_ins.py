#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes ballast/tokenizer/unicode_differences.h: where the Unicode of Hugging Face `tokenizers` is not
that of the libraries we use, PCRE2 (split patterns) and utf8proc (normalization).

Run it when `tokenizers` is upgraded, with a Python whose own Unicode is 14, that of the oldest PCRE2 we
build with, and with the newest one from PyPI's unicodedata2 (pip install tokenizers unicodedata2):

    python3.11 tools/make_unicode_stand_ins.py
"""

import pathlib
import unicodedata

import tokenizers
import unicodedata2
from tokenizers import Regex, normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn").split()
MONGOLIAN_VOWEL_SEPARATOR = 0x180E  # white space for PCRE2, and for nobody else


def their_categories():
    """By code point, as the patterns of `tokenizers` see it."""
    result = {}
    for category in CATEGORIES:
        split = pre_tokenizers.Split(Regex(rf"\p{{{category}}}"), "removed", invert=True)
        for begin in range(0, len(CODE_POINTS), 4096):
            text = "".join(map(chr, CODE_POINTS[begin : begin + 4096]))
            for piece, _ in split.pre_tokenize_str(text):
                result.update((ord(c), category) for c in piece)
    return result


def utf8_size(code_point):
    return len(chr(code_point).encode())


def stand_ins():
    """Code point -> one of the same category and size in UTF-8 that every Unicode knows."""
    theirs = their_categories()
    old = {}
    for c in reversed(CODE_POINTS):
        category = unicodedata.ucd_3_2_0.category(chr(c))
        if category == unicodedata.category(chr(c)) == theirs[c] and c != MONGOLIAN_VOWEL_SEPARATOR:
            if not unicodedata.decomposition(chr(c)):
                old[category, utf8_size(c)] = c
    for c in CODE_POINTS:  # some categories have no such old character
        if unicodedata.category(chr(c)) == theirs[c]:
            old.setdefault((theirs[c], utf8_size(c)), c)
    new = [c for c in CODE_POINTS if theirs[c] != unicodedata.category(chr(c))] + [MONGOLIAN_VOWEL_SEPARATOR]
    return {c: old[theirs[c], utf8_size(c)] for c in sorted(new)}


def is_normalized_by_them(code_point):
    """Whether their normalizer knows a decomposition or a combining class of it."""
    text = chr(code_point)
    if normalizers.NFKD().normalize_str(text) != text:
        return True
    nfd = normalizers.NFD().normalize_str
    return nfd(text + "\u0334") != text + "\u0334" or nfd("\u0345" + text) != "\u0345" + text


def unknown_to_normalizer():
    """Code points that their normalizer leaves alone, as it is older than they are."""
    unknown = set()
    for c in CODE_POINTS:
        decomposition = unicodedata2.decomposition(chr(c))
        if (unicodedata2.combining(chr(c)) or decomposition) and not is_normalized_by_them(c):
            if 0xAC00 <= c < 0xD7A4 or unicodedata2.combining(chr(c)) == 240:
                continue
            unknown.add(c)
            if decomposition and not decomposition.startswith("<"):
                parts = [int(part, 16) for part in decomposition.split()]
                unknown.update(p for p in parts if unicodedata.ucd_3_2_0.category(chr(p)) == "Cn")
    return sorted(unknown)


def runs_of(code_points, value_of=lambda c: 0):
    runs = []
    for c in code_points:
        if runs and runs[-1][1] == c - 1 and runs[-1][2] == value_of(c):
            runs[-1][1] = c
        else:
            runs.append([c, c, value_of(c)])
    return runs


def lines_of(values, per_line):
    return "\n".join(" ".join(values[i : i + per_line]) for i in range(0, len(values), per_line))


def main():
    if unicodedata.unidata_version != "14.0.0":
        raise SystemExit(f"this Python has Unicode {unicodedata.unidata_version}; take one with 14.0.0")
    replaced = stand_ins()
    stand_in_runs = runs_of(replaced, replaced.get)
    unknown_runs = runs_of(unknown_to_normalizer())
    path = pathlib.Path(__file__).resolve().parent.parent / "ballast/tokenizer/unicode_differences.h"
    path.write_text(
        "// SPDX-License-Identifier: Apache-2.0\n"
        f"// Written by tools/make_unicode_stand_ins.py from tokenizers {tokenizers.__version__} and Unicode "
        f"{unicodedata2.unidata_version}.\n// Do not edit.\n"
        "#pragma once\n\n#include <cstdint>\n\nnamespace ballast::tokenizer {\n\n"
        "// Code points `first` to `last`, of which PCRE2's Unicode may not know what `tokenizers` knows,\n"
        "// and an old code point of the same category and the same size in UTF-8.\n"
        "struct StandInRun {\n  uint32_t first, last, stand_in;\n};\n"
        "// clang-format off\n"
        "inline constexpr StandInRun kStandInRuns[] = {\n"
        + lines_of([f"{{0x{a:x}, 0x{b:x}, 0x{s:x}}}," for a, b, s in stand_in_runs], 3)
        + "\n};\n// clang-format on\n\n"
        "// Code points that the normalizer of `tokenizers` leaves alone: they are younger than it is.\n"
        "struct CodePointRun {\n  uint32_t first, last;\n};\n"
        "// clang-format off\n"
        "inline constexpr CodePointRun kNotNormalized[] = {\n"
        + lines_of([f"{{0x{a:x}, 0x{b:x}}}," for a, b, _ in unknown_runs], 4)
        + "\n};\n// clang-format on\n\n}  // namespace ballast::tokenizer\n"
    )
    print(f"{path}: {len(stand_in_runs)} and {len(unknown_runs)} runs")


if __name__ == "__main__":
    main()
