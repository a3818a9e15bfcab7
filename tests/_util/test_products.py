"""Products by the fastest library: each candidate is right, and the choice is kept."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from noisin._util import products
from noisin._util.products import ONEDNN, Candidate, Products, choice_of, mkl, text_of, using
from noisin.errors import InvalidValue
from noisin.likelihoods._chunked import HEAD
from noisin.likelihoods.linear import linear_nll
from noisin.recurrent.kernels.products import LAYER
from tests.pairwise import table

LAYOUTS = {
    "rows": lambda t: t,
    "columns": lambda t: t.t().contiguous().t(),
    "part of rows": lambda t: torch.cat([t, t], dim=1)[:, : t.shape[1]],
}
SHAPES = [(1, 1, 1), (7, 5, 17), (97, 321, 50), (2100, 3, 4)]
KINDS = [(part, kind) for part in (LAYER, HEAD) for kind in part.kinds]


@pytest.mark.parametrize(
    ("name", "kind", "shape", "a", "b", "dtype"),
    table(
        ["mkl", "onednn", "c"], KINDS, SHAPES, list(LAYOUTS), list(LAYOUTS),
        [torch.float32, torch.float64],
    ),
)  # fmt: skip
def test_every_candidate_is_the_product(
    name: str, kind: tuple[Products, str], shape: tuple[int, ...], a: str, b: str,
    dtype: torch.dtype,
) -> None:  # fmt: skip
    (part, which), (M, K, N) = kind, shape
    left = LAYOUTS[a](torch.randn(M, K, dtype=dtype))
    right = LAYOUTS[b](torch.randn(K, N, dtype=dtype))
    with using(dict.fromkeys(part.names(), name)):
        found = part(which, left, right)
        total = torch.ones(M, 2 * N, dtype=dtype)  # of which a part is added to, in place
        part.add(which, total[:, :N], left, right)
    exact = (left.double() @ right.double()).to(dtype)
    assert_close(found, exact, rtol=1e-4, atol=1e-4)
    assert found.is_contiguous()
    assert_close(total[:, :N], 1 + exact, rtol=1e-4, atol=1e-4)
    assert bool((total[:, N:] == 1).all())


def test_this_torch_has_the_private_name_of_onednn() -> None:
    if not torch.backends.mkldnn.is_available():
        pytest.skip("torch was built without oneDNN")
    assert products.onednn_runs(torch.ones(1, 1), torch.ones(1, 1))


def test_without_that_name_torch_computes_the_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "hasattr", lambda *_: False, raising=False)
    assert not products.onednn_runs(torch.ones(1, 1), torch.ones(1, 1))
    with using(dict.fromkeys(HEAD.names(), "onednn")):
        assert_close(HEAD("logits", torch.ones(2, 3), torch.ones(3, 2)), torch.full((2, 2), 3.0))


def slow(a: Tensor, b: Tensor) -> Tensor:
    return torch.stack([mkl(a, b) for _ in range(10)])[0]


def toy(default: Callable[..., Tensor] = mkl, name: str = "onednn") -> Products:
    """A part with one kind of product and one other candidate."""
    other = Candidate(mkl, lambda *_: True)
    return Products(
        "toy", {"only": default}, {name: other}, lambda *_: (torch.ones(64, 64),) * 2, lambda: name
    )


def test_the_fastest_is_chosen_and_the_default_in_doubt() -> None:
    assert set(toy(default=slow).measure().values()) == {"onednn"}
    same = Candidate(slow, lambda *_: True)
    doubtful = Products("toy", {"only": mkl}, {"c": same}, lambda *_: (torch.ones(64, 64),) * 2)
    assert set(doubtful.measure().values()) == {"mkl"}


@pytest.fixture
def automatic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, and nothing that fixes the choice."""
    monkeypatch.setenv("NOISIN_CACHE", str(tmp_path))
    monkeypatch.delenv("NOISIN_GEMM")
    return tmp_path / "kernels"


def test_it_is_measured_once_and_remembered(automatic: Path) -> None:
    first = toy(default=slow).choice()
    (kept,) = automatic.glob("toy-products-*.json")
    assert json.loads(kept.read_text()) == first
    kept.write_text(json.dumps(dict.fromkeys(first, "c")))
    assert set(toy().choice().values()) == {"c"}, "another process takes what is remembered"
    assert toy(name="c").choice(), "another key is measured on its own"
    assert len(list(automatic.glob("*.json"))) == 2


@pytest.mark.parametrize("damage", ["", "{", "[1]", "\x00"])
def test_what_is_damaged_is_measured_again(
    damage: str, automatic: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(products, "ROUNDS", 1)  # whatever it finds is overwritten
        toy().choice()
    (kept,) = automatic.glob("*.json")
    kept.write_text(damage)
    assert set(toy(default=slow).choice().values()) == {"onednn"}


def test_without_a_cache_it_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOISIN_GEMM")
    monkeypatch.setenv("NOISIN_CACHE", "/dev/null/nowhere")
    assert set(toy(default=slow).choice().values()) == {"mkl"}


@pytest.mark.long
def test_processes_that_start_together_agree(automatic: Path) -> None:
    code = (
        "from noisin._util import products; products.ROUNDS = 1\n"
        "from noisin.likelihoods._chunked import HEAD; print(HEAD.choice())"
    )
    both = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert len({process.communicate()[0] for process in both}) == 1


def test_the_environment_fixes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, expected in (("c", "c"), ("only-small=onednn", "onednn")):
        monkeypatch.setenv("NOISIN_GEMM", text)
        assert toy().choice()["only-small"] == expected
    for wrong in ("blas", "only-small=blas"):
        monkeypatch.setenv("NOISIN_GEMM", wrong)
        with pytest.raises(InvalidValue, match="NOISIN_GEMM.*must be.*got 'blas'"):
            toy().choice()


def test_text_and_back() -> None:
    choice = LAYER.choice()
    assert choice_of(text_of(choice)) == choice


def test_the_prediction_by_onednn_has_the_same_gradients() -> None:
    z, V, bias = (
        t.requires_grad_() for t in (torch.randn(6, 5), torch.randn(5, 9), torch.randn(9))
    )
    x, found = torch.randint(9, (6,)), []
    for name in ("mkl", "onednn"):
        assert ONEDNN.runs(z, V)
        with using(dict.fromkeys(HEAD.names(), name)):
            loss = linear_nll(z, V, x, bias, chunk_size=4, reduction="mean")
            found.append([loss, *torch.autograd.grad(loss, (z, V, bias))])
    assert_close(*found)
