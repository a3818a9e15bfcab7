"""``torch.compile`` and ``torch.export``: one node per layer and direction, whatever T is.

Torch refuses to trace any RNN, its own too, unless ``torch._dynamo.config.allow_rnn`` is set. Then
whole graphs can be compiled; otherwise the RNN runs as it does without the compiler.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch.fx import GraphModule
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.testing import assert_close

import noisin
from noisin import noise
from noisin.errors import Unsupported
from noisin.recurrent import kernels
from tests.cases import KINDS, Case, F
from tests.pairwise import PRODUCTS, table

pytestmark = pytest.mark.filterwarnings("ignore")  # of the compiler's own
DTYPE = torch.float64


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def allow_rnn() -> Iterator[None]:
    with torch._dynamo.config.patch(allow_rnn=True):
        yield


class Model(nn.Module):
    def __init__(self, rnn: nn.Module) -> None:
        super().__init__()
        self.rnn = rnn

    def forward(self, x: Tensor, eps: Tensor | None = None) -> Tensor:
        z: Tensor = self.rnn(x, eps=eps)[0]
        return z.sin()


class Graphs:
    """A backend that runs graphs as they are, with their backward, and keeps them."""

    def __init__(self) -> None:
        self.forward: list[GraphModule] = []
        self.backward: list[GraphModule] = []
        self.backend = aot_autograd(
            fw_compiler=self._keeping(self.forward), bw_compiler=self._keeping(self.backward)
        )

    @staticmethod
    def _keeping(kept: list[GraphModule]) -> Callable[..., Any]:
        def compiler(graph: GraphModule, _: Any) -> Any:
            kept.append(graph)
            return graph.forward

        return compiler


def count(graph: GraphModule | torch.fx.Graph, name: str = "") -> int:
    """The number of a graph's nodes whose target contains this name."""
    nodes = graph.graph.nodes if isinstance(graph, GraphModule) else graph.nodes
    return sum(name in str(node.target) for node in nodes)


def inputs(case: Case, T: int, N: int) -> tuple[Tensor, Tensor]:
    return torch.randn(T, N, F, dtype=DTYPE), case.eps(T, N)


# Torch's checks of the operator have all cells: one with a carry and one without suffice here.
TRACED = tuple(KINDS) if PRODUCTS else ("lstm", "tanh")
TRAINED = table(TRACED, ("multiplicative", "additive"), (False, True), (None, True))
TRAINED = TRAINED if PRODUCTS else TRAINED[::2]


@pytest.mark.long
@pytest.mark.usefixtures("allow_rnn")
@pytest.mark.parametrize("row", TRAINED, ids=lambda row: "-".join(map(str, row)))
def test_training_by_a_whole_graph_is_right(row: Any) -> None:
    """Values and gradients, at the first batch size, at another, and at another T."""
    kind, mode, bidirectional, dynamic = row
    case = Case(kind, mode, bidirectional=bidirectional, num_layers=1)
    model = Model(case.make())
    graphs = Graphs()
    compiled = torch.compile(model, backend=graphs.backend, fullgraph=True, dynamic=dynamic)
    for T, N in ((3, 4), (3, 5), (6, 2)):
        x, eps = inputs(case, T, N)
        leaves = [x.requires_grad_(), *model.parameters()]
        want, got = model(x, eps), compiled(x, eps)
        assert_close(got, want)
        gradients = [torch.autograd.grad(z.sum(), leaves) for z in (got, want)]
        assert_close(*gradients)
    for graph, back in zip(graphs.forward, graphs.backward, strict=True):
        assert count(graph, "noisin.layer.") == count(back, "noisin.layer_backward.")
        assert count(graph, "noisin.layer.") == case.directions


@pytest.mark.parametrize("allowed", [False, True])
def test_training_with_drawn_noise_at_several_batch_sizes(allowed: bool) -> None:
    """The second size makes the batch symbolic, which the noise is drawn for."""
    model = Model(noisin.LSTM(F, 4, noise=noise.Gaussian(0.5)))
    compiled = torch.compile(model, backend="aot_eager")
    with torch._dynamo.config.patch(allow_rnn=allowed):
        for N in (2, 3, 5):
            compiled(torch.randn(10, N, F)).sum().backward()
            assert model.rnn.weight_hh_l0.grad is not None


@pytest.mark.usefixtures("allow_rnn")
def test_the_graph_does_not_grow_with_time() -> None:
    sizes = []
    for T in (5, 50):
        torch._dynamo.reset()
        graphs = Graphs()
        rnn = noisin.LSTM(F, 4, noise=noise.Gaussian(0.5))
        torch.compile(Model(rnn), backend=graphs.backend, fullgraph=True)(
            torch.randn(T, 3, F)
        ).sum().backward()
        sizes.append([count(graph) for graph in (*graphs.forward, *graphs.backward)])
    assert sizes[0] == sizes[1]
    assert len(sizes[0]) == 2


@pytest.mark.usefixtures("allow_rnn")
@pytest.mark.parametrize(("dynamic", "most"), [(None, 3), (True, 1)])
def test_other_sizes_do_not_compile_again_and_again(dynamic: bool | None, most: int) -> None:
    """By default once for each dimension that turns out to vary."""
    graphs: list[GraphModule] = []

    def backend(graph: GraphModule, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    rnn = noisin.GRU(F, 4, noise=noise.Bernoulli(0.5), share="sequence")  # itself, not in a model
    compiled = torch.compile(rnn, backend=backend, fullgraph=True, dynamic=dynamic)
    for T, N in ((5, 4), (5, 7), (6, 7), (8, 9), (50, 3), (20, 2), (7, 11)):
        assert compiled(torch.randn(T, N, F))[0].shape == (T, N, 4)
    assert 0 < len(graphs) <= most


@pytest.mark.usefixtures("allow_rnn")
def test_noise_is_drawn_anew_in_each_call() -> None:
    model = Model(Case("lstm", num_layers=1).make())
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    x = torch.randn(3, 2, F, dtype=DTYPE)
    assert not torch.equal(compiled(x), compiled(x))
    torch.manual_seed(5)
    want = model(x)
    torch.manual_seed(5)
    assert_close(compiled(x), want)


@pytest.mark.usefixtures("allow_rnn")
def test_without_noise_it_is_torchs_operator() -> None:
    graphs: list[GraphModule] = []

    def backend(graph: GraphModule, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    model = Model(Case("lstm").make())
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    x = torch.randn(3, 2, F, dtype=DTYPE)
    with noisin.noise_off(model):
        assert torch.equal(compiled(x), model(x))
    model.eval()
    assert torch.equal(compiled(x), model(x))
    assert [(count(graph, "noisin"), count(graph, "lstm")) for graph in graphs] == [(0, 1)] * 2


@pytest.mark.usefixtures("allow_rnn")
def test_packed_sequences() -> None:
    rnn = Case("lstm", bidirectional=True, num_layers=1).make()
    sequences = [torch.randn(n, F, dtype=DTYPE) for n in (2, 4, 1)]
    packed = pack_sequence(sequences, enforce_sorted=False)

    def run(packed: PackedSequence) -> list[Tensor]:
        output, (h, c) = rnn(packed)
        return [output.data, h, c]

    found = []
    for function in (run, torch.compile(run, backend="aot_eager", fullgraph=True)):
        torch.manual_seed(3)
        found.append(function(packed))
    assert_close(*found)


@pytest.mark.usefixtures("allow_rnn")
def test_transforms_inside_a_compiled_function() -> None:
    """They run the reference, as without the compiler."""
    case = Case("gru-read", num_layers=1)
    rnn = case.make()
    xs, eps = torch.randn(4, 3, F, dtype=DTYPE), case.eps(3, 4)

    def each(xs: Tensor, eps: Tensor) -> Tensor:
        def loss(x: Tensor, eps: Tensor) -> Tensor:
            return rnn(x, eps=eps)[0].pow(2).sum()

        gradients: Tensor = torch.func.vmap(torch.func.grad(loss), in_dims=(0, 2))(xs, eps)
        return gradients

    assert_close(torch.compile(each, backend="eager", fullgraph=True)(xs, eps), each(xs, eps))


@pytest.mark.usefixtures("allow_rnn")
@pytest.mark.parametrize("cls", [noisin.LSTM, noisin.GRU])
def test_autocast(cls: type[nn.Module]) -> None:
    model = Model(cls(F, 4, noise=noise.Gaussian(0.5)))
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    x, eps = torch.randn(3, 2, F), torch.randn(1, 3, 2, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got, want = compiled(x, eps), model(x, eps)
    assert got.dtype == want.dtype
    assert_close(got, want, rtol=0.02, atol=0.02)


def test_by_default_the_rnn_runs_uncompiled() -> None:
    """As torch's own: no piece of it is compiled, and the kernel is the one without a compiler."""
    graphs: list[GraphModule] = []

    def backend(graph: GraphModule, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    case = Case("lstm")
    model = nn.Sequential(nn.Linear(F, F, dtype=DTYPE), case.make())
    compiled = torch.compile(model, backend=backend)
    for T, N in ((3, 2), (3, 5), (7, 5)):
        x = torch.randn(T, N, F, dtype=DTYPE)
        found = []
        for function in (model, compiled):
            torch.manual_seed(5)
            z = function(x)[0]
            found.append([z, *torch.autograd.grad(z.sin().sum(), list(model.parameters()))])
        assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    assert not any(count(graph, name) for graph in graphs for name in ("noisin", "randn", "lstm"))


class TestAGivenGenerator:
    def model(self) -> Model:
        return Model(Case("lstm", num_layers=1).make(generator=torch.Generator()))

    def test_draws_where_the_rnn_is_not_compiled(self) -> None:
        model, x = self.model(), torch.randn(3, 2, F, dtype=DTYPE)
        compiled = torch.compile(model, backend="eager")
        found = []
        for function in (model, compiled):
            model.rnn.generator.manual_seed(1)
            found.append(function(x))
        assert torch.equal(*found)

    @pytest.mark.usefixtures("allow_rnn")
    def test_is_refused_in_a_whole_graph(self) -> None:
        compiled = torch.compile(self.model(), backend="eager", fullgraph=True)
        with pytest.raises(
            torch._dynamo.exc.Unsupported, match="refuse_to_compile_a_given_generator"
        ):
            compiled(torch.randn(3, 2, F, dtype=DTYPE))

    def test_is_refused_by_export(self) -> None:
        with pytest.raises(Unsupported, match="cannot draw from a generator that is given"):
            torch.export.export(self.model(), (torch.randn(3, 2, F, dtype=DTYPE),))


@pytest.mark.usefixtures("allow_rnn")
def test_inductor() -> None:
    """Torch's own backend, forward and backward, where it has nothing to generate but the calls."""
    rnn = noisin.LSTM(F, 4, noise=noise.Gaussian(0.5))
    x, eps, state = torch.randn(3, 2, F), torch.randn(1, 3, 2, 4), torch.randn(1, 2, 4)

    def run(x: Tensor, eps: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        z, (_, c) = rnn(x, (state, state), eps=eps)
        return z, c

    found = []
    for function in (run, torch.compile(run, fullgraph=True)):
        outputs = function(x, eps, state)
        weights = list(rnn.parameters())
        gradients = torch.autograd.grad(outputs, weights, [t.detach() for t in outputs])
        found.append([*outputs, *gradients])
    assert_close(*found)


class TestExport:
    batch = torch.export.Dim("batch", min=1, max=512)
    time = torch.export.Dim("time", min=1, max=512)

    @pytest.mark.parametrize("kind", ["tanh", "lstm", "gru-read", "sigmoid"])
    def test_in_eval_with_a_dynamic_batch(self, kind: str) -> None:
        """Torch's own RNNs are exported with the number of steps that they were given."""
        rnn = Case(kind).make().eval()
        x = torch.randn(5, 4, F, dtype=DTYPE)
        program = torch.export.export(rnn, (x,), dynamic_shapes={"input": {1: self.batch}})
        for N in (1, 3, 100):
            other = torch.randn(5, N, F, dtype=DTYPE)
            assert_close(program.module()(other)[0], rnn(other)[0])

    @pytest.mark.parametrize(
        "row", table(TRACED, (False, True)), ids=lambda row: "-".join(map(str, row))
    )
    def test_with_noise_and_dynamic_batch_and_time(self, row: Any) -> None:
        """Saved and loaded; values and gradients at other sizes."""
        case = Case(row[0], bidirectional=row[1], num_layers=1)
        model = Model(case.make())
        dims = {"x": {0: self.time, 1: self.batch}, "eps": {1: self.time, 2: self.batch}}
        exported = torch.export.export(model, inputs(case, 5, 4), dynamic_shapes=dims)
        assert count(exported.graph, "noisin.layer.") == case.directions
        file = io.BytesIO()
        torch.export.save(exported, file)
        file.seek(0)
        program = torch.export.load(file).module()
        for T, N in ((5, 1), (1, 3), (40, 6)):
            x, eps = inputs(case, T, N)
            found = []
            for module in (program, model):
                z = module(x, eps)
                gradients = torch.autograd.grad(z.sum(), list(module.parameters()))
                found.append([z, *gradients])
            assert_close(*found)

    def test_draws_noise_anew(self) -> None:
        model, x = Model(Case("lstm").make()), torch.randn(3, 2, F, dtype=DTYPE)
        program = torch.export.export(model, (x,)).module()
        assert not torch.equal(program(x), program(x))

    def test_by_single_operations_where_the_reference_is_chosen(self) -> None:
        model, x = Model(Case("lstm").make()), torch.randn(3, 2, F, dtype=DTYPE)
        with kernels.using("reference"):
            program = torch.export.export(model, (x,))
        assert count(program.graph, "noisin") == 0
