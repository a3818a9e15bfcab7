"""The LSTM of a VRNN with its latent variable: the values and the gradients of a loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from noisin._util import states
from noisin.errors import NoisinError
from noisin.likelihoods import Bernoulli
from noisin.models.latent import VRNN, LatentModel
from noisin.models.latent.lstm_chain import ChainSteps, Functions, Operands, lstm_chain
from noisin.models.latent.networks import StepStack, dense
from noisin.noise import Gaussian
from tests.models.latent.test_chain import f, g
from tests.models.latent.test_models import F, N, T, Z, build, noise_for, window

H, K, M, C = 5, 7, 3, 4
KINDS = {
    "clean": Functions(f, g),
    "multiplicative": Functions(f, g),
    "multiplicative, not fed back": Functions(f, g, feedback=False),
    "additive": Functions(f, g, mode="additive"),
    "additive, not fed back": Functions(f, g, "additive", False),
}
EACH = pytest.mark.parametrize("kind", KINDS)


def operands(kind: str, steps: int = T) -> Operands:
    random = torch.Generator().manual_seed(5)

    def draw(*shape: int) -> Tensor:
        drawn = torch.randn(shape, dtype=torch.float64, generator=random)
        return drawn.mul_(0.7).requires_grad_()

    eps = None if kind == "clean" else draw(steps, N, H).detach()
    known = draw(steps, N, 4 * H), draw(steps, N, K), draw(steps, N, Z), eps
    before = draw(N, M), draw(N, H), draw(N, H)
    weights = draw(M + H, 4 * H), draw(H, K), draw(K, C * Z), draw(C * Z), draw(Z, M), draw(M)
    return Operands(*known, *before, *weights)


def by_loop(x: Operands, do: Functions) -> ChainSteps:
    """The equations, one step at a time, by torch's LSTM cell."""
    cell = torch.nn.LSTMCell(1, H, bias=False, dtype=torch.float64)
    carried, c, psi, found = x.h, x.c, x.psi, []
    for t in range(len(x.eta)):
        gates = x.a[t] + psi @ x.A[:M]  # the input of a cell whose weights are the identity
        weights = {"weight_ih": torch.eye(4 * H, dtype=torch.float64), "weight_hh": x.A[M:].t()}
        cell.input_size = 4 * H
        h, c = torch.func.functional_call(cell, weights, (gates, (carried, c)))
        noisy = h
        if x.eps is not None:
            noisy = h + x.eps[t] if do.mode == "additive" else h + h * x.eps[t]
        carried = noisy if do.feedback else h
        o = (f(x.k[t] + noisy @ x.V) @ x.W + x.b).view(N, C, Z)
        psi = f(g(o, x.eta[t]) @ x.E + x.e)
        found.append((o, noisy, psi))
    o, noisy, psi = map(torch.stack, zip(*found, strict=True))
    return ChainSteps(o, noisy, psi, carried, c)


def leaves(x: Operands) -> list[Tensor]:
    return [part for part in x if part is not None and part.requires_grad]


def rebuilt(x: Operands, given: tuple[Tensor, ...]) -> Operands:
    parts = iter(given)
    return Operands(*(next(parts) if p is not None and p.requires_grad else p for p in x))


@EACH
def test_values_and_gradients_are_those_of_a_loop(kind: str) -> None:
    found = []
    for run in lstm_chain, by_loop:
        x = operands(kind)
        steps = run(x, KINDS[kind])
        random = torch.Generator().manual_seed(6)
        weights = [torch.randn(s.shape, dtype=s.dtype, generator=random) for s in steps]
        sum((s * w).sum() for s, w in zip(steps, weights, strict=True)).backward()
        found.append([*steps, *(leaf.grad for leaf in leaves(x))])
    for one, other in zip(*found, strict=True):
        assert one is not None
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("kind", ["multiplicative", "additive, not fed back"])
def test_gradients_numerically_twice_and_in_batches(kind: str) -> None:
    x = operands(kind, steps=2)

    def run(*given: Tensor) -> Any:
        return tuple(lstm_chain(rebuilt(x, given), KINDS[kind]))

    assert torch.autograd.gradcheck(run, leaves(x), check_batched_grad=True, fast_mode=True)
    assert torch.autograd.gradgradcheck(run, leaves(x), fast_mode=True)


def test_noise_may_need_a_gradient() -> None:
    """As that of a law with a learnt scale."""
    found = []
    for run in lstm_chain, by_loop:
        x = operands("multiplicative")
        assert x.eps is not None
        steps = run(x._replace(eps=x.eps.requires_grad_()), KINDS["multiplicative"])
        found.append(torch.autograd.grad(sum(s.square().sum() for s in steps), x.eps)[0])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("learned", ["V", "W", "E"])
def test_second_derivatives_where_few_operands_are_learned(learned: str) -> None:
    """Then some outputs of a single step depend on nothing that is."""
    found = []
    for run in lstm_chain, by_loop:
        x = Operands(*(None if p is None else p.detach() for p in operands("clean", steps=1)))
        leaf = getattr(x, learned).requires_grad_()
        y = sum(s.square().sum() for s in run(x, KINDS["clean"]))
        (slope,) = torch.autograd.grad(y, leaf, create_graph=True)
        found.append(torch.autograd.grad(slope.square().sum(), leaf)[0])
    torch.testing.assert_close(*found)


@pytest.mark.filterwarnings("ignore:.*torch.jit")  # of forward-mode derivatives in torch
def test_transforms() -> None:
    x = operands("multiplicative")

    def loss(a: Tensor) -> Tensor:
        return lstm_chain(x._replace(a=a), KINDS["multiplicative"]).o.square().sum()

    expected = torch.autograd.grad(loss(x.a), x.a)[0]
    torch.testing.assert_close(torch.func.grad(loss)(x.a), expected)
    along = torch.randn_like(x.a)
    _, slope = torch.func.jvp(loss, (x.a,), (along,))
    torch.testing.assert_close(slope, (expected * along).sum())
    several = torch.stack([x.a, 2 * x.a])
    losses = torch.stack([loss(x.a), loss(2 * x.a)])
    torch.testing.assert_close(torch.func.vmap(loss)(several), losses)


def ways_of_a_vrnn(targets: bool = True, **options: Any) -> list[list[Tensor]]:
    """All that the steps give, and all gradients, at once and one by one."""
    found = []
    for steps in VRNN.steps, LatentModel.steps:
        model, batch = build("vrnn", **options), window()
        inputs, _ = model.context(batch, None) if targets else model.prior_context(batch.x, None)
        state = model.initial(inputs[0][0])
        torch.manual_seed(7)
        parts = []
        for _ in range(2):  # from the initial state, and from that of the first window
            step, state = steps(model, inputs, state, noise_for())
            (layer,), psi = state
            parts += [step.z, *step.q, *step.p, step.read, *layer, psi]
        sum(part.square().sum() for part in parts).backward()
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        found.append([*parts, *grads])
    return found


@pytest.mark.parametrize("targets", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"res_q": False},
        {"noise": Gaussian(0.5), "hidden_size": 16},
        {"noise": Gaussian(0.5), "hidden_size": 16, "feedback": False},
        {"noise": Gaussian(0.5), "hidden_size": 16, "mode": "additive"},
        {"noise": Gaussian(0.5), "hidden_size": 16, "share": "sequence"},
        {"noisy_layers": ()},
    ],
    ids=str,
)
def test_the_steps_of_a_vrnn_are_those_one_by_one(options: dict[str, Any], targets: bool) -> None:
    """Of noise, 16 normal variates or a multiple are drawn alike, at once and one by one."""
    for one, other in zip(*ways_of_a_vrnn(targets, **options), strict=True):
        torch.testing.assert_close(one, other)


def test_a_vrnn_has_one_node_for_all_steps() -> None:
    """What makes it fast: the loop is no part of the graph."""
    nodes, seen = [build("vrnn").bound(window()).kl.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is not None and node not in seen:
            seen.add(node)
            nodes += [above for above, _ in node.next_functions]
    names = [node.name() for node in seen]
    assert names.count("_LSTMChainBackward") == 1
    assert len(names) < 100


@pytest.mark.parametrize("options", [{"cell": "gru"}, {"num_layers": 2}], ids=str)
def test_other_cells_and_several_layers_run_one_by_one(options: dict[str, Any]) -> None:
    model = build("vrnn", **options)
    assert isinstance(model, VRNN)
    assert model.layers.only_lstm() is None
    assert model.bound(window()).kl.isfinite().all()


class Half(nn.Linear):
    """Another linear layer."""

    def forward(self, z: Tensor) -> Tensor:
        return 0.5 * super().forward(z)


class Reversed(StepStack):
    """Other steps."""

    def sequence(self) -> Any:
        advance = super().sequence()
        return lambda x, state=None: advance(-x, state)


def replaced(model: VRNN, part: str) -> None:
    """Put something else in the place of a part."""
    linear, cell = model.embed_z[0], model.layers.cells[0]
    sizes = linear.in_features, linear.out_features
    options = {"dtype": linear.weight.dtype}
    if part == "a linear layer of another class":
        model.embed_z[0] = Half(*sizes, **options)
    elif part == "a linear layer without a bias":
        model.embed_z[0] = nn.Linear(*sizes, bias=False, **options)
    elif part == "another network":
        model.embed_z = Half(*sizes, **options)  # type: ignore[assignment]
    elif part == "a cell without biases":
        sizes = cell.input_size, cell.hidden_size
        model.layers.cells[0] = nn.LSTMCell(*sizes, bias=False, **options)
    else:
        model.layers.__class__ = Reversed


@pytest.mark.parametrize(
    "part",
    [
        "a linear layer of another class",
        "a linear layer without a bias",
        "another network",
        "a cell without biases",
        "other steps of the layers",
    ],
)
def test_parts_that_were_replaced_run(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("vrnn")
    assert isinstance(model, VRNN)
    before = model.bound(window(), eta=noise_for()).kl
    replaced(model, part)
    found = model.bound(window(), eta=noise_for()).kl
    monkeypatch.setattr(VRNN, "steps", LatentModel.steps)
    torch.testing.assert_close(found, model.bound(window(), eta=noise_for()).kl)
    assert not torch.equal(found, before)


@pytest.mark.parametrize("name", ["layers.cells.0", "embed_z", "embed_z.0"])
def test_hooks_run(name: str) -> None:
    model, calls = build("vrnn"), []
    expected = model.bound(window(), eta=noise_for()).kl
    model.get_submodule(name).register_forward_hook(lambda *_: calls.append(1))
    torch.testing.assert_close(model.bound(window(), eta=noise_for()).kl, expected)
    assert len(calls) >= T


def test_under_autocast() -> None:
    model, batch = build("vrnn", noise=Gaussian(0.5)).float(), window()
    torch.manual_seed(2)
    expected = model.bound(batch, eta=noise_for().float())
    torch.manual_seed(2)
    with torch.autocast("cpu", torch.bfloat16):
        found = model.bound(batch, eta=noise_for().float())
    torch.testing.assert_close(found.kl.float(), expected.kl, rtol=0.1, atol=0.1)
    (found.kl - found.log_p).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.prior.parameters())


class Halved(VRNN):
    """A step of its own."""

    def sequence(self) -> Any:
        step = super().sequence()

        def halved(inputs: Any, state: Any, eta: Tensor) -> Any:
            found, state = step(inputs, state, eta)
            return found._replace(read=found.read / 2), state

        return halved


class Deeper(VRNN):
    """An embedding of z of its own."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.embed_z = dense(self.z_size, [self.mlp_size, self.mlp_size])


@pytest.mark.parametrize("made", [Halved, Deeper])
def test_subclasses_have_steps_of_their_own(made: Any) -> None:
    torch.manual_seed(0)
    model, batch = made(F, Bernoulli(), hidden_size=H, z_size=Z, mlp_size=M).double(), window()
    (inputs, _), eta = model.context(batch, None), noise_for()
    state = model.initial(inputs[0][0])
    one, other = (
        steps(model, inputs, state, eta)[0].read for steps in (made.steps, LatentModel.steps)
    )
    torch.testing.assert_close(one, other)


def test_a_state_that_does_not_fit() -> None:
    model, batch = build("vrnn"), window()
    _, state = model.log_prob(batch)
    for wrong, message in (
        (states.map(Tensor.float, state), "float32"),
        (states.map(lambda part: part[:1], state), "expected a state of shape"),
    ):
        with pytest.raises(NoisinError, match=message):
            model.bound(batch, wrong)
