# SPDX-License-Identifier: Apache-2.0
"""Models that `ballast train` made, or `ballast import` read."""

import tomllib
from collections.abc import Sequence
from os import PathLike, fspath
from typing import Any

from . import _library

_classes = _library.models()

import torch  # noqa: E402  after the check of its version


class TrainedModel:
    """A language model with its tokenizer. Made by :func:`load`. It is evaluated, not trained."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.path: str = inner.path()  #: the checkpoint
        self.step: int = inner.step()  #: steps it was trained for
        self.context: int = inner.context()  #: how many tokens it sees at most
        self.vocabulary: int = inner.vocabulary()  #: how many tokens there are
        self.device = torch.device(inner.device())

    def __repr__(self) -> str:
        return f"<ballast.TrainedModel {self.path}, {self.step} steps, on {self.device}>"

    @property
    def config(self) -> dict[str, Any]:
        """Every knob of its training: ``model.config["experts"]["count"]``."""
        return tomllib.loads(self._inner.config())

    def logits(self, ids: Any) -> torch.Tensor:
        """ids [S] or [B, S], whole numbers -> [S, V] or [B, S, V]: what the model expects after each token."""
        tokens = torch.as_tensor(ids, dtype=torch.long)
        found = self._inner.logits(tokens.unsqueeze(0) if tokens.dim() == 1 else tokens)
        return found[0] if tokens.dim() == 1 else found

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without what a tokenizer puts around it."""
        return list(self._inner.encode(text))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; bytes that are not UTF-8 are replaced."""
        return self._inner.decode([int(i) for i in ids], False)

    def generate(self, prompts: Any = "", *, max_tokens: int = 200, temperature: float = 1.0, top_k: int = 0,
                 top_p: float = 1.0, seed: int = 1, stop_at_end_of_text: bool = True) -> Any:
        """Continues a text, or ids. One prompt gives one continuation, a list of them a list, all in one batch.

        A str gives a str, ids give ids. temperature 0: always the most likely token. What is drawn for a prompt depends
        on the seed, its place in the list and the prompt alone.
        """
        alone = isinstance(prompts, str) or len(prompts) > 0 and isinstance(prompts[0], int)
        given = [prompts] if alone else list(prompts)
        ids = [self._inner.encode(one) if isinstance(one, str) else [int(i) for i in one] for one in given]
        written = self._inner.generate(ids, max_tokens, temperature, top_k, top_p, seed, stop_at_end_of_text)
        told = [self._inner.decode(new, True) if isinstance(one, str) else list(new) for one, new in zip(given, written)]
        return told[0] if alone else told


def load(run: str | PathLike[str], *, device: str = "auto", precision: str = "auto", average: bool = False) -> TrainedModel:
    """A trained model from a run directory (its newest checkpoint), a checkpoint, or an exported model.

    device: auto (a GPU if there is one), cpu or cuda. precision: auto (fp32 on a CPU, bf16 on a GPU), fp32, bf16 or fp64.
    average: the average of the weights over the run's steps, where it kept one.
    ValueError: there is no such model, or it is damaged.
    """
    try:
        return TrainedModel(_classes.TrainedModel(fspath(run), device, precision, average))
    except RuntimeError as error:
        raise ValueError(str(error).splitlines()[0]) from None
