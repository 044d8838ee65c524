# SPDX-License-Identifier: Apache-2.0
"""Layers of experts as modules of torch: values, gradients, names, modes, and what torch's own tools find."""

import copy
import gc
import io
import unittest

import package  # noqa: F401
import ballast
import torch
from ballast.nn import BaseLayer, SparselyGatedLayer, SwitchLayer

WIDTH, EXPERTS, TOKENS = 8, 4, 24


def made(kind=BaseLayer, **options):
    options = dict(hidden=12, sublayers=2, dtype=torch.float64) | options
    layer = kind(WIDTH, EXPERTS, **options)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in layer.parameters():  # fresh experts are the identity
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64).to(parameter.dtype)
    return layer


def tokens(seed=1, dtype=torch.float64, count=TOKENS):
    return torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


VARIANTS = {
    "base": made, "base, the paper's frame": lambda: made(frame="paper"), "base, two experts": lambda: made(per_token=2),
    "base, groups": lambda: made(groups=3), "base, shared expert": lambda: made(shared=1.0),
    "base, swiglu, rms, no bias": lambda: made(activation="swiglu", norm="rms", bias=False, sublayers=1),
    "base in place": lambda: made(in_place=True, sublayers=1, norm="layer"),
    "switch": lambda: made(SwitchLayer), "switch without a limit": lambda: made(SwitchLayer, capacity=0),
    "sparsely gated": lambda: made(SparselyGatedLayer), "three experts": lambda: made(SparselyGatedLayer, per_token=3),
}


def plain_base(layer, x, experts):
    """The paper's equation in plain torch, with the experts given."""
    state = layer.state_dict()
    weights = torch.nn.functional.layer_norm(x, (WIDTH,), state["router_norm.weight"], state["router_norm.bias"])
    gate = (weights @ state["expert_embeddings"].t()).softmax(1)
    out = x.clone()
    for t, e in enumerate(experts.tolist()):
        h = x[t]
        for s in range(2):
            part = lambda name: state[f"expert.{e}.sublayer.{s}.{name}"]  # noqa: E731
            normed = torch.nn.functional.layer_norm(h, (WIDTH,), part("norm.weight"), part("norm.bias"))
            h = h + part("down.weight") @ torch.relu(part("up.weight") @ normed + part("up.bias")) + part("down.bias")
        out[t] = x[t] + gate[t, e] * (h - x[t])
    return out


class Layers(unittest.TestCase):
    def test_a_base_layer_is_its_equation(self):
        layer, x = made(), tokens()
        out, experts = layer(x, return_experts=True)
        self.assertEqual(experts.shape, (1, TOKENS))
        self.assertEqual(torch.bincount(experts[0]).tolist(), [TOKENS // EXPERTS] * EXPERTS)
        torch.testing.assert_close(out, plain_base(layer, x, experts[0]), rtol=1e-12, atol=1e-12)
        layer.eval()
        layer.test_routing = "greedy"
        out, experts = layer(x, return_experts=True)
        self.assertNotEqual(torch.bincount(experts[0], minlength=EXPERTS).tolist(), [TOKENS // EXPERTS] * EXPERTS)
        torch.testing.assert_close(out, plain_base(layer, x, experts[0]), rtol=1e-12, atol=1e-12)

    def test_tokens_in_any_shape(self):
        x = tokens()
        flat = made()(x)
        torch.testing.assert_close(made()(x.view(2, 3, 4, WIDTH)), flat.view(2, 3, 4, WIDTH))
        torch.testing.assert_close(made()(x.t().contiguous().t()), flat)

    def test_gradcheck_by_tokens_and_all_weights(self):
        for name, make in VARIANTS.items():
            with self.subTest(name):
                layer, x = make(), tokens(2, count=12).requires_grad_()
                # Of what the layer returns alone: a balance loss adds its own gradient.
                layer._settings = layer._settings + "\nexperts.balance_weight 0"
                names = [n for n, _ in layer.named_parameters()]
                chosen = layer(x, return_experts=True)[1]
                self.assertEqual(int(layer.steps), 1)

                def pass_of(x, *weights):
                    layer.steps.zero_()  # a shuffle is a function of it, and experts stand in its order
                    return torch.func.functional_call(layer, dict(zip(names, weights)), (x,), {"experts": chosen})

                weights = [p.detach().clone().requires_grad_() for p in layer.parameters()]
                # In random directions: differences by each number would take minutes.
                torch.autograd.gradcheck(pass_of, (x, *weights), fast_mode=True, atol=1e-5)

    def test_a_balance_loss_has_a_gradient(self):
        def gate_gradient(weight):
            layer = made(SwitchLayer, balance_weight=weight)
            layer(tokens()).sum().backward()
            return next(layer.router_parameters()).grad

        self.assertGreater((gate_gradient(1.0) - gate_gradient(0.0)).abs().max(), 1e-4)

    def test_a_second_walk_back_gives_the_same(self):
        for name, make in VARIANTS.items():
            with self.subTest(name):
                layer, x = make(), tokens().requires_grad_()
                loss = layer(x).square().sum()
                inputs = [x, *layer.parameters()]
                first = torch.autograd.grad(loss, inputs, retain_graph=True)
                second = torch.autograd.grad(loss, inputs)
                for a, b in zip(first, second):
                    torch.testing.assert_close(a, b, rtol=0, atol=0)

    def test_gradients_given_out_are_the_callers(self):
        layer, x = made(), tokens()
        for _ in range(2):
            layer(x).sum().backward()
        twice = [p.grad.clone() for p in layer.parameters()]
        layer.zero_grad()
        layer.steps.zero_()
        layer.prices.zero_()
        layer(x).sum().backward()
        for p, both in zip(layer.parameters(), twice):
            torch.testing.assert_close(2 * p.grad, both, rtol=1e-9, atol=1e-12)

    def test_opcheck(self):
        for name in ("base", "base, groups", "sparsely gated"):
            with self.subTest(name):
                layer, x = VARIANTS[name](), tokens().requires_grad_()
                parameters = [getattr(layer, ballast.nn._attribute(entry)) for entry in layer._entries]
                for training in (True, False):
                    told = (layer._settings, "", layer.test_routing, training)
                    torch.library.opcheck(torch.ops.ballast.expert_layer.default,
                                          (x, None, parameters, layer.prices, layer.steps, None, *told, True))
                    with torch.no_grad():
                        out, chosen, _, graph = torch.ops.ballast.expert_layer(
                            x, None, parameters, layer.prices, layer.steps, None, *told, False)
                        torch.library.opcheck(torch.ops.ballast.expert_layer_backward.default,
                                              (out, graph, x.detach(), None, [p.detach() for p in parameters], layer.prices,
                                               layer.steps, chosen, *told))
        torch.library.opcheck(torch.ops.ballast.balanced_assignment.default, (torch.randn(2, 8, 4), None, None, False, 0.0))

    def test_compiled_without_a_break(self):
        for name in ("base", "switch"):
            with self.subTest(name):
                plain, layer = VARIANTS[name](), VARIANTS[name]()
                torch._dynamo.reset()
                compiled = torch.compile(torch.nn.Sequential(torch.nn.Identity(), layer), fullgraph=True, backend="aot_eager")
                for step in range(3):
                    x = tokens(step)
                    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
                    plain(a).square().sum().backward()
                    compiled(b).square().sum().backward()
                    torch.testing.assert_close(a.grad, b.grad)
                for (key, p), q in zip(plain.named_parameters(), layer.parameters()):
                    torch.testing.assert_close(p.grad, q.grad, msg=key)
                self.assertEqual(int(layer.steps), 3)
                torch.testing.assert_close(plain.prices, layer.prices)

    def test_a_graph_that_nobody_walks_back_is_let_go(self):
        layer, x = made(), tokens()
        out = layer(x)
        held = out.grad_fn
        self.assertIsNotNone(held)
        del held
        counts = []
        for _ in range(3):
            del out
            gc.collect()
            out = layer(x)
            counts.append(torch.ops.ballast.held_layers())
        self.assertEqual(counts, [1, 1, 1])
        del out
        gc.collect()
        self.assertEqual(torch.ops.ballast.held_layers(), 0)
        with torch.no_grad():
            layer(x)
        self.assertEqual(torch.ops.ballast.held_layers(), 0)

    def test_names_are_the_checkpoints(self):
        state = made(frame="paper").state_dict()
        self.assertEqual(list(state)[0], "prices")
        self.assertIn("expert_embeddings", state)
        self.assertEqual(state["expert.3.sublayer.1.down.weight"].shape, (WIDTH, 12))
        self.assertEqual(len(state), 3 + EXPERTS * 2 * 6)  # embeddings, prices, steps
        self.assertIn("gate.weight", made(SwitchLayer).state_dict())
        self.assertNotIn("prices", made(SwitchLayer).state_dict())

    def test_a_state_is_loaded_by_these_names(self):
        source, x = made(), tokens()
        source(x)
        target = BaseLayer(WIDTH, EXPERTS, hidden=12, sublayers=2, dtype=torch.float64)
        file = io.BytesIO()
        torch.save(torch.nn.ModuleDict({"6": source}).state_dict(), file)
        file.seek(0)
        torch.nn.ModuleDict({"6": target}).load_state_dict(torch.load(file))
        self.assertGreater(source.prices.abs().max(), 0)
        torch.testing.assert_close(target.eval()(x), source.eval()(x), rtol=0, atol=0)
        state = source.state_dict()
        del state["expert.2.sublayer.0.up.weight"]
        self.assertRaisesRegex(RuntimeError, "sublayer_0_up_weight", target.load_state_dict, state)

    def test_training_goes_on_from_loaded_prices(self):
        source = made()
        for step in range(5):
            source(tokens(step))
        state = source.state_dict()
        of_run = {name: value for name, value in state.items() if name != "steps"}  # a checkpoint of `ballast train`
        moves = []
        for given in (state, of_run):
            target = made()
            target.load_state_dict(given)
            before = target.prices.clone()
            target(tokens(9))
            moves.append((target.prices - before).norm())
        # A sixth step, and one of many, of which each has 1 - price_decay.
        self.assertGreater(moves[0], 0)
        self.assertAlmostEqual(float(moves[0] / moves[1]), (1 / 6) / 0.02, places=6)

    def test_tensors_of_the_caller_are_not_kept(self):
        def owners(tensor):
            return torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)

        alone = owners(torch.nn.Parameter(torch.zeros(3)))
        layer, x = made(), tokens()
        layer(x).sum().backward()
        with torch.no_grad():
            layer(x)
        self.assertEqual({owners(p) for p in layer.parameters()}, {alone})
        self.assertEqual({owners(p.grad) for p in layer.parameters()}, {alone})
        self.assertEqual(owners(layer.prices), alone)

    def test_a_second_derivative_is_refused(self):
        layer, x = made(), tokens().requires_grad_()
        (gradient,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
        self.assertRaisesRegex(RuntimeError, "second derivative", gradient.sum().backward)

    def test_devices_that_are_said_elsewhere(self):
        with torch.device("meta"):
            layer = BaseLayer(WIDTH, EXPERTS)
        self.assertTrue(all(p.is_meta for p in layer.parameters()))
        layer.to_empty(device="cpu")
        self.assertEqual((layer.prices.device.type, layer.steps.device.type), ("cpu", "cpu"))
        layer.load_state_dict(BaseLayer(WIDTH, EXPERTS).state_dict())
        x = tokens(dtype=torch.float32)
        torch.testing.assert_close(layer(x), x, rtol=0, atol=0)

    def test_copies_are_layers_of_their_own(self):
        layer, x = made(), tokens()
        twin = copy.deepcopy(layer)
        torch.testing.assert_close(twin(x), layer(x), rtol=0, atol=0)
        with torch.no_grad():
            next(twin.expert_parameters()).add_(1)
        self.assertGreater((twin(x) - layer(x)).abs().max(), 1e-3)

    def test_prices_are_averaged_in_training_alone(self):
        layer = made()
        layer(tokens(1))
        first = layer.prices.clone()
        self.assertGreater(first.abs().max(), 0)
        self.assertAlmostEqual(float(first.sum()), 0, places=9)
        layer.eval()(tokens(2))
        torch.testing.assert_close(layer.prices, first, rtol=0, atol=0)
        layer.train()(tokens(2))
        self.assertGreater((layer.prices - first).abs().max(), 0)

    def test_fresh_layers(self):
        x = tokens(dtype=torch.float32)
        torch.testing.assert_close(BaseLayer(WIDTH, EXPERTS)(x), x, rtol=0, atol=0)  # the identity
        self.assertGreater((BaseLayer(WIDTH, EXPERTS, in_place=True)(x) - x).abs().max(), 0)
        first, same, other = (BaseLayer(WIDTH, EXPERTS, seed=seed).state_dict() for seed in (1, 1, 2))
        self.assertTrue(torch.equal(first["expert.0.sublayer.0.up.weight"], same["expert.0.sublayer.0.up.weight"]))
        self.assertFalse(torch.equal(first["expert.0.sublayer.0.up.weight"], other["expert.0.sublayer.0.up.weight"]))

    def test_types(self):
        layer = made(dtype=torch.float32)
        out = layer(tokens(dtype=torch.bfloat16))
        self.assertEqual(out.dtype, torch.bfloat16)
        out.sum().backward()
        self.assertEqual({p.grad.dtype for p in layer.parameters()}, {torch.float32})
        half = made(dtype=torch.float32).to(torch.bfloat16)
        self.assertEqual((half.prices.dtype, half.steps.dtype), (torch.float64, torch.int64))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.assertEqual(layer(tokens(dtype=torch.bfloat16)).dtype, torch.bfloat16)

    def test_look_ahead_reads_earlier_tokens(self):
        layer, x, earlier = made(look_ahead=True), tokens(1), tokens(2).requires_grad_()
        out = layer(x, earlier)
        out.sum().backward()
        self.assertGreater(earlier.grad.abs().max(), 0)
        self.assertGreater((layer(x, tokens(3)) - out).abs().max(), 1e-6)

    def test_scores_that_are_not_finite_spread_no_further(self):
        x = tokens()
        x[5] = torch.nan
        out = made()(x)  # as in `ballast train`, where the step is skipped then
        self.assertTrue(out[5].isnan().all())
        self.assertFalse(out[torch.arange(TOKENS) != 5].isnan().any())

    def test_mistakes_are_named(self):
        for words, make in {
            "8 different experts": lambda: BaseLayer(WIDTH, 4, per_token=8), "router_ratio": lambda: BaseLayer(WIDTH, 4, router_ratio=2),
            "activation": lambda: BaseLayer(WIDTH, 4, activation="cube"), "frame": lambda: BaseLayer(WIDTH, 4, frame="mine"),
            "width 5": lambda: made()(torch.zeros(3, 5)), "cut into 3 groups": lambda: made(groups=3)(tokens(count=25)),
        }.items():
            with self.subTest(words):
                self.assertRaisesRegex(ValueError, words, make)
        self.assertRaisesRegex(TypeError, "BaseLayer", ballast.nn.ExpertLayer, WIDTH)


if __name__ == "__main__":
    unittest.main()
