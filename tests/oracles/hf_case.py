# SPDX-License-Identifier: Apache-2.0
"""What comparisons with transformers share: tiny models of every family, and what our program makes of a model."""

import contextlib
import io
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

SCRATCH = tempfile.TemporaryDirectory()
os.environ.update(HF_HOME=SCRATCH.name, HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")

import torch_of_build  # noqa: F401  torch before anybody else imports it
import numpy
import torch
import transformers

BUILD = Path(os.environ["BALLAST_BUILD"])
BALLAST = BUILD / "ballast"
torch.set_num_threads(1)
transformers.utils.logging.disable_progress_bar()

SHAPE = dict(vocab_size=211, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4,
             max_position_embeddings=256, bos_token_id=0, eos_token_id=0)
GROUPED = dict(SHAPE, num_key_value_heads=2)
LLAMA3 = dict(rope_type="llama3", rope_theta=5000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64)


def configs():
    """A name, and a configuration of transformers."""
    gpt2 = dict(vocab_size=211, n_embd=48, n_layer=3, n_head=4, n_positions=256, bos_token_id=0, eos_token_id=0)
    t = transformers
    return {
        "gpt2": t.GPT2Config(**gpt2),
        "gpt2 with gelu, untied": t.GPT2Config(**gpt2, n_inner=100, activation_function="gelu", tie_word_embeddings=False),
        "llama": t.LlamaConfig(**GROUPED),
        "llama 3, tied": t.LlamaConfig(**GROUPED, rope_parameters=dict(LLAMA3), tie_word_embeddings=True, head_dim=16),
        "llama with biases, yarn": t.LlamaConfig(**SHAPE, attention_bias=True, mlp_bias=True, rope_parameters=dict(YARN)),
        "qwen2": t.Qwen2Config(**GROUPED, rope_parameters=dict(rope_type="linear", rope_theta=1e4, factor=2.0)),
        "qwen3": t.Qwen3Config(**GROUPED, head_dim=32, tie_word_embeddings=True),
        "mixtral": t.MixtralConfig(**GROUPED, num_local_experts=6, num_experts_per_tok=2),
        "olmoe": t.OlmoeConfig(**GROUPED, num_experts=8, num_experts_per_tok=3),
        "qwen3 moe": t.Qwen3MoeConfig(**GROUPED, head_dim=16, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=40,
                                      norm_topk_prob=True, decoder_sparse_step=1),
        "qwen3 moe, one expert": t.Qwen3MoeConfig(**dict(GROUPED, num_hidden_layers=4), head_dim=12, num_experts=4,
                                                  num_experts_per_tok=1, moe_intermediate_size=40, decoder_sparse_step=2),
    }


def made_wild(model):
    """The model with random weights that write many different tokens."""
    with torch.no_grad():
        for name, weights in model.named_parameters():
            deviation = 2 if "wpe" in name or "position_embedding" in name else 0.3 if weights.dim() > 1 else 0.1
            weights.copy_(torch.randn_like(weights) * deviation + (1 if "norm" in name and "bias" not in name else 0))
    return model


def made(config, seed=1):
    torch.manual_seed(seed)
    return made_wild(transformers.AutoModelForCausalLM.from_config(config).eval().float())


def ballast(*words, cwd=None):
    command = [BALLAST, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300)


class HfCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_well(self, *words):
        result = ballast(*words, cwd=self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def of_ours(self, model, tokens, more):
        """Logits [T, V] and greedy continuation of a model of ours."""
        request = json.dumps({"tokens": tokens, "continue": more})
        result = subprocess.run([BUILD / "logits_tool", model, "logits"], input=request, cwd=self.folder, capture_output=True,
                                text=True, timeout=300)
        self.assertEqual(result.returncode, 0, result.stderr)
        logits = numpy.fromfile(self.folder / "logits", dtype=numpy.float32).reshape(len(tokens), -1)
        return torch.from_numpy(logits), json.loads(result.stdout)

    def loaded(self, folder):
        with contextlib.redirect_stderr(io.StringIO()):
            return transformers.AutoModelForCausalLM.from_pretrained(self.folder / folder, trust_remote_code=True).eval()

    def assert_same_model(self, ours, theirs, vocabulary, more=200):
        """Logits of 40 tokens, and what both write after the first 8 of them."""
        tokens = torch.randint(1, vocabulary, (40,), generator=torch.Generator().manual_seed(5))
        # Token 0 is what stands between documents here, and `generate` of ours starts with it.
        prompt = torch.cat((torch.zeros(1, dtype=torch.long), tokens[:8]))[None]
        logits, _ = self.of_ours(ours, tokens.tolist(), 0)
        with torch.no_grad():
            wanted = theirs(tokens[None]).logits[0].float()
            written = theirs.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=more, do_sample=False,
                                      eos_token_id=None, pad_token_id=0)[0, prompt.shape[1] :].tolist()
        self.assertLess((logits - wanted).abs().max() / wanted.abs().max(), 1e-5)
        self.assertEqual(self.of_ours(ours, tokens[:8].tolist(), more)[1], written)
        return written

    def assert_same_tensors(self, one, other):
        self.assertEqual(one.keys(), other.keys())
        for name, tensor in one.items():
            self.assertEqual(tensor.dtype, other[name].dtype, name)
            self.assertTrue(torch.equal(tensor, other[name]), name)


