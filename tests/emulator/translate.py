#!/usr/bin/env python3
"""translate.py IN OUT: makes of a CUDA file what a C++ compiler takes, for the emulated GPU.

Only what C++ has no word for is changed, on the same lines:
    kernel<<<grid, block, bytes, stream>>>(...)   ballast::emulator::on(kernel, grid, block, bytes, stream)(...)
    extern __shared__ T name[];                   T* const name = (T*)ballast::emulator::shared_memory();
    __shared__ T a[2], b;                         auto& a = ballast::emulator::declared<T[2]>([] {}); ...
    reinterpret_cast<const void*>(&kernel)        ballast::emulator::known(&kernel)
    const __grid_constant__ T argument            const T& argument, which all threads have in one place
"""
import pathlib
import re
import sys


def back_over_template(text, end):
    """The place of the < that belongs to the > just before `end`."""
    depth = 0
    for at in range(end - 1, -1, -1):
        depth += {">": 1, "<": -1}.get(text[at], 0)
        if depth == 0:
            return at
    raise ValueError("no < belongs to a >")


def launches(text):
    while (at := text.find("<<<")) >= 0:
        end = text.index(">>>", at)
        name_end = len(text[:at].rstrip())
        begin = back_over_template(text, name_end) if text[name_end - 1] == ">" else name_end
        begin = re.search(r"[\w:]+$", text[:begin].rstrip()).start()
        kernel, options = text[begin:name_end], text[at + 3:end]
        breaks = "\n" * text[name_end:at].count("\n")
        text = f"{text[:begin]}ballast::emulator::on({kernel},{breaks}{options}){text[end + 3:]}"
    return text


def declarators(text):
    """`a[2][3], b` by its commas that are not within brackets."""
    return re.findall(r"(?:[^,\[\]<>()]|\[[^\]]*\])+", text)


def declared(match):
    kind, names = match.groups()
    made = []
    for name in declarators(names):
        word, sizes = re.fullmatch(r"\s*(\w+)\s*((?:\[[^\]]*\])*)\s*", name).groups()
        made.append(f"auto& {word} = ballast::emulator::declared<{kind}{sizes}>([] {{}});")
    return " ".join(made)


def translate(text):
    text = re.sub(r"extern __shared__ (?:__align__\(\d+\) )?(\w+) (\w+)\[\];",
                  r"\1* const \2 = reinterpret_cast<\1*>(ballast::emulator::shared_memory());", text)
    text = re.sub(r"__shared__ ([\w:]+) ([^;]+);", declared, text)
    text = re.sub(r"reinterpret_cast<const void\*>\((&[\w:]+<[^()]*>)\)",
                  r"ballast::emulator::known(\1)", text)
    text = re.sub(r"const __grid_constant__ (\w+)", r"const \1&", text)
    return launches(text)


def main():
    source, target = map(pathlib.Path, sys.argv[1:])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f'#line 1 "{source}"\n{translate(source.read_text())}')


if __name__ == "__main__":
    main()
