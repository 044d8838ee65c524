# SPDX-License-Identifier: Apache-2.0
"""A small GPT with a BASE layer, trained on the bytes of any text.

    python train.py book.txt --steps 500
    python train.py FOLDER --experts 16 --router switch
"""

import argparse
import time
from pathlib import Path

import ballast.nn
import torch
import torch.nn.functional as F
from torch import nn

LAYERS = {"base": ballast.nn.BaseLayer, "switch": ballast.nn.SwitchLayer, "sparsely_gated": ballast.nn.SparselyGatedLayer}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm, self.norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):  # [B, S, D]
        q, k, v = (t.unflatten(2, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.attention_norm(x)).chunk(3, 2))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Gpt(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(256, args.width), nn.Embedding(args.context, args.width)
        self.blocks = nn.ModuleList(Block(args.width, args.heads) for _ in range(args.blocks))
        # The experts stand in the middle of the blocks, as in the paper.
        self.experts = LAYERS[args.router](args.width, args.experts, sublayers=2)
        self.norm = nn.LayerNorm(args.width)
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, ids):  # [B, S] -> [B, S, 256]
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for number, block in enumerate(self.blocks):
            x = block(x)
            if number == len(self.blocks) // 2 - 1:
                x = self.experts(x)
        return F.linear(self.norm(x), self.tokens.weight)


def read_bytes(path):
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return torch.frombuffer(bytearray(b"\n".join(p.read_bytes() for p in files)), dtype=torch.uint8)


def batch_of(data, args, device):
    first = torch.randint(len(data) - args.context - 1, (args.batch,))
    rows = torch.stack([data[i : i + args.context + 1] for i in first.tolist()]).long().to(device)
    return rows[:, :-1], rows[:, 1:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="a file, or a folder of files")
    parser.add_argument("--router", choices=LAYERS, default="base")
    for name, value in dict(experts=8, width=128, heads=4, blocks=4, context=128, batch=16, steps=300).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--compile", action="store_true", help="with torch.compile")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = read_bytes(args.text)
    held_out = data[: max(len(data) // 20, args.context + 2)]
    model = Gpt(args).to(device)
    forward = torch.compile(model, fullgraph=True) if args.compile else model
    router = list(model.experts.router_parameters())
    others = [p for p in model.parameters() if all(p is not r for r in router)]
    # A router learns best at a part of the rate.
    optimizer = torch.optim.AdamW([{"params": others, "lr": args.rate}, {"params": router, "lr": args.rate / 4}])
    began = time.time()
    for step in range(1, args.steps + 1):
        inputs, targets = batch_of(data[len(held_out) :], args, device)
        loss = F.cross_entropy(forward(inputs).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0 or step == args.steps:
            print(f"step {step}: loss {loss.item():.3f}, {step * args.batch * args.context / (time.time() - began):.0f} bytes/s")
    model.eval()
    with torch.no_grad():
        inputs, targets = batch_of(held_out, args, device)
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
    print(f"held out: {loss.item() / 0.6931:.3f} bits a byte")


if __name__ == "__main__":
    main()
