# SPDX-License-Identifier: Apache-2.0
"""Texts within the frame of a tokenizer's template, as `tokenizers` and transformers put them: documents, prompts, questions."""

import json
import subprocess

import tokenizer_families
from hf_case import BUILD, HfCase, made, torch, transformers

TEXTS = ["It's raining in Spain.", "the quick brown fox\n\njumps over 12345 things", "na\u00efve caf\u00e9"]
# What ends a text, and the class that transformers has for the decoder.
FAMILIES = {
    "llama3": (tokenizer_families.llama3, "<|end_of_text|>", "llama"),
    "llama2": (tokenizer_families.llama2, "</s>", "llama"),
    "mistral": (tokenizer_families.mistral, "</s>", "mixtral"),
}


def config_of(kind, vocabulary):
    shape = dict(vocab_size=vocabulary, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
                 num_key_value_heads=2, max_position_embeddings=256)
    if kind == "mixtral":
        return transformers.MixtralConfig(**shape, num_local_experts=4, num_experts_per_tok=2)
    return transformers.LlamaConfig(**shape)


class Frames(HfCase):
    def of_family(self, name):
        make, end, kind = FAMILIES[name]
        theirs = make()
        self.end = theirs.token_to_id(end)
        model = made(config_of(kind, theirs.get_vocab_size()))
        model.save_pretrained(self.folder / "hf")
        theirs.save(str(self.folder / "hf" / "tokenizer.json"))
        (self.folder / "hf" / "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end}))
        self.run_well("import", "hf", "--out", "ours")
        framed, plain = ([theirs.encode(text, add_special_tokens=special).ids for text in TEXTS] for special in (True, False))
        self.assertNotEqual(framed, plain, "a family with a begin token")
        return model, theirs, framed, plain

    def tokens_of(self, folder):
        found = subprocess.run([BUILD / "token_reader", self.folder / folder, "train"], capture_output=True, check=True).stdout
        return json.loads(found)

    def written_by(self, model, prompt, count):
        ids = torch.tensor([prompt])
        with torch.no_grad():
            whole = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False, eos_token_id=None,
                                   pad_token_id=0)
        return whole[0, len(prompt) :].tolist()

    def documents_and_prompts(self, name):
        model, _, framed, plain = self.of_family(name)
        (self.folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
        for folder, options, wanted in (("framed", [], framed), ("plain", ["--unframed"], plain)):
            self.run_well("prepare", "texts.jsonl", "--tokenizer", "hf", "--valid-fraction", 0, "--out", folder, *options)
            found = self.tokens_of(folder)
            self.assertEqual(found["framed"], folder == "framed")
            self.assertEqual(found["tokens"], [token for ids in wanted for token in [*ids, self.end]])
        for text, ids in zip(TEXTS, framed):
            said = json.loads(self.run_well("generate", "ours", "--prompt", text, "--temperature", 0, "--max-tokens", 60, "--endless", "--json"))
            written = self.written_by(model, ids, 60)
            self.assertEqual(said["completions"][0]["ids"], written)
            self.assertGreaterEqual(len(set(written)), 20)
        shown = json.loads(self.run_well("tokenize", TEXTS[0], "--tokenizer", "ours", "--special", "--json"))
        self.assertEqual(shown["ids"], framed[0])

    def test_llama3(self):
        self.documents_and_prompts("llama3")

    def test_llama2(self):
        self.documents_and_prompts("llama2")

    def test_mistral(self):
        self.documents_and_prompts("mistral")

    def test_questions_begin_with_the_frame(self):
        """As lm-eval asks them: the context with the template's tokens, then what the whole adds to it."""
        model, theirs, _, _ = self.of_family("llama3")
        (self.folder / "words.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
        result = json.loads(self.run_well("eval", "ours", "--last-word", "words.jsonl", "--json"))["results"]["words"]
        nats = []
        for text in TEXTS:
            whole, context = (theirs.encode(part).ids for part in (text, text.rsplit(" ", 1)[0]))
            with torch.no_grad():
                odds = model(torch.tensor([whole])).logits[0].log_softmax(-1)
            nats.append(-sum(odds[place - 1, whole[place]].item() for place in range(len(context), len(whole))))
        self.assertAlmostEqual(result["perplexity,none"] / torch.tensor(nats).mean().exp().item(), 1, delta=1e-4)

    def test_a_run_on_framed_data_reads_prompts_so(self):
        _, _, framed, plain = self.of_family("llama3")
        (self.folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS * 20))
        shape = "--model.width=16 --model.layers=1 --model.heads=2 --model.context=32 --training.steps=1 --training.batch=2".split()
        for name, options, start in (("framed", [], framed[0]), ("plain", ["--unframed"], [self.end, *plain[0]])):
            self.run_well("prepare", "texts.jsonl", "--tokenizer", "hf", "--valid-fraction", 0, "--out", name, *options)
            self.run_well("train", "--data", name, *shape, "--training.sample_tokens=0", "--run", f"run {name}")
            self.run_well("export", f"run {name}", "--format", "hf", "--out", f"{name} hf")
            self.run_well("export", f"run {name}", "--out", f"{name} model")
            for ours in (f"run {name}", f"{name} model"):
                words = [ours, "--prompt", TEXTS[0], "--temperature", 0, "--max-tokens", 10, "--endless", "--json"]
                said = json.loads(self.run_well("generate", *words))["completions"][0]
                self.assertEqual(said["ids"], self.written_by(self.loaded(f"{name} hf"), start, 10))
