# SPDX-License-Identifier: Apache-2.0
"""A plain PyTorch twin of ballast's decoder with any of its parts, and with experts in place of feed-forwards.

Everything is a function of a dictionary of parameters, under ballast's names and in the order in which ballast declares
them. It is written to be compared with, not to be fast: record_losses.py trains it.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment

DEFAULTS = {"vocabulary": 61, "width": 32, "layers": 2, "heads": 4, "context": 16, "heads_kv": 4, "head_width": 8,
            "hidden": 64, "positions": "learned", "rope_theta": 10000.0, "rope_scaling": "none", "rope_factor": 1.0,
            "rope_context": 0, "rope_low": 1.0, "rope_high": 4.0, "norm": "layer", "norm_epsilon": 1e-5,
            "activation": "relu", "query_key_norm": "none", "biases": "all", "tied": True, "logit_cap": 0.0,
            "document_mask": False, "separator": 7, "dropout": 0.0}
NO_EXPERTS = {"layers": 0}


def places(model, experts):
    return [(i + 1) * model["layers"] // experts["layers"] for i in range(experts["layers"])]


class Declared:
    """Names and shapes in the order of declaration; `ones`: a norm's weight."""

    def __init__(self, model, experts):
        self.shapes, self.ones = {}, set()
        self.model, d = model, model["width"]
        self.add("token_embedding", model["vocabulary"], d)
        if not model["tied"]:
            self.add("output.weight", model["vocabulary"], d)
        if model["positions"] == "learned":
            self.add("position_embedding", model["context"], d)
        replaced = places(model, experts)
        for block in range(model["layers"]):
            self.attention(f"block.{block}.attention")
            if block + 1 not in replaced:
                self.norm(f"block.{block}.feed_forward.norm")
                self.feed_forward(lambda part, *shape, b=block: self.add(f"block.{b}.feed_forward.{part}", *shape),
                                  model["hidden"])
        for place in replaced:
            self.experts(f"layer.{place}", experts)
        self.norm("output_norm")

    def add(self, name, *shape):
        self.shapes[name] = shape

    def norm(self, name):
        self.add(name + ".weight", self.model["width"])
        self.ones.add(name + ".weight")
        if self.model["norm"] == "layer":
            self.add(name + ".bias", self.model["width"])

    def attention(self, name):
        m = self.model
        queries, keys = m["heads"] * m["head_width"], m["heads_kv"] * m["head_width"]
        self.norm(name + ".norm")
        self.add(name + ".qkv.weight", queries + 2 * keys, m["width"])
        if m["biases"] != "none":
            self.add(name + ".qkv.bias", queries + 2 * keys)
        if m["query_key_norm"] != "none":
            whole = m["query_key_norm"] == "width"
            for part, width in (("query_norm", queries), ("key_norm", keys)):
                self.add(f"{name}.{part}.weight", width if whole else m["head_width"])
                self.ones.add(f"{name}.{part}.weight")
        self.add(name + ".out.weight", m["width"], queries)
        if m["biases"] == "all":
            self.add(name + ".out.bias", m["width"])

    def feed_forward(self, add, hidden):
        inner = hidden * (2 if self.model["activation"] == "swiglu" else 1)
        biases = self.model["biases"] == "all"
        add("up.weight", inner, self.model["width"])
        if biases:
            add("up.bias", inner)
        add("down.weight", self.model["width"], hidden)
        if biases:
            add("down.bias", self.model["width"])

    def experts(self, name, experts):
        if experts["norm"] == "layer":
            self.norm(name + ".norm")
        scores = "expert_embeddings" if experts["router"] == "base" else "gate.weight"
        if experts["norm"] == "own" or experts["look_ahead"]:
            self.norm(name + (".router_norm" if experts["router"] == "base" else ".gate.norm"))
        self.add(f"{name}.{scores}", experts["count"], self.model["width"])
        of_experts = [f"{name}.expert.{e}.sublayer.0" for e in range(experts["count"])]
        if experts["norm"] == "own":
            for part in ("weight", "bias")[:2 if self.model["norm"] == "layer" else 1]:
                for expert in of_experts:
                    self.add(f"{expert}.norm.{part}", self.model["width"])
                    if part == "weight":
                        self.ones.add(f"{expert}.norm.{part}")

        def add(part, *shape):
            for expert in of_experts:
                self.add(f"{expert}.{part}", *shape)

        self.feed_forward(add, experts["hidden"])


def mix_bits(x):
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def kept(key, place, part, rows, width):
    """Ballast's mask of dropout: kernels/dropout_parts.h."""
    with np.errstate(over="ignore"):
        of_place = mix_bits(np.array([key], np.uint64) ^ mix_bits(np.array([place], np.uint64)))
        bits = mix_bits(of_place ^ mix_bits(np.arange(rows * width, dtype=np.uint64)))
    return torch.from_numpy((bits >> np.uint64(32)) >= np.uint64(int(part * 2**32))).view(rows, width)


def rope_angles(m):
    width = m["head_width"]
    theta = torch.tensor(m["rope_theta"], dtype=torch.float32)
    angles = 1 / theta ** (torch.arange(0, width, 2, dtype=torch.float32) / width)
    before = m["rope_context"] or m["context"] / m["rope_factor"]
    if m["rope_scaling"] == "linear":
        return angles / m["rope_factor"], 1.0
    if m["rope_scaling"] == "llama3":
        turns = before * angles.double() / (2 * math.pi)
        part = ((turns - m["rope_low"]) / (m["rope_high"] - m["rope_low"])).clamp(0, 1)
        return ((1 - part) * angles / m["rope_factor"] + part * angles).float(), 1.0
    if m["rope_scaling"] == "yarn":
        def pair(turns):
            return width * math.log(before / (turns * 2 * math.pi)) / (2 * math.log(m["rope_theta"]))
        low, high = max(math.floor(pair(m["rope_high"])), 0), min(math.ceil(pair(m["rope_low"])), width - 1)
        ramp = ((torch.arange(width // 2) - low) / max(high - low, 0.001)).clamp(0, 1).double()
        return (angles / m["rope_factor"] * ramp + angles * (1 - ramp)).float(), 0.1 * math.log(m["rope_factor"]) + 1
    return angles, 1.0


class Decoder:
    def __init__(self, model, experts=None):
        self.model, self.layers = {**DEFAULTS, **model}, experts or NO_EXPERTS
        self.declared = Declared(self.model, self.layers)
        # In double: who is chosen then does not hang on rounding.
        self.parameters = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in self.declared.shapes.items()}
        self.balance = 0.0  # what gates add to the loss

    def norm(self, x, name):
        weight, m = self.parameters[name + ".weight"], self.model
        if m["norm"] == "layer":
            return F.layer_norm(x, x.shape[-1:], weight, self.parameters[name + ".bias"], m["norm_epsilon"])
        return self.rms(x, weight)

    def rms(self, x, weight):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.model["norm_epsilon"]) * weight

    def linear(self, x, name):
        return F.linear(x, self.parameters[name + ".weight"], self.parameters.get(name + ".bias"))

    def activate(self, x):
        kind = self.model["activation"]
        if kind == "swiglu":
            gate, up = x.chunk(2, -1)
            return F.silu(gate) * up
        return {"relu": F.relu, "gelu": F.gelu, "gelu_tanh": lambda v: F.gelu(v, approximate="tanh"),
                "relu2": lambda v: F.relu(v).square()}[kind](x)

    def feed_forward(self, x, name):
        return self.linear(self.activate(self.linear(x, name + ".up")), name + ".down")

    def turn(self, x):  # [B, heads, S, W]
        angles, magnitude = rope_angles(self.model)
        turned = torch.arange(x.shape[2], dtype=torch.float32)[:, None] * angles
        c, s = turned.to(x.dtype).cos() * magnitude, turned.to(x.dtype).sin() * magnitude
        a, b = x.chunk(2, -1)
        return torch.cat((a * c - b * s, b * c + a * s), -1)

    def attention(self, x, name, mask):  # [B, S, D]
        m, w = self.model, self.model["head_width"]
        rows, length, _ = x.shape
        parts = self.linear(x, name + ".qkv").split((m["heads"] * w, m["heads_kv"] * w, m["heads_kv"] * w), -1)
        q, k, v = parts
        if m["query_key_norm"] == "width":
            q, k = (self.rms(t, self.parameters[f"{name}.{n}.weight"]) for t, n in ((q, "query_norm"), (k, "key_norm")))
        q, k, v = (t.view(rows, length, -1, w).transpose(1, 2) for t in (q, k, v))
        if m["query_key_norm"] == "head":
            q, k = (self.rms(t, self.parameters[f"{name}.{n}.weight"]) for t, n in ((q, "query_norm"), (k, "key_norm")))
        if m["positions"] == "rope":
            q, k = self.turn(q), self.turn(k)
        k, v = (t.repeat_interleave(m["heads"] // m["heads_kv"], 1) for t in (k, v))
        scores = (q @ k.transpose(-1, -2) / math.sqrt(w)).masked_fill(~mask, -torch.inf)
        return self.linear((scores.softmax(-1) @ v).transpose(1, 2).reshape(rows, length, -1), name + ".out")

    def weights(self, affinities, chosen):  # [T, E], [T, K] -> [T, K]
        if not self.layers.get("renormalise", True) or chosen.shape[1] == 1:
            return affinities.softmax(-1).gather(1, chosen)
        return affinities.gather(1, chosen).softmax(-1)

    def choose(self, affinities, embeddings):  # [T, E] -> [T, K]
        e = self.layers
        scores = affinities.detach()
        if e["scores"] == "cosine":
            scores = scores / embeddings.detach().norm(dim=1)
        if e["router"] == "base":
            each = len(scores) // e["count"]
            _, place = linear_sum_assignment(scores.double().numpy().repeat(each, axis=1), maximize=True)
            return torch.from_numpy(place // each)[:, None]
        chosen = scores.topk(e["per_token"], -1).indices
        shares = torch.bincount(chosen[:, 0], minlength=e["count"]) / len(scores)
        self.balance = self.balance + 0.01 * e["count"] * (shares * affinities.softmax(-1).mean(0)).sum()
        return chosen

    def experts(self, x, earlier, name):  # [T, D] each
        e = self.layers
        base = e["router"] == "base"
        given = self.norm(x, name + ".norm") if e["norm"] == "layer" else x
        read = earlier if e["look_ahead"] else given
        if e["norm"] == "own" or e["look_ahead"]:
            read = self.norm(read, name + (".router_norm" if base else ".gate.norm"))
        embeddings = self.parameters[name + (".expert_embeddings" if base else ".gate.weight")]
        affinities = read @ embeddings.t()
        chosen = self.choose(affinities, embeddings)
        weights = self.weights(affinities, chosen)
        added = torch.zeros_like(x)
        for expert in range(e["count"]):
            rows, ranks = (chosen == expert).nonzero(as_tuple=True)
            of_expert = f"{name}.expert.{expert}.sublayer.0"
            mine = given[rows]
            if e["norm"] == "own":
                mine = self.norm(mine, of_expert + ".norm")
            added = added.index_add(0, rows, weights[rows, ranks, None] * self.feed_forward(mine, of_expert))
        return x + added

    def loss(self, inputs, targets, dropout_key=0):  # [B, S] each -> mean loss
        m, (rows, length) = self.model, inputs.shape
        self.balance = 0.0

        def drop(x, place):
            if m["dropout"] == 0:
                return x
            mask = kept(dropout_key, place, m["dropout"], rows * length, m["width"]).view_as(x)
            return x * mask / (1 - m["dropout"])

        x = F.embedding(inputs, self.parameters["token_embedding"])
        if m["positions"] == "learned":
            x = x + self.parameters["position_embedding"][:length]
        mask = torch.ones(length, length, dtype=torch.bool).tril()[None, None]
        if m["document_mask"]:
            ends = (inputs == m["separator"]).long()
            document = ends.cumsum(1) - ends
            mask = mask & (document[:, None, :, None] == document[:, None, None, :])
        x = drop(x, 0)
        replaced = places(m, self.layers)
        for block in range(m["layers"]):
            entered, name = x, f"block.{block}"
            x = x + drop(self.attention(self.norm(x, name + ".attention.norm"), name + ".attention", mask), 1 + 2 * block)
            if block + 1 in replaced:
                flat = x.reshape(-1, m["width"])
                x = self.experts(flat, entered.reshape(-1, m["width"]), f"layer.{block + 1}").view_as(x)
            else:
                normed = self.norm(x, name + ".feed_forward.norm")
                x = x + drop(self.feed_forward(normed, name + ".feed_forward"), 2 + 2 * block)
        output = self.parameters["token_embedding" if m["tied"] else "output.weight"]
        logits = F.linear(self.norm(x, "output_norm"), output)
        if m["logit_cap"] > 0:
            logits = m["logit_cap"] * torch.tanh(logits / m["logit_cap"])
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))
