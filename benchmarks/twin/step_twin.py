# SPDX-License-Identifier: Apache-2.0
"""Times training steps of the PyTorch twin, on command: `ballast bench step` starts this and talks to it.

Arguments: one JSON object with vocabulary, width, layers, heads, context, batch, threads, device, mode
(eager or compile). For each line "N" on stdin it runs N steps and prints their seconds as a JSON list.
"""

import json
import sys
import time

import torch

from language_model import LanguageModel


def main():
    c = json.loads(sys.argv[1])
    torch.set_num_threads(c["threads"])
    torch.manual_seed(1)
    device = torch.device(c["device"])
    model = LanguageModel(c["vocabulary"], c["width"], c["layers"], c["heads"], c["context"]).to(device)
    on_gpu = device.type == "cuda"
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    run = torch.compile(model) if c["mode"] == "compile" else model
    batches = [
        [torch.randint(0, c["vocabulary"], (c["batch"], c["context"]), device=device) for _ in range(2)] for _ in range(8)
    ]

    def step(i):
        inputs, targets = batches[i % len(batches)]
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=on_gpu):
            loss = run(inputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    print(json.dumps({"ready": torch.__version__}), flush=True)
    for line in sys.stdin:
        seconds = []
        for i in range(int(line)):
            begin = time.perf_counter()
            step(i)
            seconds.append(time.perf_counter() - begin)
        print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main()
