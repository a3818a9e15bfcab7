"""What a caller gives a stack beside its input: noise, weights, and factors on the recurrence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from noisin.errors import InvalidType, InvalidValue, Unsupported
from noisin.recurrent import drop_ins
from noisin.recurrent.cell import CellSpec
from noisin.recurrent.functional import Factors
from noisin.recurrent.layout import Layout


class Given(NamedTuple):
    """The keyword arguments of a stack's ``forward``, except for ``samples``."""

    eps: Tensor | None = None
    weights: Mapping[str, Tensor] | None = None
    read_mask: Tensor | None = None
    keep: tuple[Tensor | float | None, Tensor | float | None] | None = None
    update_mask: Tensor | None = None

    @property
    def alters(self) -> bool:
        """Whether torch's kernel cannot run, whatever the noise is."""
        return any(value is not None for value in self[1:])

    @property
    def is_common(self) -> bool:
        """Whether all rows have the same factors, none or numbers."""
        keep = self.keep if isinstance(self.keep, tuple | list) else ()
        return not any(isinstance(v, Tensor) for v in (self.read_mask, self.update_mask, *keep))


class Places(NamedTuple):
    """Where factors belong: the stack's name, cell, number of layers and sizes of z and h."""

    name: str
    cell: CellSpec
    layers: int  # times directions
    z: int
    h: int

    def read_mask(self, given: Given, layout: Layout, like: Tensor) -> Tensor | None:
        """The mask on what the gates read, ``(layers, *lead, z)``, or R·z for one of each gate."""
        if given.read_mask is None:
            return None
        if not self.cell.masks:
            raise Unsupported(
                f"{self.name}: read_mask is a factor on what the gates read and leaves "
                f"the carry whole, and with site='state' the two are one. Use site='read'."
            )
        R, width = self.cell.recurrent, getattr(given.read_mask, "shape", (0,))[-1:]
        size = (
            R * self.z if width == (R * self.z,) else self.z
        )  # one mask for each gate, or for all
        return self._factor("read_mask", given.read_mask, size, layout, like)

    def factors(self, given: Given, layout: Layout, like: Tensor) -> Factors:
        """The factors on the transition, ``(layers, *lead, z or h)`` each."""
        keep_h, keep_c = self._pair(given.keep)
        if keep_c is not None and not self.cell.memory:
            raise InvalidValue(
                f"{self.name}: keep has a factor of a memory c, which only an LSTM has. Pass "
                f"keep=(keep_h, None)."
            )
        if given.update_mask is not None and self.cell.slots == 1:
            raise Unsupported(
                f"{self.name}: update_mask is a factor on what an LSTM or a GRU adds to its "
                f"memory, and an Elman cell has none. Use read_mask."
            )
        return Factors(
            self._factor("keep_h", keep_h, self.z, layout, like),
            self._factor("keep_c", keep_c, self.h, layout, like),
            self._factor("update_mask", given.update_mask, self.h, layout, like),
        )

    def _pair(self, keep: Any) -> tuple[Any, Any]:
        """Of h and of c; a number of 0 keeps nothing."""
        pair = (None, None) if keep is None else keep
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InvalidType(
                f"{self.name}: keep must be a pair (keep_h, keep_c) of tensors or numbers, with "
                f"None for one that keeps nothing, got {keep!r:.60}."
            )
        for value in pair:
            number = isinstance(value, float | int) and not isinstance(value, bool)
            if not (value is None or isinstance(value, Tensor) or (number and 0 <= value <= 1)):
                raise InvalidValue(
                    f"{self.name}: keep is how much of h and of c is kept, tensors or numbers in "
                    f"[0, 1], got {value!r:.60}."
                )
        h, c = (None if isinstance(v, float | int) and v == 0 else v for v in pair)
        return h, c

    def _factor(
        self, what: str, value: Any, size: int, layout: Layout, like: Tensor
    ) -> Tensor | None:
        if isinstance(value, float | int):
            if not abs(value) <= torch.finfo(torch.float32).max:
                raise InvalidValue(
                    f"{self.name}: {what} must be a tensor or a finite number, got {value!r:.60}."
                )
            return like.new_full((), value).expand(self.layers, *layout.lead, size)
        if value is None:
            return None
        return drop_ins.factor(self.name, what, value, layout, self.layers, size, like)
