# SPDX-License-Identifier: Apache-2.0
"""The functions of a C++ file and their lines, by counting braces."""

import re

# What hides braces: comments, texts, characters (not the digits' separator), and lines of the preprocessor.
HIDDEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*',
    re.DOTALL | re.MULTILINE,
)
NO_FUNCTION = re.compile(r"\b(?:namespace|class|struct|enum|union)\b[^()]*$|=\s*$|^\s*extern\b[^()]*$")
NAME = re.compile(r"(?!__)\b([~\w:]+|operator\s*[^\s\w]+)\s*\(")
# Behind a closing brace: it was that of a member's value, `Class() : member_{1}, other_(2) {`.
MORE = re.compile(r"\s*[,{]")


def functions(text):
    """Yields (name, line, lines) of each function that is not within another."""
    text = HIDDEN.sub(lambda match: re.sub(r"[^\n]", " ", match.group(0)), text)
    depth, inside = 0, None  # inside: a function that is open, as (name, where it begins, its depth)
    header, opened = 0, None  # where what stands before a brace begins; a function whose braces were a member's
    for match in re.finditer(r"[{};]", text):
        at, sign = match.start(), match.group(0)
        if sign == "{":
            before = text[header:at]
            if inside is None and opened is not None:
                inside, opened = opened, None
            elif inside is None and "(" in before and not NO_FUNCTION.search(before):
                name = NAME.search(before)
                begin = header + len(before) - len(before.lstrip())
                inside = (name.group(1) if name else "?", begin, depth)
            depth += 1
        elif sign == "}":
            depth -= 1
            if inside is not None and depth == inside[2]:
                if MORE.match(text, at + 1):
                    opened = inside
                else:
                    first = text.count("\n", 0, inside[1]) + 1
                    yield inside[0], first, text.count("\n", 0, at) + 2 - first
                inside = None
        if inside is None:
            header = at + 1
