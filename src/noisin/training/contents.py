"""What a checkpoint must contain to be used, in addition to matching its hashes.

The hashes of a manifest show that the files have not changed since they were written, not that a
trainer wrote them. The weights must match those of the model in name, shape and dtype and be
finite, and the state must have the types and shapes that are needed to continue a run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from pydantic import BaseModel, ConfigDict, Field, SkipValidation, TypeAdapter
from torch import Tensor

from noisin.training.reading import mismatch
from noisin.training.schedule import Schedule, in_nats

COUNTED = torch.zeros((), dtype=torch.float32)  # a fused optimizer counts its steps in float32
Count = Annotated[int, Field(ge=0, le=10**18)]


class _State(BaseModel):
    """The fields of ``state.pt``; the tensors in it are checked separately."""

    model_config = ConfigDict(
        extra="allow", strict=True, allow_inf_nan=False, arbitrary_types_allowed=True
    )

    epoch: Count
    stop: Count
    step: Count
    tokens: Count
    scored: Count
    offset: Count
    average: Count
    cut: bool
    seconds: Annotated[float, Field(ge=0)]
    sums: dict[str, Tensor]
    carried: SkipValidation[Any]
    optimizer: dict[str, Any]
    schedule: dict[str, Any]
    generators: dict[str, Tensor]


@dataclass(frozen=True)
class Pattern:
    """A model, and a run of it, to compare a checkpoint with.

    Attributes:
        weights: the weights of the model, by name, with the statistics in its buffers.
        optimizer: the state dict of its optimizer; None if it is not loaded.
        parameters: what the optimizer updates, in its order: no buffers.
        carried: a state that the model carries from batch to batch, for all columns; None if
            every batch starts from zero.
    """

    weights: Mapping[str, Tensor]
    optimizer: Mapping[str, Any] | None = None
    parameters: Sequence[Tensor] = ()
    carried: Any = None


def upgraded(state: Any) -> Any:
    """The state of an older version in the current format; unchanged if it is not one."""
    if not isinstance(state, dict) or not isinstance(state.get("course"), dict):
        return state
    state = dict(state)
    nats, penalty = state.pop("sums", torch.zeros(2, dtype=torch.float64))
    schedule = in_nats(state.pop("course"))
    state["stop"] = state.pop("row", None)
    sums = {"nats": nats} | ({"penalty": penalty} if penalty else {})
    return state | {"schedule": schedule, "sums": sums}


def problem(
    pattern: Pattern,
    weights: Mapping[str, Tensor],
    average: Mapping[str, Tensor] | None,
    state: object,
    moment: Mapping[str, int],
) -> str | None:
    """Why a checkpoint cannot be used, or None if it can.

    Args:
        pattern: what to compare it with.
        weights, average, state: its content.
        moment: the step and the epoch in its manifest.
    """
    return next(_problems(pattern, weights, average, state, moment), None)


def _problems(
    pattern: Pattern,
    weights: Mapping[str, Tensor],
    average: Mapping[str, Tensor] | None,
    state: object,
    moment: Mapping[str, int],
) -> Iterator[str]:
    yield from _weight_problems(pattern.weights, weights, "weights")
    if average is not None:
        yield from _weight_problems(pattern.weights, average, "average")
    if not isinstance(state, dict) or not all(isinstance(key, str) for key in state):
        yield "its state is not a dict of values by name"
        return
    if found := mismatch(state, _State):
        yield f"its state is damaged: {found.rstrip('.')}"
        return
    for name, value in moment.items():
        if state[name] != value:
            yield f"its state has {name} {state[name]!r:.20}, its manifest {value!r:.20}"
    yield from _schedule_problems(state["schedule"], state["epoch"])
    if (state["average"] > 0) != (average is not None):
        yield f"its average of {state['average']} steps does not match its files"
    yield from _tail_problems(pattern.weights, state.get("tail"))
    number = torch.zeros((), dtype=torch.float64)
    if "nats" not in state["sums"] or not all(_fits(v, number) for v in state["sums"].values()):
        yield "its sums are not finite numbers"
    if pattern.optimizer is not None:
        saved = state["optimizer"]
        yield from _optimizer_problems(pattern.optimizer, saved, pattern.parameters)
        carries = pattern.carried is not None and state["stop"] > 0
        if carries != (state["carried"] is not None):
            yield "its carried state does not match its position"
        if state["carried"] is not None and not _matches(state["carried"], pattern.carried):
            yield "its carried state does not fit the model"
        if not _is_generator(state["generators"].get("cpu")):
            yield "the state of its random generator is invalid"


def _weight_problems(
    model: Mapping[str, Tensor], saved: Mapping[str, Tensor], what: str
) -> Iterator[str]:
    """Differences between saved weights and the model's, and values that are not finite."""
    shapes = {name: tuple(tensor.shape) for name, tensor in model.items()}
    found = {name: tuple(tensor.shape) for name, tensor in saved.items()}
    if shapes != found:
        first = min(name for name, _ in shapes.items() ^ found.items())
        yield (
            f"its {what} do not match the model (first difference: {first}). If another version of "
            f"noisin made it, use that version"
        )
        return
    for name, tensor in saved.items():
        if tensor.dtype != model[name].dtype:
            yield f"its {what} {name} are {tensor.dtype}, the model's are {model[name].dtype}"
        if not tensor.isfinite().all():
            yield f"its {what} {name} are not all finite"


def _tail_problems(model: Mapping[str, Tensor], tail: object) -> Iterator[str]:
    """Check the short mean of two-tailed averaging, if there is one."""
    if tail is None:
        return
    try:
        short, since = tail["short"], tail["since"]  # type: ignore[index]
        expected = list(model.values()) if short["count"] else []
        pairs = list(zip(short["means"], expected, strict=True))
        sound = min(short["count"], since) >= 0 and all(_fits(*pair) for pair in pairs)
    except (ValueError, TypeError, LookupError, AttributeError):
        sound = False
    if not sound:
        yield "its second average does not match the model"


def _schedule_problems(state: Mapping[str, Any], epochs: int) -> Iterator[str]:
    try:
        schedule = Schedule.from_state_dict(state)
        TypeAdapter(Schedule).validate_python(vars(schedule))
        sound = 0 < schedule.lr < math.inf and len(schedule.history) == epochs
    except (ValueError, TypeError, LookupError, AttributeError):
        sound = False
    if not sound:
        yield "its schedule (learning rate, best epochs, history) is damaged"


def _optimizer_problems(
    fresh: Mapping[str, Any], saved: Mapping[str, Any], parameters: Sequence[Tensor]
) -> Iterator[str]:
    """Check the settings of an optimizer, except the learning rate, and a tensor per parameter.

    Adam has none for what never had a gradient: a parameter that is frozen, or not used.
    """
    try:
        same = [_settings(group) for group in saved["param_groups"]] == [
            _settings(group) for group in fresh["param_groups"]
        ]
        stored = {int(i): dict(values) for i, values in saved["state"].items()}
    except (ValueError, TypeError, LookupError, AttributeError):
        same, stored = False, {}
    if not same:
        yield "its optimizer has different settings"
        return
    moments = {"step", "exp_avg", "exp_avg_sq"} if "betas" in fresh["param_groups"][0] else set()
    expected = {
        i: {name: COUNTED if name == "step" else parameter for name in moments}
        for i, parameter in enumerate(parameters if moments else ())
    }
    if not set(stored) <= set(expected) or not all(
        set(values) == moments and all(_fits(values[name], expected[i][name]) for name in moments)
        for i, values in stored.items()
    ):
        yield "the state of its optimizer does not match the weights"


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "lr"}


def _is_generator(state: object) -> bool:
    if not isinstance(state, Tensor):
        return False
    try:
        torch.Generator().set_state(state)
    except (RuntimeError, TypeError):
        return False
    return True


def _fits(value: object, like: Tensor) -> bool:
    """Whether a value is a tensor of this shape and dtype, all finite."""
    if not isinstance(value, Tensor) or value.shape != like.shape or value.dtype != like.dtype:
        return False
    return bool(value.isfinite().all())


def _matches(value: Any, like: Any) -> bool:
    """Whether nested tuples of tensors have the same structure, shapes and dtypes."""
    if isinstance(like, Tensor):
        return _fits(value, like)
    if not isinstance(value, tuple | list) or len(value) != len(like):
        return False
    return all(_matches(*pair) for pair in zip(value, like, strict=True))
