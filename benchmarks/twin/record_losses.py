# SPDX-License-Identifier: Apache-2.0
"""Trains the PyTorch twin for 20 steps from weights and tokens given by a formula, and prints the losses.

    python benchmarks/twin/record_losses.py > tests/golden/twin_losses.json

Once dense, once with a BASE layer, whose tokens are assigned by scipy: an optimum is the same whoever finds it; then
decoders of other parts (decoder.py), dense and with experts in place of feed-forwards. The C++ model starts from the same formula (tests/training/twin_test.cpp) and must give the same losses.
"""

import json
import sys

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from decoder import DEFAULTS, Decoder, mix_bits
from language_model import LanguageModel

SHAPE = {"vocabulary": 61, "width": 32, "layers": 2, "heads": 4, "context": 16, "batch": 4}
EXPERTS = {"count": 4, "sublayers": 2}
TRAINING = {"steps": 20, "learning_rate": 3e-3, "warmup_steps": 5, "beta1": 0.9, "beta2": 0.98, "epsilon": 1e-8,
            "weight_decay": 0.1, "clip_norm": 0.5}
NAMES = {"attention.norm": "attention_norm", "attention.qkv": "qkv", "attention.out": "attention_out",
         "feed_forward.norm": "feed_forward_norm", "feed_forward.up": "up", "feed_forward.down": "down"}
PARTS_OF_EXPERT = ("norm_weight", "norm_bias", "up_weight", "up_bias", "down_weight", "down_bias")

ROPE = {"positions": "rope", "norm": "rms", "biases": "none"}
IN_PLACE = {"layers": 2, "count": 4, "hidden": 32, "router": "base", "norm": "layer", "look_ahead": False,
            "scores": "cosine", "per_token": 1}
# What each decoder differs in from the paper's; of experts: all that ballast's config is told.
DECODERS = {
    "gpt2": {"model": {"activation": "gelu_tanh", "tied": False}},
    "llama": {"model": {**ROPE, "activation": "swiglu", "heads_kv": 2, "tied": False, "norm_epsilon": 1e-6}},
    "llama3": {"model": {**ROPE, "activation": "swiglu", "rope_scaling": "llama3", "rope_factor": 4.0, "rope_context": 8,
                         "rope_theta": 500.0}},
    "yarn": {"model": {**ROPE, "activation": "gelu", "rope_scaling": "yarn", "rope_factor": 2.0, "rope_high": 32.0}},
    "qwen2": {"model": {**ROPE, "activation": "swiglu", "biases": "qkv", "heads_kv": 1}},
    "qwen3": {"model": {**ROPE, "activation": "swiglu", "query_key_norm": "head", "head_width": 16}},
    "olmo": {"model": {**ROPE, "activation": "relu2", "query_key_norm": "width", "logit_cap": 2.0}},
    "documents": {"model": {**ROPE, "activation": "relu2", "document_mask": True}},
    "dropout": {"model": {"dropout": 0.2}},
    "base": {"model": {**ROPE, "activation": "swiglu"}, "experts": IN_PLACE},
    "base_ahead": {"model": {**ROPE, "activation": "relu2"}, "experts": {**IN_PLACE, "layers": 1, "look_ahead": True}},
    "base_own": {"model": {"activation": "gelu", "norm": "rms"}, "experts": {**IN_PLACE, "norm": "own"}},
    "mixtral": {"model": {**ROPE, "activation": "swiglu"},
                "experts": {**IN_PLACE, "router": "sparsely_gated", "scores": "dot", "per_token": 2}},
    "olmoe": {"model": {**ROPE, "activation": "swiglu", "query_key_norm": "width"},
              "experts": {**IN_PLACE, "router": "sparsely_gated", "scores": "dot", "per_token": 3,
                          "renormalise": False}},
}
DROPOUT = 6986330420047521775  # the checksum of "dropout": what its keys are for


def scramble(stream, count):
    """Whole numbers in [0, 2^32) that look random: a function of (stream, i) alone."""
    x = (np.arange(count, dtype=np.uint64) * 2654435761 + np.uint64(stream) * 97586753 + 12345) & 0xFFFFFFFF
    x ^= x >> np.uint64(15)
    x = x * 2246822519 & 0xFFFFFFFF
    return x ^ (x >> np.uint64(13))


def parameters_in_our_order(model):
    named = dict(model.named_parameters())
    yield named["token_embedding.weight"]
    yield named["position_embedding.weight"]
    for layer in range(SHAPE["layers"]):
        for theirs in NAMES.values():
            yield named[f"blocks.{layer}.{theirs}.weight"]
            yield named[f"blocks.{layer}.{theirs}.bias"]
    if model.base is not None:
        yield model.base.embeddings
        for sublayer in model.base.sublayers:
            for part in PARTS_OF_EXPERT:
                for of_expert in getattr(sublayer, part):
                    yield of_expert.t() if of_expert.dim() == 2 else of_expert  # ours are [out, in]
    yield named["output_norm.weight"]
    yield named["output_norm.bias"]


def set_weights(model):
    with torch.no_grad():
        for k, parameter in enumerate(parameters_in_our_order(model)):
            values = (scramble(k, parameter.numel()) / 2.0**32 - 0.5) * 0.2
            if parameter.dim() == 1 and bool((parameter == 1).all()):
                values += 1  # a norm's weight
            parameter.copy_(torch.from_numpy(values).to(torch.float32).view_as(parameter))


def tokens_of(step):
    count = SHAPE["batch"] * (SHAPE["context"] + 1)
    tokens = (scramble(1000 + step % 3, count) % SHAPE["vocabulary"]).astype(np.int64)
    return torch.from_numpy(tokens).view(SHAPE["batch"], SHAPE["context"] + 1)


def learning_rate(step):
    if step < TRAINING["warmup_steps"]:
        return TRAINING["learning_rate"] * (step + 1) / TRAINING["warmup_steps"]
    return TRAINING["learning_rate"] * (1 - (step - TRAINING["warmup_steps"]) / (TRAINING["steps"] - TRAINING["warmup_steps"]))


def best_assignment(scores):  # [T, E] -> [T]
    places = len(scores) // scores.shape[1]
    _, place = linear_sum_assignment(scores.double().numpy().repeat(places, axis=1), maximize=True)
    return torch.from_numpy(place // places)


def decays(name):
    return name.endswith("weight") and "norm" not in name


def losses(experts=0, sublayers=0):
    torch.set_num_threads(1)
    model = LanguageModel(*(SHAPE[key] for key in ("vocabulary", "width", "layers", "heads", "context")), experts, sublayers)
    if model.base is not None:
        model.base.assign = best_assignment
    set_weights(model)
    groups = [{"params": [p for name, p in model.named_parameters() if decays(name) == chosen], "weight_decay": decay}
              for chosen, decay in ((True, TRAINING["weight_decay"]), (False, 0.0))]
    optimizer = torch.optim.AdamW(groups, betas=(TRAINING["beta1"], TRAINING["beta2"]), eps=TRAINING["epsilon"])
    for step in range(TRAINING["steps"]):
        tokens = tokens_of(step)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.zero_grad()
        loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        norm = torch.nn.utils.get_total_norm([p.grad for p in model.clipped_by()])
        torch.nn.utils.clip_grads_with_norm_(model.parameters(), TRAINING["clip_norm"], norm)
        optimizer.step()
        yield loss.item()


def set_decoder(decoder):
    """Weights by the formula; returns the parameters, in our order."""
    for k, (name, parameter) in enumerate(decoder.parameters.items()):
        values = (scramble(k, parameter.numel()) / 2.0**32 - 0.5) * 0.2 + (name in decoder.declared.ones)
        parameter.copy_(torch.from_numpy(values).float().view_as(parameter))
        parameter.requires_grad_()
    return decoder.parameters


def dropout_key(step):
    """As ballast's random_bits(0, "dropout", step, 0) (system/random.cpp)."""
    key = np.zeros(1, np.uint64)
    with np.errstate(over="ignore"):
        for word in (DROPOUT, step, 0):
            key = mix_bits(key) ^ np.uint64(word)
        return int(mix_bits(key)[0])


def decoder_losses(model, experts=None):
    decoder = Decoder(model, experts)
    named = set_decoder(decoder)
    matrices = {name for name, p in named.items() if p.dim() > 1 and not name.endswith(("expert_embeddings", "gate.weight"))}
    groups = [{"params": [p for name, p in named.items() if (name in matrices) == chosen], "weight_decay": decay}
              for chosen, decay in ((True, TRAINING["weight_decay"]), (False, 0.0))]
    optimizer = torch.optim.AdamW(groups, betas=(TRAINING["beta1"], TRAINING["beta2"]), eps=TRAINING["epsilon"])
    shared = [p for name, p in named.items() if ".expert." not in name]
    for step in range(TRAINING["steps"]):
        tokens = tokens_of(step)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.zero_grad()
        loss = decoder.loss(tokens[:, :-1], tokens[:, 1:], dropout_key(step))
        (loss + decoder.balance).backward()
        norm = torch.nn.utils.get_total_norm([p.grad for p in shared])
        torch.nn.utils.clip_grads_with_norm_(list(named.values()), TRAINING["clip_norm"], norm)
        optimizer.step()
        yield loss.item()


if __name__ == "__main__":
    record = {"shape": SHAPE, "experts": EXPERTS, "training": TRAINING, "torch": torch.__version__, "losses": list(losses()),
              "base_losses": list(losses(EXPERTS["count"], EXPERTS["sublayers"])),
              "decoder_hidden": DEFAULTS["hidden"], "separator": DEFAULTS["separator"],
              "decoders": {name: {**parts, "losses": list(decoder_losses(**parts))} for name, parts in DECODERS.items()}}
    json.dump(record, sys.stdout, indent=2)
    print()
