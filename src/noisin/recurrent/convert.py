"""Put noise into an existing model, and take it out again.

A module keeps its identity: only its class changes, from torch's to ours, which is a subclass that
has the same parameters. A subclass of torch's becomes a class of both
(:mod:`noisin.recurrent.cooperative`). So Parameters, optimizers, hooks, ``state_dict`` keys and
modules that are used in two places stay what they were.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from torch import Generator, nn
from torch.nn.utils import parametrize

from noisin._util import checks
from noisin.errors import InvalidType, InvalidValue, Unsupported
from noisin.recurrent import cooperative
from noisin.recurrent.cells import GRUCell, LSTMCell, Noisy, RNNCell
from noisin.recurrent.functional import Mode, Share
from noisin.recurrent.injection import (
    NOISE_ATTRIBUTES,
    Injected,
    Injection,
    NoisyLayers,
    Site,
    injected_modules,
)
from noisin.recurrent.modules import GRU, LSTM, RNN
from noisin.recurrent.scanned import Scanned
from noisin.recurrent.stack import NoisyStack

Model = TypeVar("Model", bound=nn.Module)
Where = str | Collection[str] | Callable[[str, nn.Module], bool]

NOISY: Mapping[type[nn.Module], type[Injected]] = {
    nn.RNN: RNN,
    nn.LSTM: LSTM,
    nn.GRU: GRU,
    nn.RNNCell: RNNCell,
    nn.LSTMCell: LSTMCell,
    nn.GRUCell: GRUCell,
}


def convert(
    model: Model,
    noise: Any,
    *,
    where: Where | None = None,
    mode: Mode = "multiplicative",
    feedback: bool = True,
    noisy_layers: NoisyLayers = "all",
    share: Share = "step",
    generator: Generator | None = None,
    site: Site = "read",
) -> Model:
    """Turn torch's RNNs and cells inside ``model`` into noise-injected ones, in place.

    Args:
        model: any module; it is changed and returned. Nothing changes if anything is refused.
        noise: a noise, None, or one per layer.
        where: which modules: a pattern such as ``"encoder.*"``, a collection of patterns, or a
            function ``(name, module) -> bool``. By default all of them.
        mode, feedback, noisy_layers, share, generator, site: as in
            :mod:`noisin.recurrent.modules`. ``site`` is for GRU layers;
            a GRUCell has torch's single state, so its noise is on that, and warns.

    Cells wrapped in :class:`~noisin.Noisy` have noise already and are left alone. A subclass of
    torch's RNN or cell keeps its methods and is noisy where they call ``super().forward``. It is
    tried once with large noise, and refused if that does not move its output.

    >>> import torch, noisin
    >>> model = torch.nn.ModuleDict({"rnn": torch.nn.LSTM(2, 3), "head": torch.nn.Linear(3, 1)})
    >>> model = noisin.convert(model, noisin.noise.Gaussian(0.5), feedback=False)
    >>> model["rnn"]
    LSTM(2, 3, noise=Gaussian(gamma=0.5), mode='multiplicative', feedback=False, noisy_layers='all')
    """
    checks.require_module("convert", model)
    settings = Injection(
        noise, mode, feedback, noisy_layers, share, site, generator, owner="convert"
    )
    configured = []
    for name, module in selected(model, where):
        # Try the settings on a twin, so that a refusal leaves the model as it was.
        twin = _twin(name, module)
        own = replace(settings, owner=type(twin).__name__)
        if isinstance(twin, GRUCell):
            own = replace(own, site=getattr(module, "site", "state"))
        twin._configure(own)
        if not isinstance(twin, NoisyStack):
            _check_cell_settings(name, twin)
        if cooperative.converted_from(type(twin)) and not isinstance(module, Injected):
            cooperative.require_noise(name, twin)
        twin._warn_of_risks()
        configured.append((module, twin))
    if not configured:
        raise InvalidValue(
            f"convert: found no torch RNN or cell in {type(model).__name__}"
            f"{'' if where is None else f' where {where!r}'}. "
            f"Wrap your own transition with noisin.Noisy(cell, noise)."
        )
    for module, twin in configured:
        module.__class__ = type(twin)
        module.__dict__.update(twin.__dict__)
    return model


def revert(model: Model) -> Model:
    """Undo :func:`convert`, in place: noise-injected RNNs and cells become torch's again.

    :class:`~noisin.Noisy` wrappers and :class:`~noisin.Scanned` layers are the caller's own and
    stay.
    """
    checks.require_module("revert", model)
    modules = [m for m in injected_modules(model) if not isinstance(m, Noisy | Scanned)]
    for module in modules:
        if parametrize.is_parametrized(module):
            raise Unsupported(
                f"revert: a {type(module).__name__} belongs to torch.nn.utils.parametrize. Remove "
                f"its parametrizations first."
            )
        if _theirs(module) is None:
            raise Unsupported(
                f"revert: {type(module).__name__} is a subclass of noisin's and has no counterpart "
                f"in torch. Replace it by hand."
            )
        if isinstance(module, GRUCell) and module.site == "read":
            raise Unsupported(
                "revert: torch's GRUCell has one tensor for its state, and one with site='read' "
                "has a pair. Keep noisin's, without noise: noisin.set_noise(model, None)."
            )
        if getattr(module, "nonlinearity", None) == "sigmoid":
            raise Unsupported(
                f"revert: torch has no {type(module).__name__} with a sigmoid. Keep noisin's, "
                f"without noise: noisin.set_noise(model, None)."
            )
    for module in modules:
        theirs = _theirs(module)
        assert theirs is not None
        module.__class__ = theirs  # type: ignore[assignment]
        for attribute in NOISE_ATTRIBUTES:
            module.__dict__.pop(attribute, None)
    return model


def _theirs(module: Injected) -> type[nn.Module] | None:
    """The class that a converted module had, or None for a subclass of ours."""
    kind = type(module)
    known = (theirs for theirs, ours in NOISY.items() if kind is ours)
    return cooperative.converted_from(kind) or next(known, None)


def clean_twin(module: nn.RNNBase) -> NoisyStack:
    """Noisin's module without noise that shares everything with one of torch's."""
    twin = _twin("", module)
    assert isinstance(twin, NoisyStack)
    twin._configure(Injection())
    return twin


def selected(model: nn.Module, where: Where | None) -> list[tuple[str, nn.Module]]:
    """The RNNs and cells to convert, each once, under the first name that is wanted."""
    selected: dict[nn.Module, str] = {}
    used: set[str] = set()
    patterns = _patterns(where)
    wrapped = {inner for m in model.modules() if isinstance(m, Noisy) for inner in m.modules()}
    for name, module in model.named_modules(remove_duplicate=False):
        recurrent = isinstance(module, nn.RNNBase | nn.RNNCellBase)
        if not recurrent or module in wrapped:
            continue
        if callable(patterns):
            wanted = bool(patterns(name, module))
        else:
            matching = {pattern for pattern in patterns if fnmatchcase(name, pattern)}
            used |= matching
            wanted = bool(matching)
        if wanted and module not in selected:
            selected[module] = name
    unused = set() if callable(patterns) else set(patterns) - used
    if unused and selected:
        raise InvalidValue(
            f"convert: no RNN or cell is named {' or '.join(map(repr, sorted(unused)))}. "
            f"Leave it out of where=, or correct its spelling."
        )
    return [(name, module) for module, name in selected.items()]


def _patterns(where: Where | None) -> Callable[[str, nn.Module], bool] | list[str]:
    if where is None:
        return ["*"]
    if callable(where) and not isinstance(where, type | nn.Module):
        return where
    patterns = [where] if isinstance(where, str) else where
    if isinstance(patterns, list | tuple | set | frozenset) and all(
        isinstance(pattern, str) for pattern in patterns
    ):
        return list(patterns)
    raise InvalidType(
        f"convert: where must be a pattern such as 'encoder.*', a list of patterns, or a function "
        f"(name, module) -> bool, got {where!r}."
    )


def _twin(name: str, module: nn.Module) -> Injected:
    """A noise-injected module that shares everything with ``module``."""
    kind = type(module)
    if parametrize.is_parametrized(module):
        advice = "Convert the model first and parametrize it then, or exclude it by where=."
        if isinstance(module, Injected):
            advice = "It is converted already: noisin.set_noise changes its noise."
        raise Unsupported(
            f"convert: {name!r} is a {kind.__name__}, whose class belongs to "
            f"torch.nn.utils.parametrize. {advice}"
        )
    if isinstance(module, Injected):
        ours: type[Injected] = type(module)
    elif kind in NOISY:
        ours = NOISY[kind]
    else:
        base = next((NOISY[torchs] for torchs in NOISY if isinstance(module, torchs)), None)
        ours = cooperative.subclass_of(name, module, base)
    twin = ours.__new__(ours)
    twin.__dict__.update(module.__dict__)
    return twin


def _check_cell_settings(name: str, cell: Injected) -> None:
    if not cell.feedback or cell.share != "step":
        setting = "feedback=False" if not cell.feedback else f"share={cell.share!r}"
        raise Unsupported(
            f"convert: {name!r} is a {type(cell).__name__}, which the model's own loop calls step "
            f"by step and feeds back, so {setting} cannot be kept. Exclude it by where=, or run it "
            f"with noisin.unroll(noisin.Noisy(cell, noise, {setting}), x)."
        )
