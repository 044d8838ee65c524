# SPDX-License-Identifier: Apache-2.0
"""Layers of sparse experts for PyTorch models, on the kernels that `ballast train` uses.

    layer = ballast.nn.BaseLayer(width=512, experts=8)
    y = layer(x)    # [..., 512]: x + gate(x) * expert(x), every expert with the same number of tokens

Shapes, gradients and `torch.compile(fullgraph=True)` are those of any module. In training mode (`layer.train()`) tokens
are assigned in balance; in `layer.eval()` each goes where it wants to go, so that no token depends on later ones.
"""

import functools
import json
from collections.abc import Iterator
from typing import Any

from . import _library

_operations = _library.operations()

import torch  # noqa: E402  after the check of its version
from torch import Tensor, nn  # noqa: E402

__all__ = ["BaseLayer", "ExpertLayer", "SparselyGatedLayer", "SwitchLayer", "keep_experts_local"]


class ExpertLayer(nn.Module):
    """What the layers of experts share. Use one of its subclasses.

    width: D of the tokens. experts: E. hidden: of each expert's feed-forward; None: 4 D (swiglu: 8/3 D).
    sublayers: residual feed-forwards in each expert. per_token: experts of a token; None: the router's own number.
    activation: relu, gelu, gelu_tanh, relu2 or swiglu. norm: layer or rms. bias: of the experts' matrices.
    frame: "ballast", today's router (normed features, softmax gate, cosine scores), or "paper", that of its paper.
    look_ahead: the router reads `earlier`, the tokens one block before.
    in_place: the layer stands for a feed-forward, and starts as one of a model of `blocks` blocks; else it starts as the
        identity.
    groups: parts of each worker's tokens that are assigned by themselves, in training.
    process_group: of torch.distributed, whose workers divide the experts among them; None: this process has them all.
    place, seed: fresh weights are functions of seed and of the parameters' names, which have this place, as those of
        `ballast train` are.
    knobs: any other key of the section `experts` (`ballast train --help`): solver="auction", capacity=1.25, shared=1.0.

    In a checkpoint of ballast the layer at block 6 has the names ``layer.6.*``; ``state_dict()`` has what stands for
    the *. It holds the experts of this worker; ``load_state_dict`` takes those from the names of all.
    """

    router = ""

    def __init__(self, width: int, experts: int = 8, *, hidden: int | None = None, sublayers: int = 1,
                 per_token: int | None = None, activation: str = "relu", norm: str = "layer", bias: bool = True,
                 frame: str = "ballast", look_ahead: bool = False, in_place: bool = False, blocks: int = 1, groups: int = 1,
                 process_group: Any = None, place: int = 1, seed: int = 1, device: Any = None, dtype: Any = None,
                 **knobs: Any) -> None:
        if not self.router:
            raise TypeError("ExpertLayer has no router: use BaseLayer, SwitchLayer or SparselyGatedLayer")
        super().__init__()
        self.width, self.experts = width, experts
        self._group_name = "" if process_group is None else process_group.group_name
        workers = 1 if process_group is None else process_group.size()
        settings = {"place": place, "model.width": width, "model.heads": 1, "model.layers": max(blocks, 1),
                    "model.activation": activation, "model.norm": norm, "model.biases": "all" if bias else "none",
                    "training.seed": seed, "training.batch": groups * workers, "experts.layers": 1,
                    "experts.router": self.router, "frame": frame, "experts.count": experts,
                    "experts.sublayers": sublayers, "experts.hidden": hidden or 0, "experts.per_token": per_token or 0,
                    "experts.placement": "replace" if in_place else "spread", "experts.groups": groups * workers,
                    "experts.look_ahead": look_ahead,
                    **{f"experts.{name}": value for name, value in knobs.items()}}
        self._settings = "\n".join(f"{key} {_text(value)}" for key, value in settings.items())
        told = _told(self._settings, self._group_name)
        self._entries = told["parameters"]
        self._names = [_attribute(entry) for entry in self._entries]
        self.test_routing: str = told["test_routing"]  #: in eval mode: "greedy", or "priced" (BASE)
        self._price_decay = told["price_decay"]
        self._groups = told["groups"]
        device = torch.get_default_device() if device is None else device
        start = _operations.layer_start(self._settings, self._group_name)
        for name, weights in zip(self._names, start):
            parameter = nn.Parameter(weights.to(device=device, dtype=dtype or torch.get_default_dtype()))
            self.register_parameter(name, parameter)
        balanced = experts if told["balanced"] else 0
        self.register_buffer("prices", torch.zeros(balanced, dtype=torch.float64, device=device), persistent=balanced > 0)
        # Of training; what is drawn at random is a function of it. The host reads it: it stays there.
        self.register_buffer("steps", torch.zeros(1, dtype=torch.long, device="cpu"))
        self.register_state_dict_post_hook(_rename_for_checkpoint)
        self.register_load_state_dict_pre_hook(_rename_from_checkpoint)

    def forward(self, x: Tensor, earlier: Tensor | None = None, experts: Tensor | None = None,
                return_experts: bool = False) -> Any:
        """x [..., D] -> [..., D]. earlier: [..., D], for a router that looks ahead.

        experts: what an earlier call returned as such; its choice is repeated, in training mode.
        return_experts: also the experts that tokens went to, int32: in training [groups, K T / groups], where K is the
        number of experts a token has (first all first ones); else the first of each token, [1, T].
        """
        if x.shape[-1] != self.width:
            raise ValueError(f"tokens of width {x.shape[-1]}: this layer was made for {self.width}")
        tokens = x.reshape(-1, self.width)
        if self.training and tokens.shape[0] % self._groups != 0:
            raise ValueError(f"{tokens.shape[0]} tokens cannot be cut into {self._groups} groups")
        parameters = [getattr(self, name) for name in self._names]
        needs = torch.is_grad_enabled() and (x.requires_grad or any(p.requires_grad for p in parameters)
                                             or earlier is not None and earlier.requires_grad)
        # Copies, since both change before the way back reads them.
        output, chosen, found, _ = _operations.expert_layer(
            tokens, None if earlier is None else earlier.reshape(-1, self.width).to(x.dtype),
            [p.to(x.dtype) for p in parameters], self.prices.clone(), self.steps.clone(), experts, self._settings,
            self._group_name, self.test_routing, self.training, needs)
        if self.training:
            self._step(found)
        output = output.view(x.shape)
        return (output, chosen) if return_experts else output

    @torch.no_grad()
    def _step(self, found: Tensor) -> None:
        self.steps.add_(1)
        if found.shape[0] > 0:
            # The plain average of the first steps, then an exponential one.
            share = torch.clamp_min(1.0 / self.steps.to(torch.float64), 1 - self._price_decay).to(found.device, non_blocking=True)
            self.prices.add_(share * (found - self.prices))

    def router_parameters(self) -> Iterator[nn.Parameter]:
        """Those that all workers share. `ballast train` has them learn at 0.25 of the rate (experts.router_rate)."""
        return (getattr(self, _attribute(entry)) for entry in self._entries if not entry["expert"])

    def expert_parameters(self) -> Iterator[nn.Parameter]:
        """Those of this worker's experts."""
        return (getattr(self, _attribute(entry)) for entry in self._entries if entry["expert"])

    def _apply(self, fn: Any, recurse: bool = True) -> "ExpertLayer":
        steps, prices = self.steps, self.prices
        super()._apply(fn, recurse)
        # Their types are not to change, and the host reads `steps`.
        self.steps = steps
        self.prices = self.prices.new_zeros(self.prices.shape, dtype=torch.float64) if prices.is_meta else prices.to(self.prices.device)
        return self

    def extra_repr(self) -> str:
        return f"width={self.width}, experts={self.experts}"


class BaseLayer(ExpertLayer):
    """BASE: in training every expert gets the same number of tokens, by the optimum of an assignment problem.

    On a GPU it may be within `assignment_gap` (0.001) of the optimum. `groups` must divide the tokens of a worker; where
    experts do not divide a group, some get one more. `prices` are
    the average prices of training: in eval mode tokens go to the best expert after them ("priced"; "greedy": before).
    """

    router = "base"


class SwitchLayer(ExpertLayer):
    """Switch: each token goes to its best expert, which takes at most `capacity` times its share; the rest passes by."""

    router = "switch"


class SparselyGatedLayer(ExpertLayer):
    """Sparsely Gated: each token goes to its two best experts, or `per_token`."""

    router = "sparsely_gated"


def keep_experts_local(model: nn.Module) -> nn.Module:
    """Call it before DistributedDataParallel(model), which must have the workers of the layers' process group.

    Experts that are divided among them belong to one worker each, and are not averaged: their gradients are those of the
    mean of all workers' losses already. Layers without a process group have all experts everywhere, and are averaged.
    """
    ignored = []
    for prefix, layer in model.named_modules():
        if isinstance(layer, ExpertLayer):
            own = [_attribute(entry) for entry in layer._entries if entry["expert"]] if layer._group_name else []
            ignored += [f"{prefix}.{name}".lstrip(".") for name in ["steps", *own]]
    nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ignored)
    return model


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@functools.cache
def _told(settings: str, group: str) -> dict[str, Any]:
    try:
        return json.loads(_operations.layer_parameters(settings, group))
    except RuntimeError as error:
        raise ValueError(str(error).splitlines()[0]) from None


def _attribute(entry: dict[str, Any]) -> str:
    return entry["name"].replace("expert.{}.", "").replace(".", "_")


# state_dict in the checkpoint's names: expert.17.sublayer.0.up.weight for slice 17 of sublayer_0_up_weight.


def _rename_for_checkpoint(layer: ExpertLayer, state: dict[str, Any], prefix: str, _metadata: Any) -> None:
    for entry in layer._entries:
        weights = state.pop(prefix + _attribute(entry))
        if not entry["stacked"]:
            state[prefix + entry["name"]] = weights
            continue
        for i, own in enumerate(weights.unbind(0)):
            state[prefix + entry["name"].format(entry["first"] + i)] = own


def _rename_from_checkpoint(layer: ExpertLayer, state: dict[str, Any], prefix: str, _metadata: Any, _strict: bool,
                            _missing: list[str], _unexpected: list[str], _errors: list[str]) -> None:
    if prefix + "steps" not in state and prefix + "prices" in state:
        # Of `ballast train`, which counts its steps elsewhere. Where there are prices, they are of many.
        many = round(1 / (1 - layer._price_decay)) if state[prefix + "prices"].count_nonzero() > 0 else 0
        state[prefix + "steps"] = torch.full((1,), many)
    state.setdefault(prefix + "steps", layer.steps)
    for entry in layer._entries:
        if not entry["stacked"]:
            if prefix + entry["name"] in state:
                state[prefix + _attribute(entry)] = state.pop(prefix + entry["name"])
            continue
        of_all = [state.pop(prefix + entry["name"].format(e), None) for e in range(layer.experts)]
        own = of_all[entry["first"] : entry["first"] + entry["shape"][0]]
        if all(weights is not None for weights in own):
            state[prefix + _attribute(entry)] = torch.stack(own)


# What torch has to know of the two operations (python/ops/layer_ops.cpp).


@torch.library.register_fake("ballast::expert_layer")
def _fake_forward(tokens, earlier, parameters, prices, step, experts, settings, group, routing, training, keeps_graph):  # type: ignore[no-untyped-def]
    told = _told(settings, group)
    count, groups = tokens.shape[0], told["groups"]
    shape = (groups, told["experts_of_token"] * count // groups) if training else (1, count)
    found = prices.shape[0] if training and experts is None else 0
    return (torch.empty_like(tokens, memory_format=torch.contiguous_format), tokens.new_empty(shape, dtype=torch.int32),
            prices.new_empty(found), torch.empty(int(keeps_graph), dtype=torch.long))


@torch.library.register_fake("ballast::expert_layer_backward")
def _fake_backward(gradient, graph, tokens, earlier, parameters, prices, step, chosen, settings, group, routing, training):  # type: ignore[no-untyped-def]
    def like(tensor: Tensor) -> Tensor:
        return torch.empty_like(tensor, memory_format=torch.contiguous_format)

    return [like(tokens), tokens.new_empty(0) if earlier is None else like(earlier), *map(like, parameters)]


def _setup_context(ctx: Any, inputs: Any, output: Any) -> None:
    tokens, earlier, parameters, prices, step, _, *ctx.told, _ = inputs
    ctx.reads_earlier = earlier is not None
    ctx.save_for_backward(tokens, *([earlier] if ctx.reads_earlier else []), prices, step, output[1], output[3], *parameters)


def _backward(ctx: Any, gradient: Tensor, *_others: Any) -> Any:
    tokens, *rest = ctx.saved_tensors
    earlier = rest.pop(0) if ctx.reads_earlier else None
    prices, step, chosen, graph, *parameters = rest
    found = _operations.expert_layer_backward(gradient, graph, tokens, earlier, parameters, prices, step, chosen, *ctx.told)
    of_tokens, of_earlier, *of_parameters = found
    return of_tokens, of_earlier if ctx.reads_earlier else None, of_parameters, *[None] * 8


torch.library.register_autograd("ballast::expert_layer", _backward, setup_context=_setup_context)


def _refuse(_ctx: Any, *_gradients: Any) -> Any:
    raise RuntimeError("a layer of experts has no second derivative")


torch.library.register_autograd("ballast::expert_layer_backward", _refuse)
