# SPDX-License-Identifier: Apache-2.0
"""The Python package on a GPU: PYTHONPATH=FOLDER/OF/PACKAGE python tests/python/on_gpu.py

Not one of CTest's tests, which run where there is no GPU. What is found there is compared with the CPU.
"""

import copy
import unittest

import ballast
import ballast.nn
import torch
from ballast.nn import BaseLayer, SparselyGatedLayer, SwitchLayer

assert torch.cuda.is_available(), "this needs a GPU"
WIDTH, EXPERTS, TOKENS = 64, 8, 512
VARIANTS = {"base": (BaseLayer, {}), "the paper's frame": (BaseLayer, {"frame": "paper"}), "two experts": (BaseLayer, {"per_token": 2}),
            "groups": (BaseLayer, {"groups": 4}), "swiglu": (BaseLayer, dict(activation="swiglu", norm="rms", bias=False)),
            "switch": (SwitchLayer, {}), "without a limit": (SwitchLayer, {"capacity": 0}), "sparsely gated": (SparselyGatedLayer, {})}


def made(kind, options, dtype=torch.float32):
    layer = kind(WIDTH, EXPERTS, hidden=128, sublayers=1, **options).to(dtype)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += (0.1 * torch.randn(parameter.shape, generator=generator)).to(dtype)
    return layer


def tokens(seed=1, dtype=torch.float32):
    return torch.randn(TOKENS, WIDTH, generator=torch.Generator().manual_seed(seed)).to(dtype)


class OnGpu(unittest.TestCase):
    def test_assign(self):
        generator = torch.Generator().manual_seed(1)
        for shape in ((96, 8), (3, 300, 100), (2048, 128), (16, 2048, 32)):
            scores = torch.randn(shape, generator=generator)
            for dtype in (torch.float32, torch.bfloat16):
                mine, theirs = ballast.assign(scores.to(dtype).cuda()), ballast.assign(scores.to(dtype))
                self.assertEqual(mine.loads.tolist(), theirs.loads.tolist())
                a, b = (torch.as_tensor(found.certificate.primal) for found in (mine, theirs))
                torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
        found = ballast.assign(scores.cuda(), gap=0.001)
        self.assertLessEqual(found.certificate.relative_gap.max(), 0.001)
        strided = torch.randn(8, 96, generator=generator).cuda().t()
        self.assertEqual(ballast.assign(strided).experts.tolist(), ballast.assign(strided.cpu()).experts.tolist())
        mask = torch.ones(96, 8, dtype=torch.bool)
        mask[:5, :6] = False
        self.assertTrue(mask.gather(1, ballast.assign(strided, mask=mask).experts.cpu().long()[:, None]).all())
        self.assertRaisesRegex(ValueError, "finite", ballast.assign, strided * torch.nan)

    def test_layers_are_the_cpus(self):
        for name, (kind, options) in VARIANTS.items():
            with self.subTest(name):
                layer, x = made(kind, options), tokens()
                there = copy.deepcopy(layer).cuda()
                a, b = x.clone().requires_grad_(), x.cuda().requires_grad_()
                mine, chosen = layer(a, return_experts=True)
                theirs = there(b, experts=chosen.cuda())
                torch.testing.assert_close(theirs.cpu(), mine, rtol=1e-3, atol=1e-3)
                mine.square().sum().backward()
                theirs.square().sum().backward()
                torch.testing.assert_close(b.grad.cpu(), a.grad, rtol=1e-2, atol=1e-2)
                for (key, p), q in zip(layer.named_parameters(), there.parameters()):
                    scale = p.grad.abs().max().clamp_min(1e-3)
                    self.assertLess((q.grad.cpu() - p.grad).abs().max() / scale, 1e-2, key)

    def test_bf16_trains_and_prices_move(self):
        for name, (kind, options) in VARIANTS.items():
            with self.subTest(name):
                layer, x = made(kind, options, torch.bfloat16).cuda(), tokens(dtype=torch.bfloat16).cuda().requires_grad_()
                whole = made(kind, options)
                out, chosen = layer(x, return_experts=True)
                with torch.no_grad():
                    whole_out = whole(x.detach().float().cpu(), experts=chosen.cpu())
                self.assertLess((out.float().cpu() - whole_out).norm() / whole_out.norm(), 0.02)
                out.float().square().sum().backward()
                self.assertTrue(all(p.grad.isfinite().all() for p in layer.parameters()))
                if kind is BaseLayer:
                    self.assertGreater(layer.prices.abs().max(), 0)
                with torch.no_grad():
                    self.assertTrue(layer.eval()(x).isfinite().all())
        self.assertEqual(torch.ops.ballast.held_layers(), 0)

    def test_compiled_without_a_break(self):
        layer = made(BaseLayer, {}, torch.bfloat16).cuda()
        plain = copy.deepcopy(layer)
        compiled = torch.compile(layer, fullgraph=True)
        for step in range(3):
            x = tokens(step, torch.bfloat16).cuda()
            out = compiled(x)
            torch.testing.assert_close(out, plain(x))
            out.sum().backward()


if __name__ == "__main__":
    unittest.main(verbosity=2)
