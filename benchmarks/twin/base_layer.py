# SPDX-License-Identifier: Apache-2.0
"""A BASE layer in plain PyTorch, as the paper describes it, for one worker that holds all experts.

Experts are stacks of weights, so that all compute at once (baddbmm), laid out [E, in, out], so that their gradients
need not be copied; each is a few residual sublayers with a LayerNorm
and biases of its own. Tokens are assigned by the paper's auction, equally many to each expert; no gradient flows through
that. Experts must divide the tokens.
"""

import torch
import torch.nn.functional as F
from torch import nn

MOST_ROUNDS = 100


def auction(scores):  # [T, E] fp32 -> [T], the expert of each
    """Experts bid for tokens: for each of the T / E it values most, by how much it exceeds the next best, plus epsilon.

    epsilon is a fiftieth of the range of scores. A token goes to its highest bid, and its price rises by it. Who holds a
    token bids epsilon to keep it. What nobody holds after MOST_ROUNDS is given away greedily, expert by expert.
    """
    tokens, experts = scores.shape
    each = tokens // experts
    if experts == 1:
        return torch.zeros(tokens, dtype=torch.long, device=scores.device)
    scores = scores.t().contiguous()  # [E, T]
    epsilon = ((scores.max() - scores.min()) / 50).clamp(min=1e-6)
    bidder = torch.arange(experts, device=scores.device).unsqueeze(1)
    price = scores.new_zeros(tokens)
    holder = torch.full((tokens,), -1, device=scores.device)
    for _ in range(MOST_ROUNDS):
        value = torch.where(holder == bidder, torch.inf, scores - price)
        best, wanted = value.topk(each + 1, dim=1)
        bid = torch.where(best.isinf(), epsilon, best - best[:, -1:] + epsilon)
        bids = torch.zeros_like(scores).scatter_(1, wanted[:, :-1], bid[:, :-1])
        highest, winner = bids.max(0)
        wins = torch.where(holder < 0, highest > 0, highest > epsilon)
        holder = torch.where(wins, winner, holder)
        if bool((holder >= 0).all()):
            return holder
        price += highest
    held = torch.bincount(holder[holder >= 0], minlength=experts).tolist()
    for expert, count in enumerate(held):
        free = torch.where(holder < 0, scores[expert], -torch.inf)
        holder[free.topk(each - count).indices] = expert
    return holder


class Sublayer(nn.Module):
    """One residual sublayer of every expert: h + down relu(up LayerNorm(h)). Fresh ones are the identity."""

    def __init__(self, experts, width, hidden):
        super().__init__()
        self.norm_weight = nn.Parameter(torch.ones(experts, width))
        self.norm_bias = nn.Parameter(torch.zeros(experts, width))
        self.up_weight = nn.Parameter(0.02 * torch.randn(experts, width, hidden))
        self.up_bias = nn.Parameter(torch.zeros(experts, hidden))
        self.down_weight = nn.Parameter(torch.zeros(experts, hidden, width))
        self.down_bias = nn.Parameter(torch.zeros(experts, width))

    def forward(self, h):  # [E, T / E, D]
        normed = F.layer_norm(h, h.shape[-1:]) * self.norm_weight.unsqueeze(1) + self.norm_bias.unsqueeze(1)
        active = F.relu(torch.baddbmm(self.up_bias.unsqueeze(1), normed, self.up_weight))
        return h + torch.baddbmm(self.down_bias.unsqueeze(1), active, self.down_weight)


class BaseLayer(nn.Module):
    def __init__(self, experts, sublayers, width, hidden):
        super().__init__()
        self.assign = auction
        self.embeddings = nn.Parameter(nn.init.orthogonal_(torch.empty(experts, width), gain=0.1))
        self.sublayers = nn.ModuleList(Sublayer(experts, width, hidden) for _ in range(sublayers))

    @torch.compiler.disable  # rounds depend on the data
    @torch.no_grad()
    def order(self, tokens):  # [T, D] -> [T]: which token stands where, sorted by expert
        with torch.autocast(tokens.device.type, enabled=False):
            scores = tokens.to(self.embeddings.dtype) @ self.embeddings.t()
        return self.assign(scores).argsort(stable=True)

    def forward(self, x):  # [B, S, D]
        tokens = x.reshape(-1, x.shape[-1])
        order = self.order(tokens)
        rows = tokens.index_select(0, order).view(len(self.embeddings), -1, x.shape[-1])
        h = rows
        for sublayer in self.sublayers:
            h = sublayer(h)
        gate = torch.sigmoid((rows * self.embeddings.unsqueeze(1)).sum(-1, keepdim=True))
        mixed = rows + gate * (h - rows)
        return mixed.view_as(tokens).index_select(0, order.argsort()).view_as(x)
