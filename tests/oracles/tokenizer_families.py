# SPDX-License-Identifier: Apache-2.0
"""Tokenizers as the families of today's models have them, trained on a little text.

Normalizer, pre-tokenizer, decoder, post-processor and added tokens are set as in the files that come with the models.
"""
import json

from nasty_text import NASTY, nasty_text
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = ("\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
            "| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
WORDS = ("the quick brown fox jumps over the lazy dog while it's raining in Spain and we'll see 12345 things "
         "tokenization antidisestablishmentarianism Stra\u00dfe na\u00efve caf\u00e9 \u6f22\u5b57 \u65e5\u672c\u8a9e ").split()
TEXT = [nasty_text(0, 20000, [part for part in NASTY if "<|" not in part]), " ".join(WORDS * 200), "\n\n".join(WORDS * 20)]
TOKEN_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def splits(*patterns):
    return pre_tokenizers.Sequence([
        *(pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False) for pattern in patterns),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def begins_with(token, token_id, *before):
    template = processors.TemplateProcessing(
        single=f"{token}:0 $A:0", pair=f"{token}:0 $A:0 {token}:1 $B:1", special_tokens=[(token, token_id)])
    return processors.Sequence([*before, template]) if before else template


def special(*contents):
    return [AddedToken(content, normalized=False, special=True) for content in contents]


def byte_level(pre_tokenizer, added, normalizer=None, vocab_size=1200, **options):
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(TEXT, trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=ALPHABET, show_progress=False))
    tokenizer.add_tokens(added)
    return tokenizer


def gpt2():
    return byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), special("<|endoftext|>"))


def llama3():
    tokenizer = byte_level(splits(LLAMA3), special(
        "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", *(f"<|reserved_special_token_{i}|>" for i in range(20))))
    # Tokens that no merge makes, which only a whole pre-token is.
    description = json.loads(tokenizer.to_str())
    description["model"]["merges"] = [m for i, m in enumerate(description["model"]["merges"]) if i % 5]
    description["model"]["ignore_merges"] = True
    tokenizer = Tokenizer.from_str(json.dumps(description))
    tokenizer.post_processor = begins_with("<|begin_of_text|>", tokenizer.token_to_id("<|begin_of_text|>"),
                                           processors.ByteLevel(trim_offsets=False))
    return tokenizer


def qwen2():
    tokenizer = byte_level(
        splits(QWEN2), special("<|endoftext|>", "<|im_start|>", "<|im_end|>") + [
            AddedToken(t, normalized=False, special=False) for t in ("<tool_call>", "</tool_call>", "<think>")],
        normalizers.NFC(), continuing_subword_prefix="", end_of_word_suffix="")
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def olmoe():
    spaces = [AddedToken(" " * n, normalized=True, special=False) for n in range(24, 1, -1)]
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), [
        *special("<|padding|>"), *spaces, AddedToken("|||EMAIL_ADDRESS|||", normalized=True, special=False),
        *special("<|endoftext|>")], normalizers.NFC())
    tokenizer.post_processor = begins_with("<|endoftext|>", tokenizer.token_to_id("<|endoftext|>"))
    return tokenizer


def starcoder():
    digits = pre_tokenizers.Digits(individual_digits=True)
    return byte_level(pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]),
                      special("<|endoftext|>"))


def digit_runs():
    digits = pre_tokenizers.Digits(individual_digits=False)
    return byte_level(pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]),
                      special("<|endoftext|>"))


def o200k():
    return byte_level(splits(O200K), special("<|endoftext|>"))


def deepseek():
    return byte_level(splits(*DEEPSEEK), special("<|endoftext|>"))


def normal_form(name):
    return byte_level(splits(QWEN2), special("<|endoftext|>"), getattr(normalizers, name)())


def stripping():
    """Added tokens of all kinds, normalized or not."""
    added = []
    for normalized in (False, True):
        mark = "N" if normalized else "R"
        added += [AddedToken(f"[{mark}L]", lstrip=True, normalized=normalized),
                  AddedToken(f"[{mark}R]", rstrip=True, normalized=normalized),
                  AddedToken(f"[{mark}LR]", lstrip=True, rstrip=True, normalized=normalized),
                  AddedToken(f"single{mark}", single_word=True, normalized=normalized),
                  AddedToken(f"\u6f22\u00e9{mark}", single_word=True, lstrip=True, normalized=normalized),
                  AddedToken(f"\u8a9ee\u0301{mark}", normalized=normalized)]
    return byte_level(splits(QWEN2), special("<|endoftext|>") + added, normalizers.NFC())


def sentence_piece(normalizer=None, pre_tokenizer=None, train_by=None, drop=(), strip=True, added=(), **options):
    """BPE of characters, with few of them: the others are bytes, or unknown."""
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Replace(" ", "\u2581")
    trained.pre_tokenizer = train_by
    lines = [text[i:i + 50] for text in TEXT for i in range(0, len(text), 50)]
    trained.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=900, limit_alphabet=90, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    tokens = [t for t in ["<unk>", "<s>", "</s>", *TOKEN_BYTES, *model["vocab"]] if t not in drop]
    options = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, **options}
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, [tuple(m) for m in model["merges"]], **options))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
        + ([decoders.Strip(content=" ", left=1)] if strip else []))
    tokenizer.add_tokens(special("<unk>", "<s>", "</s>") + list(added))
    tokenizer.post_processor = begins_with("<s>", 1)
    return tokenizer


def marks(scheme, split):
    return pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme=scheme, split=split)


WHOLE_WORDS = marks("never", True)
LEGACY = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])


def llama2():
    return sentence_piece(normalizer=LEGACY, train_by=WHOLE_WORDS,
                          added=[AddedToken("<pad>", normalized=False), AddedToken("<tool>", normalized=True)])


def mistral():
    return sentence_piece(pre_tokenizer=marks("first", False), train_by=WHOLE_WORDS,
                          added=special("[INST]", "[/INST]") + [AddedToken("<tool>", normalized=True)])


FAMILIES = {
    "gpt2": gpt2, "llama3": llama3, "qwen2": qwen2, "olmoe": olmoe, "llama2": llama2, "mistral": mistral,
    "starcoder": starcoder, "digit runs": digit_runs, "o200k": o200k, "deepseek": deepseek, "stripping": stripping,
    **{form: lambda form=form: normal_form(form) for form in ("NFC", "NFD", "NFKC", "NFKD")},
    "always": lambda: sentence_piece(pre_tokenizer=marks("always", False), train_by=WHOLE_WORDS),
    "never": lambda: sentence_piece(pre_tokenizer=marks("never", False), train_by=WHOLE_WORDS, strip=False),
    "cut words": lambda: sentence_piece(pre_tokenizer=marks("first", True), train_by=WHOLE_WORDS),
    "merges across words": lambda: sentence_piece(normalizer=LEGACY),
    "whole words": lambda: sentence_piece(pre_tokenizer=marks("first", True), ignore_merges=True),
    "fused unknown": lambda: sentence_piece(normalizer=LEGACY, train_by=WHOLE_WORDS, byte_fallback=False),
    "each unknown": lambda: sentence_piece(normalizer=LEGACY, train_by=WHOLE_WORDS, byte_fallback=False, fuse_unk=False),
    "no unknown": lambda: sentence_piece(normalizer=LEGACY, train_by=WHOLE_WORDS, byte_fallback=False, unk_token=None),
    "some bytes": lambda: sentence_piece(normalizer=LEGACY, train_by=WHOLE_WORDS,
                                         drop=[t for i, t in enumerate(TOKEN_BYTES) if i % 7 == 5]),
}
