# SPDX-License-Identifier: Apache-2.0
"""Times training steps of the PyTorch twin, on command: `ballast bench step` starts this and talks to it.

Arguments: one JSON object with vocabulary, width, layers, heads, context, batch, hidden, decoder (paper, or the activation
of a modern one), experts (0: a dense model), sublayers, threads, device, mode (eager or compile). It says its parameters when it is ready; then for each line "N" on stdin it runs
N steps and prints {"seconds": of each, "assign_seconds": of each's assignment, none of a dense model}.

On a GPU it is what a careful user of PyTorch would choose: weights in fp32 under autocast to bf16, other products in
TF32, attention by cuDNN (by flash attention where cuDNN has none), fused AdamW. With mode compile the whole model is
compiled but for the assignment, whose rounds depend on the data.
"""

import contextlib
import json
import sys
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from language_model import LanguageModel
from modern_model import ModernModel


class Clock:
    """Of a function, on the CPU or a GPU, whose seconds are known once the GPU is done."""

    def __init__(self, on_gpu):
        self.on_gpu, self.spans = on_gpu, []

    def now(self):
        if not self.on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def around(self, function):
        def timed(*arguments):
            begin = self.now()
            result = function(*arguments)
            self.spans.append((begin, self.now()))
            return result

        return timed

    def take_seconds(self):
        spans, self.spans = self.spans, []
        return [begin.elapsed_time(end) / 1e3 if self.on_gpu else end - begin for begin, end in spans]


def main():
    c = json.loads(sys.argv[1])
    torch.set_num_threads(c["threads"])
    torch.manual_seed(1)
    device = torch.device(c["device"])
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.set_float32_matmul_precision("high")
    with device:
        if c["decoder"] == "paper":
            model = LanguageModel(*(c[key] for key in ("vocabulary", "width", "layers", "heads", "context", "experts", "sublayers")))
        else:
            model = ModernModel(*(c[key] for key in ("vocabulary", "width", "layers", "heads", "context", "hidden", "decoder")))
    assigning = Clock(on_gpu)
    if model.base is not None:
        model.base.assign = assigning.around(model.base.assign)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    run = torch.compile(model) if c["mode"] == "compile" else model
    batches = [
        [torch.randint(0, c["vocabulary"], (c["batch"], c["context"]), device=device) for _ in range(2)] for _ in range(8)
    ]

    def attention():
        backends = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]
        return sdpa_kernel(backends, set_priority=True) if on_gpu else contextlib.nullcontext()

    def step(i):
        inputs, targets = batches[i % len(batches)]
        optimizer.zero_grad(set_to_none=True)
        with attention(), torch.autocast(device.type, dtype=torch.bfloat16, enabled=on_gpu):
            loss = run(inputs, targets)
        loss.backward()
        norm = torch.nn.utils.get_total_norm([p.grad for p in model.clipped_by()])
        torch.nn.utils.clip_grads_with_norm_(model.parameters(), 1.0, norm)
        optimizer.step()
        return loss.item()

    print(json.dumps({"ready": torch.__version__, "parameters": sum(p.numel() for p in model.parameters())}), flush=True)
    for line in sys.stdin:
        seconds = []
        for i in range(int(line)):
            begin = time.perf_counter()
            step(i)
            seconds.append(time.perf_counter() - begin)
        print(json.dumps({"seconds": seconds, "assign_seconds": assigning.take_seconds()}), flush=True)


if __name__ == "__main__":
    main()
