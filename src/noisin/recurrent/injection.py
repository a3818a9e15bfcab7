"""The injection of noise as a property of a module, and the switches that act on all of a model's.

Every noise-injected module, of ours or wrapped, is an :class:`Injected`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, get_args

from torch import Generator, nn

from noisin._util import checks
from noisin._util.checks import one_of
from noisin.errors import InvalidValue, Unsupported
from noisin.noise import Noise, validate
from noisin.noise.sampling import Stochastic
from noisin.recurrent.cell import Site as Site
from noisin.recurrent.functional import Mode, Share

Noises = Noise | None | tuple[Noise | None, ...]
NOISE_ATTRIBUTES = (
    "noise",
    "noise_mode",
    "feedback",
    "share",
    "generator",
    "noisy_layers",
    "shard",
    "site",
    "_noise_switch",
)


class Injected(Stochastic):
    """A module that injects noise while it trains, or whenever it is told to.

    Attributes:
        noise: the noise, or None; a stack of layers may hold one per layer.
        noise_mode: ``"multiplicative"``, ``z = h * (1 + eps)``, or ``"additive"``, ``z = h + eps``.
        feedback: whether the recurrence reads the noisy z (weak unbiasedness, Algorithm 1) or the
            clean h (needed for strong unbiasedness).
        share: a fresh draw per ``"step"`` (the paper), or one per ``"sequence"``.
        generator: the random stream to draw from; None is torch's global one.
    """

    noise: Noises
    noise_mode: Mode
    feedback: bool
    share: Share
    _noise_switch: bool | None  # None follows train() and eval()

    def _configure(
        self,
        *,
        noise: Any,
        mode: Mode,
        feedback: bool,
        share: Share,
        generator: Generator | None,
    ) -> None:
        name = type(self).__name__
        one_of(f"{name}: mode", mode, get_args(Mode))
        one_of(f"{name}: feedback", feedback, (True, False))
        one_of(f"{name}: share", share, get_args(Share))
        checks.require_generator(name, generator)
        self.noise = self._checked_noise(noise)
        self.noise_mode = mode
        self.feedback = feedback
        self.share = share
        self.generator = generator
        self._noise_switch = self.__dict__.get("_noise_switch")

    def __getstate__(self) -> dict[str, Any]:
        # A switch belongs to the `with` that set it: a copy made inside must not keep it.
        return {**super().__getstate__(), "_noise_switch": None}  # type: ignore[no-untyped-call]

    def _checked_noise(self, noise: Any) -> Noises:
        return None if noise is None else validate(noise)

    def _warn_of_risks(self) -> None:
        """Say what is known to go wrong with this noise; called when a module first gets some."""

    def _noise_acts(self) -> bool:
        on = self.training if self._noise_switch is None else self._noise_switch
        return on and self.noise is not None

    def __prepare_scriptable__(self) -> Any:
        """Refuse torch.jit.script, which would drop the noise."""
        raise Unsupported(
            f"{type(self).__name__}: torch.jit.script cannot hold noise. To deploy the clean RNN, "
            f"script noisin.revert(copy.deepcopy(model)), or use torch.export in eval()."
        )

    def _noise_repr(self) -> str:
        shown = [f"noise={self.noise}", f"mode={self.noise_mode!r}", f"feedback={self.feedback}"]
        if self.share != "step":
            shown.append(f"share={self.share!r}")
        return ", ".join(shown)


def warn_of_growth(module: Injected, advice: str, stacklevel: int = 4) -> None:
    """Warn where noise is fed back into a GRU's single state, its memory and output in one."""
    if module.feedback and module.noise is not None:
        warnings.warn(
            f"{type(module).__name__}: noise on a GRU's state multiplies along its carry, whose "
            f"second moment grows by u²(1 + variance) a step, with u the update gate, and can "
            f"explode. Instead, {advice}.",
            stacklevel=stacklevel,
        )


def injected_modules(model: nn.Module) -> list[Injected]:
    """All noise-injected modules of a model, each once."""
    return [module for module in model.modules() if isinstance(module, Injected)]


def set_noise(model: nn.Module, noise: Any) -> None:
    """Give all noise-injected modules of ``model`` this noise: for schedules and tuning.

    ``noise`` is what the modules take as their argument: a noise, None, or one per layer. Nothing
    changes unless all of them can take it.

    >>> import noisin
    >>> rnn = noisin.LSTM(2, 3)
    >>> noisin.set_noise(rnn, noisin.noise.Gaussian(0.8))
    >>> rnn.noise
    Gaussian(gamma=0.8)
    """
    checks.require_module("set_noise", model)
    modules = injected_modules(model)
    if not modules:
        raise InvalidValue(
            f"set_noise: {type(model).__name__} holds no noise-injected module. "
            f"Convert it first: noisin.convert(model, noise=...)."
        )
    checked = [module._checked_noise(noise) for module in modules]
    for module, value in zip(modules, checked, strict=True):
        first = module.noise is None
        module.noise = value
        if first:
            module._warn_of_risks()


@contextmanager
def _switched(model: nn.Module, on: bool) -> Iterator[None]:
    checks.require_module("noise_on" if on else "noise_off", model)
    before = [(module, module._noise_switch) for module in injected_modules(model)]
    try:
        for module, _ in before:
            module._noise_switch = on
        yield
    finally:
        for module, switch in before:
            if isinstance(module, Injected):  # it may have been reverted in between
                module._noise_switch = switch


@contextmanager
def as_training(model: nn.Module, on: bool = True) -> Iterator[None]:
    """As in train() with the noise on, or as in eval() with it off; restored on the way out."""
    before = [(module, module.training) for module in model.modules()]
    try:
        model.train(on)
        with _switched(model, on):
            yield
    finally:
        for module, training in before:
            module.training = training


def noise_off(model: nn.Module) -> AbstractContextManager[None]:
    """Context manager: no noise in ``model``, in train() as in eval(), while gradients flow."""
    return _switched(model, on=False)


def noise_on(model: nn.Module) -> AbstractContextManager[None]:
    """Context manager: noise in ``model``, in eval() as in train()."""
    return _switched(model, on=True)
