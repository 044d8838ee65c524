# SPDX-License-Identifier: Apache-2.0
"""The plain PyTorch twin of ballast's decoder: what the C++ model must equal and outrun.

Pre-norm blocks, LayerNorm on the output too, ReLU, no dropout, learned positions, tied embedding; with experts a BASE
layer in the middle. Written the way PyTorch users write it: nn.Linear, F.scaled_dot_product_attention, fused AdamW.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from base_layer import BaseLayer


class Block(nn.Module):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x):  # [B, S, D]
        rows, context, width = x.shape
        q, k, v = self.qkv(self.attention_norm(x)).split(width, dim=2)
        q, k, v = (t.view(rows, context, self.heads, width // self.heads).transpose(1, 2) for t in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attention_out(mixed.transpose(1, 2).reshape(rows, context, width))
        return x + self.down(F.relu(self.up(self.feed_forward_norm(x))))


class LanguageModel(nn.Module):
    def __init__(self, vocabulary, width, layers, heads, context, experts=0, sublayers=1):
        super().__init__()
        hidden = 4 * width
        self.token_embedding = nn.Embedding(vocabulary, width)
        self.position_embedding = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, hidden) for _ in range(layers))
        self.output_norm = nn.LayerNorm(width)
        for name, parameter in self.named_parameters():
            if name.endswith("weight") and parameter.dim() == 2:
                deep = name.endswith(("attention_out.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers) if deep else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        self.base = BaseLayer(experts, sublayers, width, hidden) if experts > 0 else None

    def clipped_by(self):
        """The parameters whose norm clipping goes by: all but the experts', as in the paper."""
        return [p for name, p in self.named_parameters() if not name.startswith("base.sublayers.")]

    def forward(self, inputs, targets):  # [B, S] each -> mean loss
        positions = torch.arange(inputs.shape[1], device=inputs.device)
        x = self.token_embedding(inputs) + self.position_embedding(positions)
        # In two loops: a compiler that has to stop within one leaves all of this function uncompiled.
        middle = len(self.blocks) // 2 if self.base is not None else 0
        for block in self.blocks[:middle]:
            x = block(x)
        if self.base is not None:
            x = self.base(x)
        for block in self.blocks[middle:]:
            x = block(x)
        logits = F.linear(self.output_norm(x), self.token_embedding.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))
