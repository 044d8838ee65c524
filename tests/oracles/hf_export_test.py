# SPDX-License-Identifier: Apache-2.0
"""Models that `ballast train` made, as transformers computes them after `ballast export --format hf`."""

import json

from hf_case import HfCase, made, made_wild, torch, transformers
from safetensors.torch import load_file

SHAPE = "--model.width=32 --model.layers=4 --model.heads=4 --model.context=256".split()
TRAINING = (
    "--training.threads=1 --training.batch=4 --training.validate_every=0 --training.validate_batches=1 --training.sample_tokens=0 "
    "--data.builtin_bytes=60000 --optimizer.warmup_steps=2"
).split()
EXPERTS = "--experts.layers=2 --experts.count=4 --experts.sublayers=1".split()
PAPER = "--experts.features=raw --experts.gate=sigmoid --experts.scores=dot --experts.look_ahead=false".split()
# Experts with weights as wild as the feed-forwards that they are copies of.
COPIES = ["--upcycle=copy", "--upcycle-noise=1"]
MODERN = (
    "--model.positions=rope --model.norm=rms --model.norm_epsilon=1e-6 --model.activation=swiglu --model.biases=none "
    "--model.heads_kv=2 --model.tied=false"
).split()
GATES = "--experts.placement=replace --experts.norm=layer --experts.scores=dot --experts.look_ahead=false".split()


def wild(kind):
    """A dense model of transformers whose random weights write many different bytes."""
    shape = dict(vocab_size=257, hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
                 max_position_embeddings=256, bos_token_id=0, eos_token_id=0)
    if kind == "gpt2":
        return made(transformers.GPT2Config(vocab_size=257, n_embd=32, n_layer=4, n_head=4, n_positions=256, activation_function="relu"))
    if kind == "llama":
        return made(transformers.LlamaConfig(**shape))
    return made(transformers.Qwen3Config(**shape, head_dim=16), seed=3)


class ExportCase(HfCase):
    def exported(self, *knobs, as_class, start=None):
        """A run of a few steps from wild weights, so that what it writes can show a difference. `start`: which dense model
        they are of; without it they are of the same model, made wild."""
        if start is not None:
            wild(start).save_pretrained(self.folder / "wild")
        else:
            self.run_well("train", *SHAPE, *TRAINING, *knobs, "--training.steps=1", "--run", "tame")
            self.run_well("export", "tame", "--format", "hf", "--out", "tame hf")
            torch.manual_seed(1)
            made_wild(self.loaded("tame hf")).save_pretrained(self.folder / "wild")
        first = ["--init-from", "wild", "--training.steps=2", "--optimizer.learning_rate=1e-5"]
        self.run_well("train", *first, *TRAINING, *knobs, "--run", "run")
        facts = json.loads(self.run_well("export", "run", "--format", "hf", "--out", "theirs", "--json"))
        self.assertEqual(facts["architecture"], as_class)
        model = self.loaded("theirs")
        self.assertEqual(type(model).__name__, as_class)
        written = self.assert_same_model("run", model, 257)
        self.assertGreaterEqual(len(set(written)), 20, "a continuation that could show a difference")
        return model

    def of_our_own(self, *knobs, start=None):
        model = self.exported(*knobs, as_class="BallastForCausalLM", start=start)
        # The folder is a model of ours as well.
        self.assert_same_model("theirs", model, 257, more=20)
        self.assert_padding_changes_nothing(model)
        self.assert_comes_back(model)

    def assert_comes_back(self, model):
        """transformers saves it again, in shards too, and `ballast import` takes it over to the bit. It holds prices in fp32."""
        def tensors_of(name):
            tensors = load_file(self.folder / name / "model.safetensors")
            return {key: tensor.float() if key.endswith(".prices") else tensor for key, tensor in tensors.items()}

        ours = tensors_of("theirs")
        for name, options in (("again", {}), ("shards", {"max_shard_size": "100KB"})):
            model.save_pretrained(self.folder / name, **options)
            facts = json.loads(self.run_well("import", name, "--out", f"{name} ours", "--json"))
            self.assertEqual(facts["architecture"], "BallastForCausalLM")
            self.assertEqual(facts["parameters"], sum(p.numel() for p in model.parameters()))
            self.assert_same_tensors(ours, tensors_of(f"{name} ours"))
        self.assertTrue((self.folder / "shards" / "model.safetensors.index.json").exists())
        self.run_well("export", "again ours", "--format", "hf", "--out", "back")
        self.assert_same_tensors(ours, tensors_of("back"))
        one, other = (json.loads((self.folder / name / "config.json").read_text()) for name in ("theirs", "back"))
        self.assertEqual({**one, "eos_token_id": None, "bos_token_id": None}, {**other, "eos_token_id": None, "bos_token_id": None})

    def assert_padding_changes_nothing(self, model):
        tokens = torch.arange(40, 60)[None]
        padded = torch.cat((torch.zeros(1, 5, dtype=torch.long), tokens), dim=1)
        mask = torch.cat((torch.zeros(1, 5), torch.ones(1, 20)), dim=1)
        with torch.no_grad():
            plain = model.generate(tokens, attention_mask=torch.ones(1, 20), max_new_tokens=30, do_sample=False, eos_token_id=None,
                                   pad_token_id=0)
            shifted = model.generate(padded, attention_mask=mask, max_new_tokens=30, do_sample=False, eos_token_id=None, pad_token_id=0)
        self.assertEqual(plain[0, 20:].tolist(), shifted[0, 25:].tolist())


class ModelsOfThePaper(ExportCase):
    def test_the_papers_dense_decoder_is_a_gpt2(self):
        model = self.exported(as_class="GPT2LMHeadModel", start="gpt2")
        self.assertEqual(model.config.activation_function, "relu")

    def test_base(self):
        self.of_our_own(*EXPERTS, start="gpt2")

    def test_base_in_the_papers_frame_with_greedy_routing(self):
        self.of_our_own(*EXPERTS, *PAPER, "--experts.sublayers=2", "--experts.test_routing=greedy", start="gpt2")

    def test_base_with_several_experts_of_a_token_and_one_for_all(self):
        self.of_our_own(*EXPERTS, "--experts.per_token=2", "--experts.shared=0.5", "--experts.placement=replace", *COPIES, start="gpt2")

    def test_base_before_all_blocks(self):
        self.of_our_own("--experts.layers=4", "--experts.count=4", "--experts.sublayers=2")

    def test_switch(self):
        self.of_our_own(*EXPERTS, "--experts.router=switch", "--experts.placement=replace", *COPIES, start="gpt2")

    def test_sparsely_gated(self):
        self.of_our_own(*EXPERTS, "--experts.router=sparsely_gated", "--experts.placement=replace", "--experts.hidden=48")

    def test_its_tokenizer_is_ours(self):
        self.run_well("train", *SHAPE, *TRAINING, "--data.builtin_vocabulary=300", "--training.steps=1", "--run", "run")
        self.run_well("export", "run", "--format", "hf", "--out", "theirs")
        tokenizer = transformers.AutoTokenizer.from_pretrained(self.folder / "theirs")
        text = "Der Regen fällt  auf 17 Dächer.\n\tif (x) { return 😀; }"
        self.assertEqual(tokenizer.decode(tokenizer(text)["input_ids"]), text)
        self.assertEqual(len(tokenizer), 300)
        self.assertEqual(tokenizer.eos_token_id, json.loads((self.folder / "theirs" / "config.json").read_text())["eos_token_id"])
        self.assertEqual(tokenizer(tokenizer.eos_token)["input_ids"], [tokenizer.eos_token_id])

    def test_a_model_of_bytes_has_a_tokenizer_too(self):
        self.run_well("train", *SHAPE, *TRAINING, "--training.steps=1", "--run", "run")
        self.run_well("export", "run", "--format", "hf", "--out", "theirs")
        tokenizer = transformers.AutoTokenizer.from_pretrained(self.folder / "theirs")
        text = "Dächer 😀"
        self.assertEqual(tokenizer(text)["input_ids"], list(text.encode()))
        self.assertEqual(tokenizer.decode(tokenizer(text)["input_ids"]), text)


class ModernModels(ExportCase):
    def test_a_llama(self):
        self.exported(as_class="LlamaForCausalLM", start="llama")

    def test_a_qwen2(self):
        self.exported(*MODERN, "--model.biases=qkv", as_class="Qwen2ForCausalLM")

    def test_a_qwen3(self):
        self.exported(as_class="Qwen3ForCausalLM", start="qwen3")

    def test_sparsely_gated_is_a_mixtral(self):
        sparse = ["--experts.router=sparsely_gated", "--experts.layers=4", "--experts.count=4", *GATES]
        self.exported(*sparse, *COPIES, as_class="MixtralForCausalLM", start="llama")

    def test_switch_is_a_qwen3_moe(self):
        sparse = ["--experts.router=switch", "--experts.layers=2", "--experts.count=4", *GATES]
        self.exported(*sparse, *COPIES, as_class="Qwen3MoeForCausalLM", start="qwen3")

    def test_base_with_todays_parts(self):
        parts = "--model.query_key_norm=width --model.activation=relu2 --model.logit_cap=15 --model.head_width=12".split()
        self.of_our_own(*MODERN, *parts, *EXPERTS, "--experts.placement=replace", "--experts.norm=layer")

    def test_base_with_swiglu_between_the_blocks_and_a_stretched_rope(self):
        rope = "--model.rope_scaling=yarn --model.rope_factor=4 --model.rope_low=1 --model.rope_high=32".split()
        self.of_our_own(*MODERN, *rope, *EXPERTS, "--model.query_key_norm=head", "--model.tied=true")

    def test_base_as_copies_in_place_of_feed_forwards_of_today(self):
        sparse = [*EXPERTS, *COPIES, "--experts.placement=replace", "--experts.norm=layer", "--model.logit_cap=30"]
        self.of_our_own(*sparse, start="qwen3")

    def test_gates_that_look_ahead_and_are_not_renormalised(self):
        sparse = ["--experts.router=sparsely_gated", "--experts.per_token=3", "--experts.renormalise=false"]
        rope = "--model.rope_scaling=llama3 --model.rope_factor=8 --model.rope_context=32".split()
        self.of_our_own(*MODERN, *rope, *EXPERTS, *sparse, "--model.biases=qkv", "--model.norm=layer")

