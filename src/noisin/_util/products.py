"""Products of matrices by the fastest library for them on this machine.

Torch's own product is that of MKL on x86, which is slow on some processors, while its LSTM is
computed by oneDNN. Which of the candidates is fastest depends on the processor, the kind of product
and its size. So they are measured once per machine and number of threads, and the choice is
remembered in the cache, beside the compiled kernel.

The choice is part of the arithmetic: candidates round differently. It is fixed within a process and
recorded with a run, which keeps it when it is continued. ``NOISIN_GEMM`` fixes it: a candidate for
all products (``mkl``, ``onednn`` or ``c``), or a choice as :func:`text_of` writes it. ``auto``, the
default, measures.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from noisin._util import checks, processor, trust
from noisin._util.wording import shown

Product = Callable[..., Tensor]  # a @ b + bias, in `out` if that is possible
Choice = Mapping[str, str]  # of a candidate for "kind-size"

DEFAULT = "mkl"
CHOICES = ("auto", DEFAULT, "onednn", "c")
SIZES = {"small": 2**26, "medium": 2**29, "large": 2**31, "huge": None}  # multiply-adds, fewer than
ROUNDS, LEAST_ROUNDS = 15, 5
SECONDS = 0.004  # of a measurement, at least
BUDGET = 0.5  # seconds for all candidates of a product, unless so few rounds take longer
CLEARLY = 0.97  # of the time of the default: what is not clearly faster is not worth a change
_fixed: ContextVar[Choice | None] = ContextVar("noisin_products", default=None)


def mkl(a: Tensor, b: Tensor, bias: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """Torch's own product."""
    return torch.mm(a, b, out=out) if bias is None else torch.addmm(bias, a, b, out=out)


def onednn(a: Tensor, b: Tensor, bias: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """OneDNN's product, on views of any layout; it always allocates its result."""
    del out
    product: Tensor = torch.ops.mkldnn._linear_pointwise(a, b.t(), bias, "none", [], "")
    return product


def onednn_runs(a: Tensor, b: Tensor) -> bool:
    """Whether oneDNN multiplies these."""
    return (
        a.dtype == b.dtype == torch.float32
        and a.device.type == b.device.type == "cpu"
        and a.numel() > 0
        and b.numel() > 0
        and bool(torch.backends.mkldnn.enabled)
        and _has_onednn()
    )


def _has_onednn() -> bool:
    """Whether this torch has oneDNN, and still its private name for the product."""
    available = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return bool(available) and hasattr(torch.ops.mkldnn, "_linear_pointwise")


@dataclass(frozen=True)
class Candidate:
    """A way to compute a product, and whether it can compute a given one."""

    product: Product
    runs: Callable[[Tensor, Tensor], bool]


ONEDNN = Candidate(onednn, onednn_runs)


@dataclass(frozen=True)
class Products:
    """The products of one part of a model.

    Args:
        name: the name of the part.
        kinds: torch's own product for each kind, arranged as is fastest.
        candidates: the others, by name.
        examples: for each kind and size, two matrices to measure with.
        key: what the candidates depend on besides the processor and torch.
    """

    name: str
    kinds: Mapping[str, Product]
    candidates: Mapping[str, Candidate]
    examples: Callable[[str, str], tuple[Tensor, Tensor]]
    key: Callable[[], str] = str
    _choices: dict[tuple[str, int], Choice] = field(default_factory=dict, compare=False, repr=False)

    def __call__(self, kind: str, a: Tensor, b: Tensor, **options: Tensor | None) -> Tensor:
        """``a @ b`` by the candidate that is chosen for its kind and size.

        With ``bias=`` it is added to each row; the result may be in ``out=``, or elsewhere.
        """
        candidate = self._candidate(kind, a, b)
        product = self.kinds[kind] if candidate is None else candidate.product
        return product(a, b, **options)

    def add(self, kind: str, total: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """``total + a @ b`` in place, likewise."""
        candidate = self._candidate(kind, a, b)
        return total.addmm_(a, b) if candidate is None else total.add_(candidate.product(a, b))

    def _candidate(self, kind: str, a: Tensor, b: Tensor) -> Candidate | None:
        """The one that is chosen for this product, or None for torch's own."""
        found = self.candidates.get(self.choice()[f"{kind}-{size_of(a, b)}"])
        return found if found is not None and found.runs(a, b) else None

    def choice(self) -> Choice:
        """The candidate for each kind and size, with the present number of threads."""
        fixed = _fixed.get()
        if fixed is not None:
            return _complete(fixed, self.names())
        setting = os.environ.get("NOISIN_GEMM", "auto"), torch.get_num_threads()
        if setting not in self._choices:
            self._choices[setting] = self._found(*setting)
        return self._choices[setting]

    def names(self) -> list[str]:
        """What is chosen for: each kind and size."""
        return [f"{kind}-{size}" for kind in self.kinds for size in SIZES]

    def _found(self, wanted: str, threads: int) -> Choice:
        if "=" in wanted:
            return _complete(choice_of(wanted), self.names())
        checks.one_of("NOISIN_GEMM", wanted, CHOICES)
        if wanted != "auto":
            return dict.fromkeys(self.names(), wanted)
        with suppress(OSError, RuntimeError, trust.Untrusted):  # no cache: measure in no process
            return self._remembered(threads)
        return dict.fromkeys(self.names(), DEFAULT)

    def _remembered(self, threads: int) -> Choice:
        path = self._path(threads)
        try:
            return self._read(path)
        except FileNotFoundError:
            pass
        except ValueError:  # damaged
            path.unlink()
        with tempfile.NamedTemporaryFile("w", dir=path.parent, encoding="utf-8") as file:
            json.dump(self.measure(), file, indent=1)
            file.flush()
            with suppress(FileExistsError):  # the first of several processes decides for all
                os.link(file.name, path)
        return self._read(path)

    def _read(self, path: Path) -> Choice:
        return _complete(json.loads(path.read_text(encoding="utf-8")), self.names())

    def _path(self, threads: int) -> Path:
        facts = [processor.kind(), torch.__version__, str(threads), self.key(), *self.names()]
        digest = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:32]
        return trust.cache_folder("kernels") / f"{self.name}-products-{digest}.json"

    def measure(self) -> Choice:
        """The fastest candidate for each kind and size, measured now."""
        return {
            f"{kind}-{size}": self._fastest(kind, *self.examples(kind, size))
            for kind in self.kinds
            for size in SIZES
        }

    def _fastest(self, kind: str, a: Tensor, b: Tensor) -> str:
        rivals = {DEFAULT: self.kinds[kind]}
        rivals |= {name: c.product for name, c in self.candidates.items() if c.runs(a, b)}
        with torch.no_grad():
            times = {name: [_seconds(product, a, b)] for name, product in rivals.items()}
            start = time.perf_counter()
            for turn in range(ROUNDS):  # interleaved, because the machine drifts
                if turn >= LEAST_ROUNDS and time.perf_counter() - start > BUDGET:
                    break
                for name, product in rivals.items():
                    times[name].append(_seconds(product, a, b))
        # The least time, because other work on the machine only adds to it. A choice that was made
        # on a busy machine is remembered for the idle one.
        least = {name: min(values[1:]) for name, values in times.items()}
        best = min(least, key=least.__getitem__)
        return best if least[best] < CLEARLY * least[DEFAULT] else DEFAULT


def size_of(a: Tensor, b: Tensor) -> str:
    """The class of size of a product, by its multiply-adds.

    >>> size_of(torch.empty(700, 64), torch.empty(64, 256))
    'small'
    """
    work = a.shape[0] * a.shape[1] * b.shape[1]
    return next(size for size, fewer in SIZES.items() if fewer is None or work < fewer)


@contextmanager
def using(choice: Choice) -> Iterator[None]:
    """Context manager: fix the choice, such as that of the record of a run.

    What ``choice`` does not name, or names as a candidate that is missing here, is the default.
    """
    token = _fixed.set(choice)
    try:
        yield
    finally:
        _fixed.reset(token)


def text_of(choice: Choice) -> str:
    """A choice in one line, as records and ``NOISIN_GEMM`` have it.

    >>> text_of({"input-small": "c", "input-large": "mkl"})
    'input-small=c,input-large=mkl'
    """
    return ",".join(f"{name}={candidate}" for name, candidate in choice.items())


def choice_of(text: str, source: str = "NOISIN_GEMM") -> Choice:
    """The choice that a line describes; ``source`` has the line, for messages.

    >>> choice_of("input-small=c,input-large=mkl")
    {'input-small': 'c', 'input-large': 'mkl'}
    """
    pairs = [part.partition("=") for part in text.split(",") if part]
    for name, _, candidate in pairs:
        checks.one_of(f"{source}: {shown(name)}", candidate, CHOICES[1:])
    return {name: candidate for name, _, candidate in pairs}


def _complete(choice: object, names: list[str]) -> Choice:
    """A candidate for each name. Records without huge products have them as large ones."""
    if not isinstance(choice, Mapping):
        raise ValueError("not a choice")
    others = {name: choice.get(name.replace("-huge", "-large"), DEFAULT) for name in names}
    return {name: str(choice.get(name, others[name])) for name in names}


def _seconds(product: Product, a: Tensor, b: Tensor) -> float:
    start, calls = time.perf_counter(), 0
    while (taken := time.perf_counter() - start) < SECONDS or not calls:
        product(a, b)
        calls += 1
    return taken / calls
