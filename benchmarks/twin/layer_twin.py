# SPDX-License-Identifier: Apache-2.0
"""Times a layer of experts in plain PyTorch, on command: `ballast bench layer` starts this and talks to it.

Gates: the layer that ballast's Sparsely Gated and Switch layers without capacity are: a softmax gate over the experts, each
token to its best or its two best, rows sorted by expert, the experts' products by grouped_mm, outputs added up with
the gate's weights. Where plain PyTorch has no fast gradient it does less than ballast: one LayerNorm for all experts
instead of one each, and no biases. BASE: tokens that are assigned already, equally many to each expert, in a random
order; the experts' products by bmm, outputs weighted by the sigmoid of token times embedding.

Arguments: one JSON object with router, tokens, width, hidden, experts, experts_of_token, sublayers, passes, threads, device,
mode (eager or compile), inputs: a file of the gate or the embeddings [E, D] in fp32 and then, in bf16 on a GPU, else fp32, each pass's
tokens and gradient [T, D]. For each line "I" on stdin it runs pass I, forward and backward, and prints its seconds.
"""

import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


class GatedExperts(nn.Module):
    def __init__(self, c, gate, dtype):
        super().__init__()
        self.experts, self.choices, width = c["experts"], c["experts_of_token"], c["width"]
        self.gate_norm = nn.LayerNorm(width)
        self.gate = nn.Parameter(gate)
        self.norms = nn.ModuleList(nn.LayerNorm(width, dtype=dtype) for _ in range(c["sublayers"]))

        def stack(rows, columns):
            return nn.ParameterList(0.02 * torch.randn(c["experts"], rows, columns, dtype=dtype) for _ in range(c["sublayers"]))

        self.up, self.down = stack(c["hidden"], width), stack(width, c["hidden"])

    def forward(self, tokens):  # [T, D]
        logits = F.linear(self.gate_norm(tokens.float()), self.gate)
        weights, chosen = torch.softmax(logits, 1).topk(self.choices, 1)
        if self.choices > 1:
            weights = weights / weights.sum(1, keepdim=True)
        expert = chosen.reshape(-1)
        order = expert.argsort(stable=True)
        ends = torch.zeros(self.experts, dtype=torch.long, device=tokens.device)
        ends = ends.scatter_add(0, expert, torch.ones_like(expert)).cumsum(0).int()
        source = order // self.choices
        rows = tokens.index_select(0, source)
        change = None
        for norm, up, down in zip(self.norms, self.up, self.down):
            here = rows if change is None else rows + change
            active = F.relu(torch._grouped_mm(norm(here), up.transpose(1, 2), ends))
            more = torch._grouped_mm(active, down.transpose(1, 2), ends)
            change = more if change is None else change + more
        weighted = change * weights.reshape(-1)[order].unsqueeze(1).to(change.dtype)
        return tokens.index_add(0, source, weighted)


class BaseExperts(nn.Module):
    def __init__(self, c, embeddings, dtype):
        super().__init__()
        self.experts, width, tokens = c["experts"], c["width"], c["tokens"]
        of_expert = -(-tokens // self.experts)
        self.embeddings = nn.Parameter(embeddings.to(dtype))
        self.norms = nn.ModuleList(nn.LayerNorm(width, dtype=dtype) for _ in range(c["sublayers"]))

        def stack(rows, columns):
            return nn.ParameterList(0.02 * torch.randn(c["experts"], rows, columns, dtype=dtype) for _ in range(c["sublayers"]))

        self.up, self.down = stack(width, c["hidden"]), stack(c["hidden"], width)  # [E, in, out]: no gradient is copied
        order = torch.randperm(self.experts * of_expert)
        self.source, self.slot = order % tokens, order.argsort()[:tokens]  # slots too many repeat a token

    def forward(self, tokens):  # [T, D]
        rows = tokens.index_select(0, self.source).view(self.experts, -1, tokens.size(1))
        change = None
        for norm, up, down in zip(self.norms, self.up, self.down):
            here = rows if change is None else rows + change
            more = torch.bmm(F.relu(torch.bmm(norm(here), up)), down)
            change = more if change is None else change + more
        gate = torch.sigmoid(torch.bmm(rows, self.embeddings.unsqueeze(2)))
        return (rows + gate * change).view(-1, tokens.size(1)).index_select(0, self.slot)


def main():
    c = json.loads(sys.argv[1])
    torch.set_num_threads(c["threads"])
    torch.manual_seed(1)
    device = torch.device(c["device"])
    on_gpu = device.type == "cuda"
    dtype = torch.bfloat16 if on_gpu else torch.float32
    size, gate_size = c["tokens"] * c["width"], c["experts"] * c["width"]
    rows_size = 2 * c["passes"] * size
    raw = torch.from_file(c["inputs"], size=4 * gate_size + dtype.itemsize * rows_size, dtype=torch.uint8)
    gate = raw[: 4 * gate_size].view(torch.float32).view(c["experts"], c["width"]).clone()
    rows = raw[4 * gate_size :].view(dtype).view(c["passes"], 2, c["tokens"], c["width"]).to(device)
    with device:
        layer = (BaseExperts if c["router"] == "base" else GatedExperts)(c, gate.to(device), dtype)
    run = torch.compile(layer) if c["mode"] == "compile" else layer

    def seconds_of(tokens, gradient):
        layer.zero_grad(set_to_none=True)
        tokens = tokens.detach().requires_grad_()
        if not on_gpu:
            begin = time.perf_counter()
            run(tokens).backward(gradient)
            return time.perf_counter() - begin
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run(tokens).backward(gradient)
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / 1e3

    print(json.dumps({"ready": torch.__version__}), flush=True)
    for line in sys.stdin:
        print(json.dumps(seconds_of(*rows[int(line)])), flush=True)


if __name__ == "__main__":
    main()
