"""The injection of noise: its settings, the modules that have it, and switches for models."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, get_args

from torch import Generator, Tensor, nn

from noisin._util import checks
from noisin._util.checks import one_of
from noisin._util.wording import shown
from noisin.errors import GrowingNoise, InvalidValue, Unsupported
from noisin.noise import Biased, Noise, validate
from noisin.noise.biased import at_rest
from noisin.noise.sampling import Stochastic
from noisin.recurrent.cell import Site as Site
from noisin.recurrent.functional import Mode, Share
from noisin.recurrent.scans import ScanSite

Noises = Noise | None | tuple[Noise | None, ...]
NoisyLayers = Literal["all", "last"] | Collection[int]
AnySite = Site | ScanSite
NOISE_ATTRIBUTES = ("injection", "shard", "_noise_switch")


@dataclass(frozen=True)
class Injection:
    """How noise is injected into a module: the settings that all noise-injected modules share.

    Attributes:
        noise: a noise, None, or a sequence with one (or None) per layer.
        mode: ``"multiplicative"``, ``z = h * (1 + eps)``, or ``"additive"``, ``z = h + eps``.
        feedback: whether the recurrence reads the noisy z (weak unbiasedness, Algorithm 1) or the
            clean h (needed for strong unbiasedness).
        layers: ``"all"``, ``"last"`` or the numbers of the layers that have noise. Other layers
            stay clean, whatever the noise is.
        share: a fresh draw per ``"step"`` (the paper), or one per ``"sequence"``.
        site: of a GRU's noise: on what its gates ``"read"``, or on its whole ``"state"``. Of an
            affine cell's: ``"increment"``, ``"output"`` or ``"state"``, as in :func:`noisin.scan`.
        generator: the random stream to draw from; None is torch's global one.
        owner: the name of what is configured, for messages.

    >>> Injection(layers=[2, 0]).layers
    (0, 2)
    """

    noise: Any = None
    mode: Mode = "multiplicative"
    feedback: bool = True
    layers: NoisyLayers = "all"
    share: Share = "step"
    site: AnySite = "read"
    generator: Generator | None = None
    owner: str = field(default="Injection", repr=False, compare=False)

    def __post_init__(self) -> None:
        one_of(f"{self.owner}: mode", self.mode, get_args(Mode))
        one_of(f"{self.owner}: feedback", self.feedback, (True, False))
        one_of(f"{self.owner}: share", self.share, get_args(Share))
        checks.require_generator(self.owner, self.generator)
        object.__setattr__(self, "noise", _checked_noise(self.noise))
        self._check_bias()
        object.__setattr__(self, "layers", self._checked_layers())

    def _check_bias(self) -> None:
        if isinstance(self.noise, tuple) and any(isinstance(law, Biased) for law in self.noise):
            raise InvalidValue(
                f"{self.owner}: biased noise is the same in all layers with noise, got one per "
                f"layer. Give one noise, and choose its layers with noisy_layers."
            )
        if isinstance(self.noise, Biased) and self.mode != "multiplicative":
            raise InvalidValue(
                f"{self.owner}: biased noise is a factor of another mean, so mode must be "
                f"'multiplicative', got {self.mode!r}."
            )

    def _checked_layers(self) -> NoisyLayers:
        layers = self.layers
        named = isinstance(layers, str) and layers in ("all", "last")
        if not named and not _layer_numbers(layers):
            raise InvalidValue(
                f"{self.owner}: noisy_layers must be 'all' or 'last', or the numbers of the layers "
                f"with noise, such as [0, 1], got {shown(layers)}."
            )
        if isinstance(self.noise, tuple) and layers != "all":
            raise InvalidValue(
                f"{self.owner}: noise given per layer states which layers have it, so "
                f"noisy_layers must be 'all', got {shown(layers)}. Use None for a layer without "
                f"noise, or give it one noise."
            )
        return layers if named else tuple(sorted({*layers}))

    def require_layers(self, num_layers: int) -> None:
        """Raise unless the settings fit a stack of so many layers."""
        if isinstance(self.noise, tuple) and len(self.noise) != num_layers:
            raise InvalidValue(
                f"{self.owner}: noise given per layer needs {num_layers} entries (num_layers), got "
                f"{len(self.noise)}. Use None for a layer without noise."
            )
        if isinstance(self.layers, tuple) and self.layers and self.layers[-1] >= num_layers:
            raise InvalidValue(
                f"{self.owner}: noisy_layers must be in 0 ... {num_layers - 1}, the numbers of the "
                f"layers, got {list(self.layers)}."
            )

    def laws(self, num_layers: int) -> Sequence[Noise | None]:
        """The noise of each layer of a stack, were it to have some."""
        return self.noise if isinstance(self.noise, tuple) else (self.noise,) * num_layers

    def places(self, num_layers: int, given: bool = False) -> list[int]:
        """The layers of a stack that have noise. Noise that is ``given`` does not need a law."""
        layers: Collection[int] = range(num_layers)
        if self.layers == "last":
            layers = (num_layers - 1,)
        elif self.layers != "all":
            layers = self.layers
        laws = self.laws(num_layers)
        free = given and self.noise is None
        return [k for k in layers if free or laws[k] is not None]

    def of_layer(self, k: int, num_layers: int) -> Injection:
        """The settings of the k-th layer where each layer is a separate module."""
        placed = replace(self, noise=None).places(num_layers, given=True)
        noise = self.laws(num_layers)[k]
        return replace(self, noise=noise, layers="all" if k in placed else ())

    def with_unchecked_noise(self, noise: Any) -> Injection:
        """The same with a stand-in that need not be centred, to analyse a model with."""
        other = copy(self)
        object.__setattr__(other, "noise", noise)
        return other


def _checked_noise(noise: Any) -> Noises:
    if isinstance(noise, list | tuple):
        return tuple(None if law is None else validate(law) for law in noise)
    return None if noise is None else validate(noise)


def _layer_numbers(layers: object) -> bool:
    return isinstance(layers, list | tuple | set | frozenset | range) and all(
        isinstance(k, int) and not isinstance(k, bool) and k >= 0 for k in layers
    )


def setting(name: str) -> Any:
    """A setting of a module's injection, as an attribute of the module."""

    def read(self: Injected) -> Any:
        return getattr(self.injection, name)

    def change(self: Injected, value: Any) -> None:
        self._configure(replace(self.injection, **{name: value}))

    return property(read, change)


class Injected(Stochastic):
    """A module that injects noise while it trains, or whenever it is switched on.

    ``injection`` has all settings; each can also be read and changed as an attribute.
    """

    injection: Injection
    noise: Noises = setting("noise")
    noise_mode: Mode = setting("mode")
    feedback: bool = setting("feedback")
    share: Share = setting("share")
    generator: Generator | None = setting("generator")
    _noise_switch: bool | None  # None follows train() and eval()
    _sites: ClassVar[tuple[str, ...]] = get_args(Site)

    def _configure(self, injection: Injection) -> None:
        one_of(f"{injection.owner}: site", injection.site, self._sites)
        self._require(injection)
        self.injection = injection
        self._noise_switch = self.__dict__.get("_noise_switch")

    def _require(self, injection: Injection) -> None:
        """Raise unless the module can have these settings."""
        if isinstance(injection.noise, tuple):
            validate(list(injection.noise))  # raises: this is not one noise

    def __getstate__(self) -> dict[str, Any]:
        # A switch belongs to the `with` that set it: a copy made inside must not keep it.
        state = {**super().__getstate__(), "_noise_switch": None}  # type: ignore[no-untyped-call]
        state.pop("_source", None)  # nor must it keep the record of a replay
        return state

    def _warn_of_risks(self) -> None:
        """Warn of what is known to fail with this noise; called when a module first gets some."""

    def _noise_is_on(self) -> bool:
        return self.training if self._noise_switch is None else self._noise_switch

    def _noise_acts(self) -> bool:
        """Whether something is injected: noise, or with the noise off what a biased one leaves."""
        noise = self.injection.noise
        return noise is not None and (self._noise_is_on() or at_rest(noise) is not None)

    def _draw(
        self, noise: Noise, shape: Sequence[int], like: Tensor, shared: bool = False
    ) -> Tensor:
        rest = None if self._noise_is_on() else at_rest(noise)
        return super()._draw(noise if rest is None else rest, shape, like, shared)

    def __prepare_scriptable__(self) -> Any:
        """Refuse torch.jit.script, which would drop the noise."""
        raise Unsupported(
            f"{type(self).__name__}: torch.jit.script cannot contain noise. To deploy the clean "
            f"RNN, script noisin.revert(copy.deepcopy(model)), or use torch.export in eval()."
        )

    @property
    def qconfig(self) -> Any:
        """Torch's quantization gives every module this attribute: here it raises an error.

        It knows the modules to quantize by their exact class, and would leave this one as it is.
        """
        raise AttributeError("qconfig")

    @qconfig.setter
    def qconfig(self, _: Any) -> None:
        raise Unsupported(
            f"{type(self).__name__}: torch's quantization does not know noisin's modules, and "
            f"would leave this one as it is. Quantize the clean model: "
            f"noisin.revert(copy.deepcopy(model))."
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
            GrowingNoise,
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
            f"set_noise: {type(model).__name__} contains no noise-injected module. "
            f"Convert it first: noisin.convert(model, noise=...)."
        )
    changed = [replace(module.injection, noise=noise) for module in modules]
    for module, injection in zip(modules, changed, strict=True):
        module._require(injection)
    for module, injection in zip(modules, changed, strict=True):
        first = module.noise is None
        module.injection = injection
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
