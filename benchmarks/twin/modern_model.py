# SPDX-License-Identifier: Apache-2.0
"""The plain PyTorch twin of a modern dense decoder: rotary positions, RMSNorm, normed queries and keys, squared ReLU or
SwiGLU, no biases, tied embedding. Written the way PyTorch users write it, for `ballast bench step --decoder`.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


def turned(x, cosines, sines):  # [B, H, S, W]
    a, b = x.chunk(2, -1)
    return torch.cat((a * cosines - b * sines, b * cosines + a * sines), -1).type_as(x)


class Block(nn.Module):
    def __init__(self, width, heads, hidden, activation):
        super().__init__()
        self.heads, self.gated = heads, activation == "swiglu"
        self.attention_norm = nn.RMSNorm(width, eps=1e-5)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.query_norm = nn.RMSNorm(width // heads, eps=1e-5)
        self.key_norm = nn.RMSNorm(width // heads, eps=1e-5)
        self.attention_out = nn.Linear(width, width, bias=False)
        self.feed_forward_norm = nn.RMSNorm(width, eps=1e-5)
        self.up = nn.Linear(width, 2 * hidden if self.gated else hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x, cosines, sines):  # [B, S, D]
        rows, context, width = x.shape
        q, k, v = self.qkv(self.attention_norm(x)).split(width, dim=2)
        q, k, v = (t.view(rows, context, self.heads, width // self.heads).transpose(1, 2) for t in (q, k, v))
        q, k = turned(self.query_norm(q), cosines, sines), turned(self.key_norm(k), cosines, sines)
        mixed = F.scaled_dot_product_attention(q.type_as(v), k.type_as(v), v, is_causal=True)
        x = x + self.attention_out(mixed.transpose(1, 2).reshape(rows, context, width))
        inner = self.up(self.feed_forward_norm(x))
        if self.gated:
            gate, up = inner.chunk(2, -1)
            return x + self.down(F.silu(gate) * up)
        return x + self.down(F.relu(inner).square())


class ModernModel(nn.Module):
    def __init__(self, vocabulary, width, layers, heads, context, hidden, activation):
        super().__init__()
        self.base = None  # there are no experts
        self.token_embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, hidden, activation) for _ in range(layers))
        self.output_norm = nn.RMSNorm(width, eps=1e-5)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                deep = name.endswith(("attention_out.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers) if deep else 0.02)
        angles = 1 / 10000 ** (torch.arange(0, width // heads, 2) / (width // heads))
        turns = torch.arange(context)[:, None] * angles
        self.register_buffer("cosines", turns.cos(), persistent=False)
        self.register_buffer("sines", turns.sin(), persistent=False)

    def clipped_by(self):
        return list(self.parameters())

    def forward(self, inputs, targets):  # [B, S] each -> mean loss
        x = self.token_embedding(inputs)
        for block in self.blocks:
            x = block(x, self.cosines, self.sines)
        logits = F.linear(self.output_norm(x), self.token_embedding.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))
