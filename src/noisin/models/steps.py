"""The cells of one step that settings ask for, where a layer of kernels cannot compute them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from torch import Generator, nn

from noisin._util import checks
from noisin._util.settings import construct
from noisin.errors import InvalidType, InvalidValue, Unsupported
from noisin.noise.sampling import Stochastic
from noisin.recurrent.cell import CellSpec
from noisin.recurrent.scanned import is_affine
from noisin.regularizers.cells import DropoutLSTMCell
from noisin.regularizers.sequences import Dropout
from noisin.regularizers.windowed import WindowCell

_SET_BY_THE_MODEL = ("p_h", "locked", "generator")


class ZoneoutRates(NamedTuple):
    """The rates of :class:`~noisin.regularizers.Zoneout`."""

    p_h: float
    p_c: float


class GateDropout(NamedTuple):
    """The arguments of :class:`~noisin.regularizers.DropoutLSTMCell`."""

    x: float
    h: float
    locked: bool = False
    site: Literal["after", "before"] = "after"
    shared: bool = False


class UpdateDropout(NamedTuple):
    """The arguments of :class:`~noisin.regularizers.UpdateDropoutLSTMCell`."""

    p: float
    locked: bool = False


def dropout_lstm(spec: CellSpec | None, rates: object, *sizes: int) -> nn.Module:
    """An LSTM with dropout in its gates."""
    if spec is None or spec.name != "lstm":
        raise Unsupported(
            "LanguageModel: gate_dropout is defined for the gates of an LSTM. Use cell='lstm'."
        )
    given = settings(GateDropout, "gate_dropout", "(x, h)", rates)
    others = {name: getattr(given, name) for name in ("locked", "site", "shared")}
    return DropoutLSTMCell(*sizes, p_x=given.x, p_h=given.h, **others)


def zoneout_rates(given: object) -> ZoneoutRates:
    """The rates of zoneout, or raise."""
    rates: ZoneoutRates = settings(ZoneoutRates, "zoneout", "(p_h, p_c)", given)
    return rates


def update_rates(given: object) -> UpdateDropout:
    """The rate of the dropout of updates, or raise."""
    rates: UpdateDropout = settings(UpdateDropout, "update_dropout", "(p,) or (p, locked)", given)
    return rates


def step_cell(
    build: Callable[..., Any],
    sizes: tuple[int, int],
    given: Mapping[str, Any],
    dropout: Dropout,
    generator: Generator | None,
) -> Any:
    """A cell that runs step by step, of noisin or of a user.

    Args:
        build: its class.
        sizes: ``(input_size, hidden_size)``.
        given: arguments of the class.
        dropout: applied to what the recurrence reads, by a cell that can.
        generator: the random stream to draw from.
    """
    arguments = dict(given)
    if isinstance(build, type) and issubclass(build, WindowCell):
        taken = [name for name in _SET_BY_THE_MODEL if name in arguments]
        if taken:
            raise InvalidValue(
                f"LanguageModel: cell_arguments has {taken[0]}, which the model sets. Use "
                f"dropout.recurrent, dropout.locked and the generator of the model."
            )
        arguments |= {"p_h": dropout.p, "locked": dropout.locked}
    elif dropout.p and is_affine(build):
        raise Unsupported(
            "LanguageModel: recurrent dropout is on the state that the gates read, and those of an "
            "affine cell read the input alone. Use dropout.recurrent = 0, or noise."
        )
    elif dropout.p:
        raise Unsupported(
            "LanguageModel: recurrent dropout needs a layer with kernels or a cell that offers it, "
            "and this layer runs step by step because of its cell, gate_dropout or weight_noise "
            "per step. Use dropout.recurrent = 0."
        )
    cell = construct("LanguageModel: cell", build, *sizes, **arguments)
    checks.require_cell("LanguageModel: cell", cell)
    if isinstance(cell, Stochastic):
        cell.generator = generator
    return cell


def require_arguments(stacked: bool, given: object) -> None:
    """Raise unless these are arguments of a cell, and it can take them."""
    if not isinstance(given, Mapping):
        raise InvalidType(
            f"LanguageModel: cell_arguments must be a dict, such as {{'depth': 10}}, got "
            f"{given!r:.60}."
        )
    if stacked and given:
        raise InvalidValue(
            f"LanguageModel: this cell takes no cell_arguments, got {', '.join(map(str, given))}."
        )


def settings(kind: type[Any], name: str, what: str, given: object) -> Any:
    """The named tuple of these settings, or raise."""
    try:
        return kind(*given)  # type: ignore[misc]
    except TypeError:
        raise InvalidType(
            f"LanguageModel: {name} must be None or {what}, got {given!r:.60}."
        ) from None
