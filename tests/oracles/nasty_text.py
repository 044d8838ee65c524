# SPDX-License-Identifier: Apache-2.0
"""Texts that tokenizers tend to get wrong."""
import random

END_OF_TEXT = "<|endoftext|>"
SURROGATES = range(0xD800, 0xE000)

# A text is made of these in random order.
NASTY = [
    " ", "  ", "   ", "\n", "\r\n", "\r", "\t", "\v\f", "\x00", "\x1c", "\x85", "\u00a0", "\u1680", "\u2003", "\u200b",
    "\u2028", "\u2029", "\u202f", "\u3000", "\ufeff", "\u180e",  # white space, and what looks like it
    "'s", "'S", "'t", "'ll", "'LL", "'ve", "'re", "'d", "'m", "'", "''", "\u2019s", "n't", "I'm", "can't", "'x",
    "the", "The", "THE", " the", "and", "tokenization", "antidisestablishmentarianism", "Stra\u00dfe", "na\u00efve",
    "e\u0301", "o\u0308\u0323", "\u0301", "Z\u0351\u036b\u0343", "\u1112\u1161\u11ab", "\ud55c\uad6d\uc5b4",
    "\u6f22\u5b57", "\u65e5\u672c\u8a9e\u3067\u3059\u3002", "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22",
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629", "\u05e2\u05d1\u05e8\u05d9\u05ea", "\u0939\u093f\u0928\u094d\u0926\u0940",
    "\u0420\u0443\u0441\u0441\u043a\u0438\u0439", "\u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac", "\U00020bb7",
    "12", "3.14", "1,000", "\u0663\u0664", "\u0967\u0968", "\u00bd", "\u00b2", "\u2167", "\u2460", "\U0001d7d8", "\u3007",
    "\U0001F600", "\U0001F469\u200d\U0001F469\u200d\U0001F467", "\U0001F44D\U0001F3FD", "\U0001F1E9\U0001F1EA",
    "\u2764\ufe0f", "1\ufe0f\u20e3", "!", "?!", "...", "\u2026", "--", "\u2014", "(", ")", "{}", "<", "<|", "|>",
    END_OF_TEXT, "<|endoftext|", "$", "\u20ac", "\\", "\"", "\u00ab", "\ue000", "\U0010FFFF", "\U000E0041", "\uffff",
    "\u0120", "\u010a", "\u00e9", "\u0100",  # characters of the byte-level alphabet itself
]


def nasty_text(seed, pieces, parts=tuple(NASTY)):
    return "".join(random.Random(seed).choices(parts, k=pieces))


def code_points(sample=1):
    """All of the planes in use, and a sample of the others; `sample` > 1: fewer of large alphabets."""
    if sample > 1:
        large = [range(0x3500, 0xA480), range(0xAC00, 0xF8FF), range(0x13000, 0x14680), range(0x17000, 0x1B100),
                 range(0x20000, 0x33500)]
        yield from (c for c in code_points() if c % sample == 0 or not any(c in part for part in large))
        return
    yield from (c for c in range(0x33500) if c not in SURROGATES)
    yield from range(0x33500, 0xE0000, 257)
    yield from range(0xE0000, 0xE0200)
    yield from range(0xE0200, 0x110000, 257)
    yield 0x10FFFF


# Ranges of code points to draw from: scripts, marks, spaces, signs, and what is young or in no use.
RANGES = [
    (0x00, 0x7F), (0x20, 0x7E), (0x80, 0x24F), (0x300, 0x36F), (0x370, 0x5FF), (0x600, 0x6FF), (0x700, 0x1FFF),
    (0x0900, 0x0DFF), (0x0E00, 0x0FFF), (0x1100, 0x11FF), (0x1AB0, 0x1AFF), (0x1DC0, 0x1EFF), (0x2000, 0x206F),
    (0x2070, 0x218F), (0x2460, 0x24FF), (0x2600, 0x27BF), (0x3000, 0x30FF), (0x4E00, 0x4EFF), (0xA700, 0xA7FF),
    (0xAC00, 0xACFF), (0xD7A0, 0xD7FF), (0xF900, 0xFFFF), (0x10300, 0x10FFF), (0x11000, 0x11FFF), (0x13430, 0x1345F),
    (0x16100, 0x16FFF), (0x1B000, 0x1B2FF), (0x1D100, 0x1D7FF), (0x1DF00, 0x1E5FF), (0x1F100, 0x1FBFF), (0x2F800, 0x2FA1F),
    (0x31350, 0x323AF), (0xE0000, 0xE01EF), (0x10FFF0, 0x10FFFF),
]


def random_character(choose):
    while True:
        code_point = choose.randint(*choose.choice(RANGES))
        if code_point not in SURROGATES:
            return chr(code_point)


def random_texts(seed, count, tokens=()):
    """Short texts of nasty parts, random characters, runs of one kind, and `tokens` within words."""
    choose = random.Random(seed)
    kinds = [
        lambda: choose.choice(NASTY),
        lambda: random_character(choose),
        lambda: random_character(choose) * choose.randint(1, 4),
        lambda: "".join(choose.choices("0123456789", k=choose.randint(1, 9))),
        lambda: choose.choice(" \n\t\r\u00a0\u3000\u180e") * choose.randint(1, 5),
        lambda: "".join(choose.choices("abcdeT'", k=choose.randint(1, 12))),
        lambda: choose.choice(["I'LL", "we'Ve", "'\u017f", "x'S", "it's", "'Re", "'D", "'lL"]),
        lambda: choose.choice("aeiouAEIOUncsk") + "".join(chr(choose.randint(0x300, 0x345)) for _ in range(choose.randint(1, 4))),
    ]
    if tokens:
        kinds += [lambda: choose.choice(tokens), lambda: choose.choice(tokens) + choose.choice("ab1 _")]
    return ["".join(choose.choice(kinds)() for _ in range(choose.randint(1, 12))) for _ in range(count)]
