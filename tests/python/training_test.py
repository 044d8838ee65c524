# SPDX-License-Identifier: Apache-2.0
"""A plain PyTorch loop around ballast.nn.BaseLayer gives the losses of `ballast train`, from the same weights and text."""

import json
import subprocess
import tempfile
import unittest
from pathlib import Path

import package
import torch
import torch.nn.functional as F
from ballast.nn import BaseLayer, SwitchLayer
from safetensors.torch import load_file
from torch import nn

STEPS, WIDTH, LAYERS, HEADS, CONTEXT, BATCH, EXPERTS = 50, 32, 2, 4, 32, 8, 4
RATE, WARMUP, DECAY, CLIP = 3e-3, 10, 0.1, 1.0
KNOBS = {
    "model.width": WIDTH, "model.layers": LAYERS, "model.heads": HEADS, "model.context": CONTEXT, "training.batch": BATCH,
    "training.steps": STEPS, "training.log_every": 1, "training.validate_every": 0, "training.device": "cpu",
    "training.threads": 1, "optimizer.learning_rate": RATE, "optimizer.warmup_steps": WARMUP,
    "optimizer.weight_decay": DECAY, "optimizer.clip_norm": CLIP, "data.builtin_bytes": 200000, "experts.layers": 1,
    "experts.count": EXPERTS, "experts.sublayers": 2, "experts.look_ahead": "false", "experts.router_rate": 0.25,
    "experts.groups": 2,
}


class Decoder(nn.Module):
    """As the paper has it: pre-norm blocks, ReLU, learned positions, a tied embedding; in the middle a layer of experts."""

    def __init__(self, state, layer):
        super().__init__()
        self.weights = nn.ParameterDict({name.replace(".", "/"): nn.Parameter(value.clone()) for name, value in state.items()
                                         if not name.startswith("layer.")})
        self.layer = nn.ModuleDict({"1": layer})
        layer.load_state_dict({name.removeprefix("layer.1."): value for name, value in state.items()
                               if name.startswith("layer.1.")})

    def forward(self, inputs, targets, experts=None):
        w = {name.replace("/", "."): value for name, value in self.weights.items()}
        norm = lambda x, name: F.layer_norm(x, (WIDTH,), w[name + ".weight"], w[name + ".bias"])  # noqa: E731
        linear = lambda x, name: F.linear(x, w[name + ".weight"], w[name + ".bias"])  # noqa: E731
        x = w["token_embedding"][inputs] + w["position_embedding"][: inputs.shape[1]]
        for block in range(LAYERS):
            at = f"block.{block}."
            q, k, v = linear(norm(x, at + "attention.norm"), at + "attention.qkv").split(WIDTH, 2)
            q, k, v = (t.view(BATCH, CONTEXT, HEADS, -1).transpose(1, 2) for t in (q, k, v))
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + linear(mixed.transpose(1, 2).reshape(BATCH, CONTEXT, WIDTH), at + "attention.out")
            x = x + linear(F.relu(linear(norm(x, at + "feed_forward.norm"), at + "feed_forward.up")), at + "feed_forward.down")
            if block == 0:
                x = self.layer["1"](x, experts=experts)
        logits = F.linear(norm(x, "output_norm"), w["token_embedding"])
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def rate_at(step):
    return RATE * (step + 1) / WARMUP if step < WARMUP else RATE * (1 - (step - WARMUP) / (STEPS - WARMUP))


def losses_of(model, steps, replay):
    layer = model.layer["1"]
    router, experts = set(layer.router_parameters()), set(layer.expert_parameters())
    kinds = [{"params": [p for p in group if (p.dim() > 1 and p not in router) == decays], "weight_decay": DECAY * decays,
              "part": part}
             for group, part in (([p for p in model.parameters() if p not in router], 1.0), (router, 0.25))
             for decays in (True, False)]
    # A stack of experts' vectors is a matrix here, and does not decay.
    vectors = {p for entry, p in zip(layer._entries, (getattr(layer, n) for n in map(attribute, layer._entries)))
               if entry["stacked"] and not entry["decay"]}
    kinds[0]["params"] = [p for p in kinds[0]["params"] if p not in vectors]
    kinds[1]["params"] = [*kinds[1]["params"], *vectors]
    optimizer = torch.optim.AdamW(kinds, betas=(0.9, 0.98), eps=1e-8)
    for number, step in enumerate(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(number) * group["part"]
        optimizer.zero_grad()
        chosen = torch.tensor(step["experts"][0], dtype=torch.int32) if replay else None
        loss = model(*(torch.tensor(step[key]).view(BATCH, CONTEXT) for key in ("inputs", "targets")), experts=chosen)
        loss.backward()
        norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p not in experts])
        torch.nn.utils.clip_grads_with_norm_(model.parameters(), CLIP, norm)
        optimizer.step()
        yield loss.item()


def attribute(entry):
    return package.ballast.nn._attribute(entry)


class Training(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def recorded(self, **knobs):
        """What training_tool did, and the weights it began with."""
        self.knobs = {**KNOBS, **{name.replace("__", "."): value for name, value in knobs.items()}}
        words = [f"{key}={value}" for key, value in self.knobs.items()]
        subprocess.run([package.BUILD / "training_tool", self.folder, *words], check=True, timeout=300)
        steps = json.loads((self.folder / "steps.json").read_text())["steps"]
        state = {}
        for file in self.folder.glob("step_*/*.safetensors"):
            state |= {name: value for name, value in load_file(file).items()
                      if not name.startswith(("adam.", "muon.", "average.", "start_prices/"))}
        return steps, state

    def compare(self, layer, precision, replay, bound, **knobs):
        steps, state = self.recorded(training__precision=precision, **knobs)
        state = {name: value.to(layer.prices.dtype if name.endswith("prices") else next(layer.parameters()).dtype)
                 for name, value in state.items()}
        ours = list(losses_of(Decoder(state, layer), steps, replay))
        self.assertLess(ours[-1], ours[0] - 1)
        for number, (step, loss) in enumerate(zip(steps, ours)):
            self.assertAlmostEqual(step["loss"], loss, delta=bound, msg=f"step {number}")
        return steps

    def test_losses_of_ballast_train_in_double(self):
        layer = BaseLayer(WIDTH, EXPERTS, sublayers=2, groups=2, dtype=torch.float64)
        steps = self.compare(layer, "fp64", False, 1e-9)
        command = [package.BALLAST, "train", "--run", self.folder / "run", *(word for key, value in self.knobs.items()
                                                                           for word in (f"--{key}", str(value)))]
        elsewhere = self.folder / "elsewhere"  # here is a folder that is called as the corpus is
        elsewhere.mkdir()
        result = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=elsewhere)
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = map(json.loads, (self.folder / "run" / "metrics.jsonl").read_text().splitlines())
        trained = [line["loss"] for line in lines if "loss" in line]
        self.assertEqual(trained, [step["loss"] for step in steps])

    def test_losses_in_fp32_with_the_same_experts(self):
        self.compare(BaseLayer(WIDTH, EXPERTS, sublayers=2, groups=2), "fp32", True, 1e-5)

    def test_losses_of_a_switch_layer(self):
        layer = SwitchLayer(WIDTH, EXPERTS, sublayers=2, groups=2, dtype=torch.float64)
        self.compare(layer, "fp64", False, 1e-9, experts__router="switch")


if __name__ == "__main__":
    unittest.main()
