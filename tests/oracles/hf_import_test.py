# SPDX-License-Identifier: Apache-2.0
"""Models that transformers made and saved, as `ballast import` takes them over and `ballast export` gives them back."""

import json

from hf_case import HfCase, configs, made, torch, transformers
from safetensors.torch import load_file, save_file


class ImportedModels(HfCase):
    def takes_over(self, name):
        config = configs()[name]
        theirs = made(config)
        theirs.save_pretrained(self.folder / "theirs")
        facts = json.loads(self.run_well("import", "theirs", "--out", "ours", "--json"))
        self.assertEqual(facts["architecture"], config.architectures[0] if config.architectures else type(theirs).__name__)
        self.assertEqual(facts["parameters"], sum(p.numel() for p in theirs.parameters()))
        written = self.assert_same_model("ours", theirs, config.vocab_size)
        self.assertGreaterEqual(len(set(written)), 20, "a continuation that could show a difference")
        back = json.loads(self.run_well("export", "ours", "--format", "hf", "--out", "back", "--json"))
        self.assertEqual(back["architecture"], facts["architecture"])
        again = self.loaded("back")
        self.assertIs(type(again), type(theirs))
        self.assert_same_tensors(theirs.state_dict(), again.state_dict())
        tokens = torch.arange(1, 30)[None]
        with torch.no_grad():
            self.assertTrue(torch.equal(theirs(tokens).logits, again(tokens).logits), "its config is the same, too")

    def test_gpt2(self):
        self.takes_over("gpt2")

    def test_gpt2_with_another_activation_and_an_output_of_its_own(self):
        self.takes_over("gpt2 with gelu, untied")

    def test_llama(self):
        self.takes_over("llama")

    def test_llama_3_with_its_rope_and_wide_heads(self):
        self.takes_over("llama 3, tied")

    def test_llama_with_biases_and_yarn(self):
        self.takes_over("llama with biases, yarn")

    def test_qwen2(self):
        self.takes_over("qwen2")

    def test_qwen3(self):
        self.takes_over("qwen3")

    def test_mixtral(self):
        self.takes_over("mixtral")

    def test_olmoe(self):
        self.takes_over("olmoe")

    def test_qwen3_moe(self):
        self.takes_over("qwen3 moe")

    def test_qwen3_moe_with_one_expert_of_a_token_in_every_other_block(self):
        self.takes_over("qwen3 moe, one expert")


class Layouts(HfCase):
    def test_experts_in_stacks_are_those_one_by_one(self):
        for name in ("mixtral", "olmoe", "qwen3 moe"):
            with self.subTest(name):
                model = made(configs()[name])
                for layout in ("single", "packed"):
                    model.save_pretrained(self.folder / name / layout)
                state = {key: value.contiguous() for key, value in model.state_dict().items()}
                self.assertTrue(any(key.endswith("experts.gate_up_proj") for key in state))
                save_file(state, self.folder / name / "packed" / "model.safetensors", metadata={"format": "pt"})
                self.assertFalse(any("gate_up_proj" in key for key in load_file(self.folder / name / "single" / "model.safetensors")))
                for layout in ("single", "packed"):
                    self.run_well("import", self.folder / name / layout, "--out", f"{name} {layout}")
                one, other = (load_file(self.folder / f"{name} {layout}" / "model.safetensors") for layout in ("single", "packed"))
                self.assert_same_tensors(one, other)

    def test_shards_are_one_model(self):
        model = made(configs()["llama"])
        model.save_pretrained(self.folder / "whole")
        model.save_pretrained(self.folder / "parts", max_shard_size="50KB")
        self.assertGreater(len(list((self.folder / "parts").glob("*.safetensors"))), 3)
        for name in ("whole", "parts"):
            self.run_well("import", name, "--out", f"{name} ours")
        self.assert_same_tensors(*(load_file(self.folder / f"{name} ours" / "model.safetensors") for name in ("whole", "parts")))

    def test_half_precision_comes_back_to_the_bit(self):
        for name, dtype, ours in (("llama", torch.bfloat16, "bf16"), ("gpt2", torch.float16, "fp16")):
            with self.subTest(name):
                model = made(configs()[name]).to(dtype)
                model.save_pretrained(self.folder / name)
                self.run_well("import", name, "--out", f"{name} ours")
                self.run_well("export", f"{name} ours", "--format", "hf", "--dtype", ours, "--out", f"{name} back")
                one, other = (load_file(self.folder / folder / "model.safetensors") for folder in (name, f"{name} back"))
                self.assert_same_tensors(one, other)
                self.assertEqual(self.loaded(f"{name} back").dtype, dtype)

    def test_gpt2_as_it_was_saved_without_its_head(self):
        model = made(configs()["gpt2"])
        model.save_pretrained(self.folder / "with")
        model.transformer.save_pretrained(self.folder / "without")
        config = json.loads((self.folder / "with" / "config.json").read_text())
        (self.folder / "without" / "config.json").write_text(json.dumps(config))
        for name in ("with", "without"):
            self.run_well("import", name, "--out", f"{name} ours")
        self.assert_same_tensors(*(load_file(self.folder / f"{name} ours" / "model.safetensors") for name in ("with", "without")))

    def test_a_config_of_an_older_version(self):
        config = transformers.LlamaConfig(**configs()["llama"].to_diff_dict())
        model = made(config)
        model.save_pretrained(self.folder / "new")
        model.save_pretrained(self.folder / "old")
        path = self.folder / "old" / "config.json"
        old = json.loads(path.read_text())
        rope = old.pop("rope_parameters")
        old |= {"rope_theta": rope["rope_theta"], "rope_scaling": None, "torch_dtype": old.pop("dtype", "float32")}
        path.write_text(json.dumps(old))
        for name in ("new", "old"):
            self.run_well("import", name, "--out", f"{name} ours")
        one, other = ((self.folder / f"{name} ours" / "model.safetensors").read_bytes() for name in ("new", "old"))
        self.assertEqual(one, other)
