# SPDX-License-Identifier: Apache-2.0
"""`ballast import`: what it refuses, and why. What it computes is compared with transformers in tests/oracles."""

import json
import pickle
import unittest

import numpy
from in_folder import InFolder
from safetensors.numpy import load_file, save_file

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 19, "hidden_size": 8, "intermediate_size": 12,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64, "hidden_act": "silu",
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "rope_scaling": None, "tie_word_embeddings": False, "attention_bias": False,
}
GPT2 = {
    "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 19, "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 16,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 6, "norm_topk_prob": True}


def llama_tensors():
    numbers = numpy.random.default_rng(1)
    shapes = {"model.embed_tokens.weight": (19, 8), "model.norm.weight": (8,), "lm_head.weight": (19, 8)}
    for block in range(2):
        here = f"model.layers.{block}."
        shapes |= {here + "input_layernorm.weight": (8,), here + "post_attention_layernorm.weight": (8,),
                   here + "self_attn.q_proj.weight": (8, 8), here + "self_attn.k_proj.weight": (4, 8),
                   here + "self_attn.v_proj.weight": (4, 8), here + "self_attn.o_proj.weight": (8, 8),
                   here + "mlp.gate_proj.weight": (12, 8), here + "mlp.up_proj.weight": (12, 8), here + "mlp.down_proj.weight": (8, 12)}
    return {name: numbers.standard_normal(shape).astype(numpy.float32) for name, shape in shapes.items()}


class Import(InFolder):
    def make(self, config=LLAMA, tensors=None, name="theirs"):
        (self.folder / name).mkdir(exist_ok=True)
        (self.folder / name / "config.json").write_text(json.dumps(config))
        if tensors is not None:
            save_file(tensors, self.folder / name / "model.safetensors", metadata={"format": "pt"})

    def refused_import(self, *says):
        self.refused("import", "theirs", "--out", "ours", says=says)
        self.assertFalse((self.folder / "ours").exists())

    def test_rows_of_several_become_one(self):
        tensors = llama_tensors()
        self.make(tensors=tensors)
        facts = json.loads(self.run_well("import", "theirs", "--out", "ours", "--json").stdout)
        self.assertEqual(facts["architecture"], "LlamaForCausalLM")
        self.assertIsNone(facts["tokenizer"])
        ours = load_file(self.folder / "ours" / "model.safetensors")
        attention, feed_forward = "model.layers.1.self_attn.", "model.layers.1.mlp."
        joined = numpy.concatenate([tensors[f"{attention}{part}_proj.weight"] for part in "qkv"])
        numpy.testing.assert_array_equal(ours["block.1.attention.qkv.weight"], joined)
        joined = numpy.concatenate([tensors[f"{feed_forward}{part}_proj.weight"] for part in ("gate", "up")])
        numpy.testing.assert_array_equal(ours["block.1.feed_forward.up.weight"], joined)
        self.refused("import", "theirs", "--out", "ours", says=["is there already", "--overwrite"])
        self.run_well("import", "theirs", "--out", "ours", "--overwrite")
        self.refused("import", "theirs", "--out", "theirs", says=["choose another"])

    def test_what_is_no_folder_of_theirs(self):
        self.refused_import("theirs")
        (self.folder / "theirs").mkdir()
        self.refused_import("config.json")
        (self.folder / "theirs" / "config.json").write_text("{")
        self.refused_import("config.json")
        (self.folder / "theirs" / "config.json").write_text("[]")
        self.refused_import("config.json", "object")
        self.make()
        self.refused_import("model.safetensors", "holds no weights")

    def test_pickles_are_refused_by_name_and_not_opened(self):
        class Trap:
            def __reduce__(self):
                return open, (str(self_folder / "sprung"), "w")

        self_folder = self.folder
        for name in ("pytorch_model.bin", "model.pt", "model.pth"):
            self.make(name="theirs")
            path = self.folder / "theirs" / name
            path.write_bytes(pickle.dumps(Trap()))
            path.chmod(0)
            self.refused_import(name, "pickle", "safetensors")
            path.unlink()
        index = {"weight_map": {"model.norm.weight": "pytorch_model-00001-of-00001.bin"}}
        (self.folder / "theirs" / "model.safetensors.index.json").write_text(json.dumps(index))
        self.refused_import("pytorch_model-00001-of-00001.bin", "pickle")
        self.assertFalse((self.folder / "sprung").exists())

    def test_shards_that_do_not_fit_their_index(self):
        tensors = llama_tensors()
        self.make()
        folder = self.folder / "theirs"
        names = sorted(tensors)
        parts = {"a.safetensors": names[:7], "b.safetensors": names[7:]}
        for file, of_file in parts.items():
            save_file({name: tensors[name] for name in of_file}, folder / file)
        index = {"weight_map": {name: file for file, of_file in parts.items() for name in of_file}}

        def store(weight_map):
            (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))

        store(index["weight_map"])
        self.run_well("import", "theirs", "--out", "whole")
        store(index["weight_map"] | {names[0]: "b.safetensors"})
        self.refused_import(names[0], "b.safetensors")
        store({name: file for name, file in index["weight_map"].items() if name != names[3]})
        self.refused_import(names[3], "does not name")
        store(index["weight_map"] | {names[0]: "../a.safetensors"})
        self.refused_import("not a file name")
        store(3)
        self.refused_import("weight_map")
        store(index["weight_map"])
        (folder / "b.safetensors").unlink()
        self.refused_import("b.safetensors", "is missing")

    def test_tensors_that_are_not_the_models(self):
        norm, q = "model.norm.weight", "model.layers.0.self_attn.q_proj.weight"
        whole = llama_tensors()
        cases = [
            ({name: tensor for name, tensor in whole.items() if name != norm}, ["lacks tensor", norm]),
            (whole | {norm: numpy.ones(9, numpy.float32)}, [norm, "[9]", "[8]"]),
            (whole | {"model.layers.2.mlp.up_proj.weight": whole[q]}, ["model.layers.2.mlp.up_proj.weight", "has not"]),
            (whole | {norm: numpy.ones(8, numpy.int32)}, [norm, "I32"]),
            (whole | {q: whole[q].astype(numpy.float16)}, [q, "F16"]),
        ]
        for tensors, says in cases:
            self.make(tensors=tensors)
            self.refused_import(*says)
        self.make(LLAMA | {"tie_word_embeddings": True}, whole)
        self.refused_import("lm_head.weight", "tie_word_embeddings")
        (self.folder / "theirs" / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{")
        self.refused_import("model.safetensors", "cut short")

    def test_what_cannot_be_represented_is_refused_by_name(self):
        mixtral = LLAMA | {"architectures": ["MixtralForCausalLM"]} | EXPERTS
        olmoe, qwen3 = ({**LLAMA, **EXPERTS, "architectures": [name]} for name in ("OlmoeForCausalLM", "Qwen3ForCausalLM"))
        moe = {**LLAMA, **EXPERTS, "architectures": ["Qwen3MoeForCausalLM"]}
        rope = {"factor": 2.0, "rope_theta": 1e4, "original_max_position_embeddings": 32}
        cases = [
            (LLAMA | {"architectures": ["GemmaForCausalLM"]}, ["GemmaForCausalLM", "LlamaForCausalLM"]),
            ({"model_type": "bert"}, ["bert"]),
            (LLAMA | {"hidden_size": None}, ["lacks hidden_size"]),
            (LLAMA | {"hidden_size": "8"}, ["hidden_size", "number"]),
            (LLAMA | {"num_key_value_heads": 3}, ["config.json", "model.heads_kv"]),
            (LLAMA | {"hidden_act": "gelu"}, ["hidden_act", "gelu"]),
            (LLAMA | {"attention_bias": True}, ["attention_bias"]),
            (LLAMA | {"mlp_bias": True}, ["mlp_bias"]),
            (LLAMA | {"partial_rotary_factor": 0.5}, ["partial_rotary_factor"]),
            (LLAMA | {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, ["rope_scaling.type", "dynamic"]),
            (LLAMA | {"rope_parameters": rope | {"rope_type": "longrope"}}, ["rope_parameters.rope_type", "longrope"]),
            (LLAMA | {"rope_parameters": rope | {"rope_type": "yarn", "truncate": False}}, ["rope_parameters.truncate"]),
            (LLAMA | {"rope_parameters": {"full_attention": rope}}, ["rope_parameters"]),
            (LLAMA | {"quantization_config": {"bits": 4}}, ["quantization_config"]),
            (mixtral | {"sliding_window": 32}, ["sliding_window", "32", "--context"]),
            (mixtral | {"num_experts_per_tok": 1}, ["num_experts_per_tok"]),
            (mixtral | {"num_experts_per_tok": 5}, ["config.json", "experts.count"]),
            (qwen3 | {"use_sliding_window": True, "sliding_window": 32, "max_window_layers": 1}, ["sliding_window"]),
            (qwen3 | {"attention_bias": True}, ["attention_bias"]),
            (olmoe | {"clip_qkv": 8.0}, ["clip_qkv"]),
            (moe | {"mlp_only_layers": [1]}, ["mlp_only_layers"]),
            (moe | {"decoder_sparse_step": 5}, ["decoder_sparse_step"]),
            (GPT2 | {"activation_function": "quick_gelu"}, ["activation_function", "quick_gelu"]),
            (GPT2 | {"scale_attn_weights": False}, ["scale_attn_weights"]),
            (GPT2 | {"scale_attn_by_inverse_layer_idx": True}, ["scale_attn_by_inverse_layer_idx"]),
            (GPT2 | {"add_cross_attention": True}, ["add_cross_attention"]),
        ]
        for config, says in cases:
            with self.subTest(says=says):
                self.make(config, llama_tensors())
                self.refused_import("config.json", *says)

    def test_a_shorter_context(self):
        self.make(tensors=llama_tensors())
        self.run_well("import", "theirs", "--out", "ours", "--context", 16)
        self.refused("import", "theirs", "--out", "other", "--context", 65, says=["--context 65", "64"])
        self.make(GPT2, llama_tensors())
        self.refused("import", "theirs", "--out", "other", "--context", 8, says=["--context 8", "learned"])

    def test_other_commands_say_what_to_do_with_such_a_folder(self):
        self.make(tensors=llama_tensors())
        self.refused("generate", "theirs", says=["ballast import"])


if __name__ == "__main__":
    unittest.main()
