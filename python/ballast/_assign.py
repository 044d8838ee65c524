# SPDX-License-Identifier: Apache-2.0
"""Balanced assignment of tokens to experts, for arrays of numpy and tensors of torch."""

import ctypes
from typing import Any, NamedTuple

import numpy

from . import _library


class Certificate(NamedTuple):
    """How good an assignment is, measured in double on the scores: numbers, or for several problems arrays on the CPU.

    ``dual`` is what no valid assignment can exceed, ``primal`` the sum of scores that this one has, and ``gap`` their
    difference. ``relative_gap`` is the gap as a part of what the optimum has above a blind equal spread: 0 is the
    optimum, 1 a blind spread.
    """

    valid: Any
    primal: Any
    dual: Any
    gap: Any
    relative_gap: Any


class Assignment(NamedTuple):
    """What :func:`assign` found. Arrays are numpy's, or torch's on the scores' device."""

    experts: Any  #: [..., T] int32: the expert of each token
    loads: Any  #: [..., E] int32: how many tokens each expert has
    prices: Any  #: [..., E] float64: every token has the expert with the largest score less price
    certificate: Certificate


def assign(scores: Any, capacities: Any = None, mask: Any = None, gap: float = 0.0) -> Assignment:
    """Gives each token one expert so that loads are balanced and the sum of scores is the largest that can be.

    scores: [T, E], or [P, T, E] for P problems, each solved by itself. A numpy array, or a torch tensor on a CPU or a
        GPU; any strides. float32, float16 or bfloat16; other types are rounded to float32 first.
    capacities: [E], how many tokens each expert may take at most; exactly so many where they just suffice. None: all
        experts take equally many (where E does not divide T, floor or ceil of T / E).
    mask: what may be. [..., T] bool: tokens that count; the others are padding, which fills what is left.
        [..., T, E] bool: pairs that may be; the others are forbidden. Where both would fit, as a [4, 4] of four
        problems with four tokens and experts, it is of tokens.
    gap: what may be missing to the optimum, as a part of what it has above a blind spread; on a GPU the solver may stop
        there. 0: nothing. A CPU always finds the optimum.

    ValueError: scores that are not finite (token and expert are named), shapes that do not fit, capacities that are too
    few, or no assignment without a forbidden pair. On a GPU the call waits for the device, to tell.
    """
    if not 0 <= gap <= 1:
        raise ValueError(f"a gap of {gap}: want 0 (the optimum) to 1 (a blind spread)")
    if type(scores).__module__.split(".")[0] == "torch":
        return _assign_tensor(scores, capacities, mask, gap)
    return _assign_array(numpy.asarray(scores), capacities, mask)


# Arrays of numpy, through the C interface (python/c/assign.h).


class _Problem(ctypes.Structure):
    _fields_ = [("scores", ctypes.c_void_p), ("type", ctypes.c_int32), ("forbids", ctypes.c_int32),
                ("tokens", ctypes.c_int64), ("experts", ctypes.c_int64), ("token_stride", ctypes.c_int64),
                ("expert_stride", ctypes.c_int64), ("capacities", ctypes.c_void_p), ("counted", ctypes.c_void_p)]


class _Result(ctypes.Structure):
    _fields_ = [("expert_of_token", ctypes.c_void_p), ("loads", ctypes.c_void_p), ("prices", ctypes.c_void_p),
                ("valid", ctypes.c_int32), ("primal", ctypes.c_double), ("dual", ctypes.c_double),
                ("gap", ctypes.c_double), ("relative_gap", ctypes.c_double)]


_TYPES = {numpy.dtype(numpy.float32): 0, numpy.dtype(numpy.float16): 2}


def _assign_array(scores: numpy.ndarray, capacities: Any, mask: Any) -> Assignment:
    _check_shape(scores)
    if scores.dtype not in _TYPES:
        scores = scores.astype(numpy.float32)
    counted, allowed = _split_mask(scores, None if mask is None else numpy.asarray(mask))
    if allowed is not None:
        scores = numpy.where(allowed.astype(bool), scores, numpy.array(-numpy.inf, scores.dtype))
    single = scores.ndim == 2
    problems = scores[numpy.newaxis] if single else scores
    # A stride that is no whole number of elements, as of a field of records, cannot be told.
    if any(stride % problems.itemsize for stride in problems.strides):
        problems = numpy.ascontiguousarray(problems)
    count, tokens, experts = problems.shape
    room = None if capacities is None else _capacities(numpy.asarray(capacities), experts)
    if counted is not None:
        counted = numpy.ascontiguousarray(numpy.broadcast_to(counted.astype(bool), (count, tokens)), numpy.uint8)
    found = Assignment(numpy.empty((count, tokens), numpy.int32), numpy.empty((count, experts), numpy.int32),
                       numpy.empty((count, experts), numpy.float64),
                       Certificate(numpy.empty(count, bool), *(numpy.empty(count) for _ in range(4))))
    message = ctypes.create_string_buffer(1000)
    for p in range(count):
        rows = problems[p]
        problem = _Problem(rows.ctypes.data, _TYPES[rows.dtype], allowed is not None, tokens, experts,
                           rows.strides[0] // rows.itemsize, rows.strides[1] // rows.itemsize,
                           None if room is None else room.ctypes.data, None if counted is None else counted[p].ctypes.data)
        result = _Result(*(array[p].ctypes.data for array in found[:3]))
        if _library.assignment().ballast_assign(ctypes.byref(problem), ctypes.byref(result), message, len(message)) != 0:
            where = f"problem {p}: " if count > 1 else ""
            raise ValueError(where + message.value.decode())
        for name in Certificate._fields:
            getattr(found.certificate, name)[p] = getattr(result, name)
    if not single:
        return found
    proof = Certificate(*(array[0].item() for array in found.certificate))
    return Assignment(found.experts[0], found.loads[0], found.prices[0], proof)


# Tensors of torch.


def _assign_tensor(scores: Any, capacities: Any, mask: Any, gap: float) -> Assignment:
    import torch

    operations = _library.operations()
    _check_shape(scores)
    scores = scores.detach()
    if scores.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        scores = scores.float()
    counted, allowed = _split_mask(scores, None if mask is None else torch.as_tensor(mask, device=scores.device))
    if allowed is not None:
        scores = scores.masked_fill(~allowed.bool(), -torch.inf)
    if counted is not None:
        counted = counted.bool()
    room = None if capacities is None else torch.as_tensor(_capacities(_on_host(capacities), scores.shape[-1]))
    single = scores.dim() == 2
    try:
        experts, loads, prices, proofs = operations.balanced_assignment(
            scores.unsqueeze(0) if single else scores, counted, room, allowed is not None, gap)
    except RuntimeError as error:
        if type(error) is not RuntimeError:  # the device's: out of memory and the like
            raise
        raise ValueError(str(error).splitlines()[0]) from None
    valid, *others = proofs.unbind(1)
    proof = Certificate(valid.bool(), *others)
    if not single:
        return Assignment(experts, loads, prices, proof)
    return Assignment(experts[0], loads[0], prices[0], Certificate(*(tensor[0].item() for tensor in proof)))


# Of both.


def _check_shape(scores: Any) -> None:
    if scores.ndim not in (2, 3):
        raise ValueError(f"scores of shape {tuple(scores.shape)}: want [tokens, experts] or [problems, tokens, experts]")
    if scores.shape[-1] < 1:
        raise ValueError("scores of no experts: at least one is needed")


def _split_mask(scores: Any, mask: Any) -> tuple[Any, Any]:
    """(tokens that count [.., T], pairs that may be [.., T, E]): one of them, or neither."""
    if mask is None:
        return None, None
    shape = tuple(scores.shape)
    fitting = {shape: "pairs", shape[1:]: "pairs", shape[:-1]: "tokens", shape[-2:-1]: "tokens"}
    if scores.ndim == 2:
        fitting = {shape: "pairs", shape[:-1]: "tokens"}
    kind = fitting.get(tuple(mask.shape))
    if kind is None:
        raise ValueError(f"a mask of shape {tuple(mask.shape)} does not fit scores of shape {shape}: want a bool for each "
                         "token, or for each token and expert")
    return (mask, None) if kind == "tokens" else (None, mask)


def _on_host(values: Any) -> numpy.ndarray:
    return numpy.asarray(values.cpu() if hasattr(values, "cpu") else values)


def _capacities(values: numpy.ndarray, experts: int) -> numpy.ndarray:
    if values.shape != (experts,):
        raise ValueError(f"capacities of shape {values.shape}: want one for each of the {experts} experts")
    if not numpy.issubdtype(values.dtype, numpy.integer):
        raise ValueError(f"capacities of type {values.dtype}: want whole numbers")
    return numpy.ascontiguousarray(values, numpy.int64)
