# SPDX-License-Identifier: Apache-2.0
"""What a header declares and nothing but tests uses. A search for names in the text, not a compiler: a name
that has a second meaning somewhere counts as used."""

import re
from collections import Counter, defaultdict

HEADERS = {".h", ".cuh"}
# Name: why it may stand there unused.
KEPT = {
    "ballast_assign": "Python calls it, through ctypes",
    "is_transparent": "the standard library's containers look for it",
    "character_class": "tests compare the table of characters with Unicode's",
    "encode_by_scan": "the plain algorithm, to which tests compare the quick one",
    "nats_of": "tests weigh the built-in corpus by it: the derivation of a text, found again",
    "use_tape": "tests compare runs that must route alike",
    "why_plain": "tests ask whether steps were recorded as a graph",
}

# Comments, directives and texts say nothing of use; but a text that is a name may be looked up (dlsym).
SKIPPED = re.compile(r'//[^\n]*|/\*.*?\*/|^[ \t]*#[^\n]*|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"', re.DOTALL | re.MULTILINE)
NAME = re.compile(r"[A-Za-z_]\w*")
# `Type name(` and `Type Class::name(`: a declaration or definition, where the first word is no statement.
FUNCTION = re.compile(r"(\b\w+|[>\]])[&*]*\s+(?:\w+::)*(\w+)\s*(?=\()")
STATEMENTS = {"return", "co_return", "else", "case", "throw", "new", "do"}
TYPE = re.compile(r"\b(?:class|struct|union)\s+(\w+)\s*(?=[{:]|final\b)")
# What an enum lists may be there to be counted through.
ENUM = re.compile(r"\benum\b[^;{]*\{[^}]*\}")
VALUE = re.compile(r"[\w>\]][&*]*\s+[&*]*(\w+)\s*(?:=[^=]|;|\{)|\b(k[A-Z]\w*)|\busing\s+(\w+)\s*=")


def bare(text):
    """The text without what is skipped."""
    def keep(match):
        word = match.group(0)[1:-1]
        return f" {word} " if match.group(0)[0] == '"' and NAME.fullmatch(word) else " "

    return SKIPPED.sub(keep, text)


def functions_of(text):
    return [name for word, name in FUNCTION.findall(text) if word not in STATEMENTS and not name.startswith("__")]


def group_of(path):
    """Files that are one thing together: name.h, name.cpp, name_cuda.cu."""
    return path.parent, re.sub(r"_(cpu|cuda|mpi|parquet)$", "", path.stem)


def is_used_at_home(name, texts):
    """Whether a type is more than declared and defined in its own files."""
    text = "\n".join(texts)
    mentions = len(re.findall(rf"(?<![~\w]){name}\b(?!\s*(?:::|\())", text))
    return mentions > len(re.findall(rf"\b(?:class|struct|enum|union)\s+{name}\b", text))


def unused(files):
    """`files`: text by path, of all code but tests. Yields (path, name) for what no line of it uses."""
    files = {path: bare(text) for path, text in files.items()}
    counts = {path: Counter(NAME.findall(text)) for path, text in files.items()}
    groups, places = defaultdict(set), defaultdict(set)
    mentions, definitions = Counter(), Counter()
    for path, text in files.items():
        groups[group_of(path)].add(path)
        for name in counts[path]:
            places[name].add(path)
        mentions.update(counts[path])
        definitions.update(functions_of(text))
    for path, text in files.items():
        if path.suffix not in HEADERS:
            continue
        home = groups[group_of(path)]
        text = ENUM.sub("", text)
        types = set(TYPE.findall(text))
        functions = set(functions_of(text)) - types
        values = {name for names in VALUE.findall(text) for name in names if name} - types - functions
        dead = {name for name in types if not places[name] - home and not is_used_at_home(name, [files[p] for p in home])}
        dead |= {name for name in functions if mentions[name] == definitions[name]}
        dead |= {name for name in values if mentions[name] == 1 and not name.endswith("_")}
        yield from ((path, name) for name in sorted(dead - KEPT.keys()))
