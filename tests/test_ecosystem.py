"""The rest of PyTorch: each of its facilities works with the noisy RNNs, or is refused by name."""

from __future__ import annotations

import copy
import io
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pack_sequence
from torch.utils.checkpoint import checkpoint

import noisin
from noisin import noise
from noisin.errors import Unsupported
from tests.cases import KINDS, PLAIN, UNFED, Case, F, H

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported")


def as_tuple(state: Any) -> tuple[Tensor, ...]:
    return tuple(state) if isinstance(state, tuple) else (state,)


def through_a_file(rnn: nn.Module) -> nn.Module:
    buffer = io.BytesIO()
    torch.save(rnn, buffer)
    buffer.seek(0)
    loaded: nn.Module = torch.load(buffer, weights_only=False)
    return loaded


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda rnn: pickle.loads(pickle.dumps(rnn)), through_a_file],
    ids=["deepcopy", "pickle", "torch.save"],
)
@pytest.mark.parametrize("case", PLAIN + UNFED, ids=str)
def test_copies(case: Case, copied: Any) -> None:
    """A copy has the weights, the noise, the mode and a generator in the same state of its own."""
    rnn = case.make(generator=torch.Generator().manual_seed(7), share="sequence")
    twin = copied(rnn)
    assert repr(twin) == repr(rnn)
    x = torch.randn(3, 2, F, dtype=torch.float64)
    assert torch.equal(rnn(x)[0], twin(x)[0]), "the same stream, drawn from independently"
    assert torch.equal(rnn.eval()(x)[0], twin.eval()(x)[0])
    twin(x)[0].sum().backward()
    assert all(p.grad is None for p in rnn.parameters())


@pytest.mark.parametrize("case", PLAIN + UNFED, ids=str)
def test_train_eval_train_and_an_optimizer(case: Case) -> None:
    """Weights that an optimizer changes are the weights of both paths, again and again."""
    rnn = case.make()
    x, eps = torch.randn(3, 2, F, dtype=torch.float64), case.eps(3, 2)
    optimizer = torch.optim.SGD(rnn.parameters(), lr=0.1)
    for _ in range(3):
        rnn.train()
        optimizer.zero_grad()
        rnn(x)[0].pow(2).sum().backward()
        optimizer.step()
        rnn.eval()
        torch.testing.assert_close(rnn(x)[0], rnn(x, eps=0 * eps)[0])
    rnn.float()
    assert rnn(x.float())[0].dtype == rnn.train()(x.float())[0].dtype == torch.float32


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_autocast_gives_torchs_dtype(kind: str, training: bool, packed: bool) -> None:
    case = Case(kind, bidirectional=True)
    ours = case.make(dtype=torch.float32).train(training)
    x = pack_sequence([torch.randn(n, F) for n in (3, 1)]) if packed else torch.randn(3, 2, F)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        try:
            theirs = (nn.RNN(F, H) if kind == "sigmoid" else case.make_torch(dtype=torch.float32))(
                x
            )
            dtypes = [t.dtype for t in (theirs[0].data, *as_tuple(theirs[1]))]
        except RuntimeError as error:
            # Torch's LSTM needs a processor with bfloat16; elsewhere only the noisy loop runs.
            assert "primitive descriptor" in str(error)  # noqa: PT017
            if not training:
                pytest.skip("torch's own LSTM does not run under autocast on this processor")
            dtypes = [torch.bfloat16] * 3
        z, state = ours(x)
        assert [t.dtype for t in (z.data, *as_tuple(state))] == dtypes
    (z.data if packed else z).float().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in ours.parameters())


def test_autocast_leaves_float64_alone() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z, _ = Case("lstm").make()(torch.randn(3, 2, F, dtype=torch.float64))
    assert z.dtype == torch.float64


class TestGradientCheckpointing:
    @pytest.mark.parametrize("reentrant", [True, False])
    @pytest.mark.parametrize("case", PLAIN + UNFED, ids=str)
    def test_the_global_stream_is_rewound(self, case: Case, reentrant: bool) -> None:
        rnn = case.make()
        x = torch.randn(3, 2, F, dtype=torch.float64, requires_grad=True)
        gradients = []
        for run in (rnn, lambda x: checkpoint(rnn, x, use_reentrant=reentrant)):
            torch.manual_seed(3)
            rnn.zero_grad()
            z, _ = run(x)
            torch.randn(10)  # whatever else draws before the backward pass
            z.pow(2).sum().backward()
            gradients.append([p.grad.clone() for p in rnn.parameters()])
        for plain, checkpointed in zip(*gradients, strict=True):
            assert torch.equal(plain, checkpointed)

    @pytest.mark.parametrize("reentrant", [True, False])
    @pytest.mark.parametrize("case", PLAIN + UNFED, ids=str)
    def test_a_generator_of_ones_own_is_refused(self, case: Case, reentrant: bool) -> None:
        rnn = case.make(generator=torch.Generator())
        x = torch.randn(3, 2, F, dtype=torch.float64, requires_grad=True)
        z, _ = checkpoint(rnn, x, use_reentrant=reentrant)
        with pytest.raises(Unsupported, match="gradient checkpointing recomputes"):
            z.sum().backward()

    def test_given_noise_is_right(self) -> None:
        case = Case("lstm")
        rnn, eps = case.make(generator=torch.Generator()), case.eps(3, 2)
        x = torch.randn(3, 2, F, dtype=torch.float64, requires_grad=True)
        z, _ = checkpoint(lambda x: rnn(x, eps=eps), x, use_reentrant=False)
        z.sum().backward()
        got, x.grad = x.grad, None
        rnn(x, eps=eps)[0].sum().backward()
        assert torch.equal(got, x.grad)


class Model(nn.Module):
    def __init__(self, rnn: nn.Module) -> None:
        super().__init__()
        self.rnn = rnn

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(x)[0]


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize("training", [True, False])
def test_script_is_refused(training: bool) -> None:
    model = nn.Sequential(Case("lstm").make()).train(training)
    with pytest.raises(Unsupported, match="torch.jit.script cannot contain noise"):
        torch.jit.script(model)
    assert type(model[0]) is noisin.LSTM
    with pytest.raises(Unsupported, match="torch.jit.script"):
        torch.jit.script(noisin.LSTMCell(F, H))
    reverted = Model(noisin.revert(copy.deepcopy(model))[0]).eval()
    x = torch.randn(3, 2, F, dtype=torch.float64)
    assert torch.equal(torch.jit.script(reverted)(x), model.eval()[0](x)[0])


class TestFunctionalTransforms:
    @pytest.mark.parametrize("case", PLAIN + UNFED, ids=str)
    def test_functional_call_and_grad(self, case: Case) -> None:
        rnn = case.make()
        x, eps = torch.randn(3, 2, F, dtype=torch.float64), case.eps(3, 2)

        def loss(weights: dict[str, Tensor]) -> Tensor:
            return torch.func.functional_call(rnn, weights, (x,), {"eps": eps})[0].pow(2).sum()

        weights = {name: p.detach() for name, p in rnn.named_parameters()}
        gradients = torch.func.grad(loss)(weights)
        loss(dict(rnn.named_parameters())).backward()
        for name, p in rnn.named_parameters():
            torch.testing.assert_close(gradients[name], p.grad)
        zero = {name: 0 * p for name, p in weights.items()}
        assert not torch.equal(loss(zero), loss(weights))
        for training in (True, False):  # in eval() the other weights reach torch's kernel too
            rnn.train(training)
            z = torch.func.functional_call(rnn, zero, (x,))[0]
            if case.kind != "sigmoid":
                assert not z.any()
            elif not training:
                assert torch.equal(z, torch.full_like(z, 0.5))

    @pytest.mark.parametrize("kind", KINDS)
    def test_per_example_gradients_by_vmap(self, kind: str) -> None:
        case = Case(kind)
        rnn = case.make()
        xs, eps = torch.randn(4, 3, F, dtype=torch.float64), case.eps(3, 4)

        def loss(weights: dict[str, Tensor], x: Tensor, eps: Tensor) -> Tensor:
            return torch.func.functional_call(rnn, weights, (x,), {"eps": eps})[0].pow(2).sum()

        weights = {name: p.detach() for name, p in rnn.named_parameters()}
        each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 2))(weights, xs, eps)
        for n in range(4):
            alone = torch.func.grad(loss)(weights, xs[n], eps[:, :, n])
            for name, gradient in alone.items():
                torch.testing.assert_close(each[name][n], gradient)

    @pytest.mark.parametrize("kind", KINDS)
    def test_vmap_draws_noise_as_its_randomness_says(self, kind: str) -> None:
        rnn, x = Case(kind).make(), torch.randn(3, F, dtype=torch.float64)
        xs = x.expand(4, 3, F)
        for randomness, same in (("same", True), ("different", False)):
            z = torch.func.vmap(lambda x: rnn(x)[0], randomness=randomness)(xs)
            assert torch.allclose(z[0], z[1]) == same


def _train_a_replica(rank: int, folder: str) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2
    )
    torch.manual_seed(0)
    rnn = noisin.LSTM(F, H, num_layers=2, noise=noise.Gaussian(0.5))
    replica = DistributedDataParallel(rnn)
    torch.manual_seed(100 + rank)  # each rank has noise of its own
    x = torch.randn(3, 2, F)
    z, _ = replica(x)
    z.pow(2).sum().backward()
    torch.save({"z": z.detach(), "grad": [p.grad for p in rnn.parameters()]}, f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()
    os._exit(0)  # before the destructors of gloo, which have been seen to wait without end


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of fork in newer Pythons
def test_distributed_data_parallel(tmp_path: Path) -> None:
    """Two processes draw noise of their own and share their gradients."""
    mp.start_processes(  # type: ignore[attr-defined]
        _train_a_replica, (str(tmp_path),), nprocs=2, start_method="fork"
    )
    one, two = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    assert not torch.equal(one["z"], two["z"])
    for a, b in zip(one["grad"], two["grad"], strict=True):
        assert torch.equal(a, b)
    alone = []
    for rank in (0, 1):
        torch.manual_seed(0)
        rnn = noisin.LSTM(F, H, num_layers=2, noise=noise.Gaussian(0.5))
        torch.manual_seed(100 + rank)
        rnn(torch.randn(3, 2, F))[0].pow(2).sum().backward()
        alone.append([p.grad for p in rnn.parameters()])
    for a, b, shared in zip(*alone, one["grad"], strict=True):
        torch.testing.assert_close((a + b) / 2, shared)


@pytest.mark.parametrize("case", PLAIN + UNFED, ids=str)
def test_parametrized_and_pruned_weights(case: Case) -> None:
    """Weights that other code computes are the ones that are used, with noise and without."""
    rnn, x = case.make(), torch.randn(3, 2, F, dtype=torch.float64)
    before = rnn.eval()(x)[0]
    nn.utils.parametrizations.weight_norm(rnn, "weight_hh_l0")
    torch.testing.assert_close(rnn(x)[0], before)
    with torch.no_grad():
        rnn.parametrizations.weight_hh_l0.original0.zero_()  # the norm, so the weight is zero
    after = rnn(x)[0]
    assert not torch.allclose(after, before)
    torch.testing.assert_close(rnn(x, eps=0 * case.eps(3, 2))[0], after)
    rnn.train()(x)[0].sum().backward()
    assert rnn.parametrizations.weight_hh_l0.original0.grad is not None
