# SPDX-License-Identifier: Apache-2.0
"""Trains the PyTorch twin for 20 steps from weights and tokens given by a formula, and prints the losses.

    python benchmarks/twin/record_losses.py > tests/golden/twin_losses.json

The C++ model starts from the same formula (tests/training/twin_test.cpp) and must give the same losses.
"""

import json
import sys

import numpy as np
import torch

from language_model import LanguageModel

SHAPE = {"vocabulary": 61, "width": 32, "layers": 2, "heads": 4, "context": 16, "batch": 4}
TRAINING = {"steps": 20, "learning_rate": 3e-3, "warmup_steps": 5, "beta1": 0.9, "beta2": 0.98, "epsilon": 1e-8,
            "weight_decay": 0.1, "clip_norm": 0.5}
NAMES = {"attention.norm": "attention_norm", "attention.qkv": "qkv", "attention.out": "attention_out",
         "feed_forward.norm": "feed_forward_norm", "feed_forward.up": "up", "feed_forward.down": "down"}


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


def losses():
    torch.set_num_threads(1)
    model = LanguageModel(*(SHAPE[key] for key in ("vocabulary", "width", "layers", "heads", "context")))
    set_weights(model)
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": TRAINING["weight_decay"]}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(TRAINING["beta1"], TRAINING["beta2"]), eps=TRAINING["epsilon"])
    for step in range(TRAINING["steps"]):
        tokens = tokens_of(step)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.zero_grad()
        loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), TRAINING["clip_norm"])
        optimizer.step()
        yield loss.item()


if __name__ == "__main__":
    json.dump({"shape": SHAPE, "training": TRAINING, "torch": torch.__version__, "losses": list(losses())}, sys.stdout, indent=2)
    print()
