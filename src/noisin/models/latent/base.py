r"""What stochastic RNNs have in common: the loop over time, and the evidence lower bound.

A stochastic RNN draws a latent variable at every step. In the letters of this folder, x_t is the
target of step t, u_t its input (usually x_{t-1}), h_t (d_t in an SRNN) the recurrent state, which
has noise while training, and z_t the latent variable. A model consists of a prior
``p(z_t | past)``, a posterior ``q(z_t | past, x)`` and an emission ``p(x_t | z_t, past)``. It is
trained by the evidence lower bound, with one draw of z and the KL divergence in closed form:

.. math:: \log p(x) \ge \sum_t \log p(x_t | z_{\le t}, x_{<t}) - KL(q_t ‖ p_t), \quad z_t \sim q_t
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_args

from torch import Generator, Tensor, nn

from noisin._util import arguments, checks
from noisin._util.settings import construct
from noisin.data.batch import Batch
from noisin.errors import InvalidType, Unsupported
from noisin.likelihoods import Likelihood
from noisin.likelihoods.base import require_likelihood
from noisin.models.base import Loss, State, mean_over_scored
from noisin.models.encoders import Values
from noisin.models.heads import Dense
from noisin.models.latent.networks import dense
from noisin.models.latent.walk import Inputs, LatentStep, StepFunction, Walk, unbound
from noisin.noise.sampling import Stochastic
from noisin.recurrent.functional import Mode, Share
from noisin.recurrent.injection import Injection, NoisyLayers, Site
from noisin.recurrent.names import KERNEL_NAMES
from noisin.regularizers.sequences import Dropout, Dropouts


class Bound(NamedTuple):
    """The parts of the evidence lower bound of a batch, each ``(T, N)``.

    Attributes:
        log_p: ``log p(x_t | z_t, past)``.
        kl: ``KL(q_t ‖ p_t)``.
        steps: what they were computed from.
        inputs: what the model computed of all steps at once.
        state: the state after the batch.
    """

    log_p: Tensor
    kl: Tensor
    steps: LatentStep
    inputs: Inputs
    state: State


class LatentModel(Stochastic):
    """A stochastic RNN; a subclass defines :meth:`context`, :meth:`initial` and :meth:`sequence`.

    A step that has None in place of what only the posterior reads draws z from the prior.

    Args:
        size: the number of values of an observation.
        likelihood: their likelihood, given the natural parameters that the head computes.
        input_size: the number of values of an input; by default those of an observation.
        hidden_size, num_layers: of the recurrent state.
        z_size: of the latent variable.
        mlp_size: units of the hidden layers of all networks.
        cell: the transition function: ``"lstm"``, ``"gru"`` or one of the Elman cells.
        head: the class of the head; such as :class:`~noisin.models.autoregressive.Autoregressive`.
        bias: initial natural parameters, such as those of the mean of the data.
        dropout: of the embedded ``input``, ``between`` the layers, and of the ``output``, the
            hidden layer of the emission.
        noise, mode, feedback, noisy_layers, share, site: as of :class:`noisin.LSTM` and
            :class:`noisin.GRU`, of the noise on the recurrent state.
        generator: the random stream of initialisation, noise and latent variables.

    ``kl_weight`` multiplies the KL divergence in the objective; training may change it by a
    schedule. The bound itself, which is what is recorded, always has all of it.
    """

    kl_weight: float = 1.0
    size: int
    input_size: int
    hidden_size: int
    num_layers: int
    z_size: int
    mlp_size: int
    embed_u: nn.Module
    embed_x: nn.Module

    def __init__(
        self,
        size: int,
        likelihood: Likelihood,
        *,
        input_size: int | None = None,
        hidden_size: int = 200,
        num_layers: int = 1,
        z_size: int = 64,
        mlp_size: int = 200,
        cell: str = "lstm",
        head: Callable[..., Any] = Dense,
        bias: Tensor | None = None,
        dropout: Dropouts = Dropouts(),  # noqa: B008 - frozen
        noise: Any = None,
        mode: Mode = "multiplicative",
        feedback: bool = True,
        noisy_layers: NoisyLayers = "all",
        share: Share = "step",
        site: Site = "read",
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        sizes = {"size": size, "hidden_size": hidden_size, "num_layers": num_layers}
        sizes |= {"z_size": z_size, "mlp_size": mlp_size}
        sizes["input_size"] = size if input_size is None else input_size
        for argument, value in sizes.items():
            setattr(self, argument, arguments.whole(f"{name}: {argument}", value))
        require_likelihood(name, likelihood)
        arguments.instance(
            f"{name}: dropout", dropout, Dropouts, "Pass, for example, Dropouts(0.1)."
        )
        checks.one_of(f"{name}: cell", cell, KERNEL_NAMES)
        checks.one_of(f"{name}: site", site, get_args(Site))
        if not callable(head):
            raise InvalidType(
                f"{name}: head must be a class of heads, such as models.Dense, got {head!r:.60}."
            )
        if likelihood.event_dim:
            raise Unsupported(
                f"{name}: expected a likelihood of values, such as Bernoulli() or Gaussian(), got "
                f"{type(likelihood).__name__}. Stochastic RNNs of words are not available."
            )
        self.cell, self.generator, self.dropouts = cell, generator, dropout
        self._injection = Injection(
            noise, mode, feedback, noisy_layers, share, site, generator, owner=name
        )
        self._head = head, likelihood, bias
        self.values = nn.ModuleList([Values(sizes["input_size"]), Values(size)])
        self.drop_input = Dropout(dropout.input, dropout.locked, generator)
        self.drop_output = Dropout(dropout.output, dropout.locked, generator)

    # What a subclass defines

    def context(self, batch: Batch, state: State) -> tuple[Inputs, State]:
        """What is computed of all steps at once, tensors ``(T, N, ...)``, and its state."""
        raise NotImplementedError

    def prior_context(self, x: Tensor, state: State) -> tuple[Inputs, State]:
        """The same without targets: None is in the place of what only the posterior reads."""
        return (self._embedded_inputs(x), None), state

    def initial(self, like: Tensor) -> State:
        """The state of the first step, for the rows of a tensor ``(N, ...)``."""
        raise NotImplementedError

    def sequence(self) -> StepFunction:
        """The function that runs the steps of one sequence."""
        raise NotImplementedError

    def _steps_as(self, own: type[LatentModel]) -> bool:
        """Whether the steps are those of a class, which no subclass of it has replaced."""
        names = ("sequence", "_step", "_laws", "_drawn")
        return all(getattr(type(self), n, None) is getattr(own, n, None) for n in names)

    def steps(self, inputs: Inputs, state: State, eta: Tensor) -> tuple[LatentStep, State]:
        """All steps of one sequence, stacked: by default, one after another."""
        run = self.sequence()
        found = []
        for t, part in enumerate(unbound(inputs, len(eta))):
            step, state = run(part, state, eta[t])
            found.append(step)
        return LatentStep.stack(found), state

    def costs(self, batch: Batch, bound: Bound) -> Mapping[str, Tensor]:  # noqa: ARG002
        """What else is minimised, per target and weighted: terms of the loss, by name."""
        return {}

    # Parts that constructors of subclasses build

    @property
    def layer_sizes(self) -> list[int]:
        """The sizes of the recurrent layers."""
        return [self.hidden_size] * self.num_layers

    def _embeddings(self, layers: int = 1, **options: Any) -> tuple[nn.Module, nn.Module]:
        """The networks that read u and x: one and the same if both have the same size."""
        options = {"generator": self.generator, **options}
        sizes = [self.mlp_size] * layers
        u = dense(self.input_size, sizes, **options)
        same = self.input_size == self.size
        return u, (u if same else dense(self.size, sizes, **options))

    def _emit_from(self, in_features: int, hidden: bool = True, **options: Any) -> None:
        """Build the emission: a hidden layer, if any, and the head."""
        sizes = [self.mlp_size] if hidden else []
        self.emission = dense(in_features, sizes, generator=self.generator, **options)
        head, likelihood, bias = self._head
        found = self.mlp_size if hidden else in_features
        stream = {} if self.generator is None else {"generator": self.generator}
        made = construct(
            f"{type(self).__name__}: head", head, found, self.size, likelihood, bias=bias, **stream
        )
        if not hasattr(made, "nll"):
            raise InvalidType(
                f"{type(self).__name__}: head must be a class of heads, such as models.Dense; what "
                f"{head!r:.60} returns has no method nll."
            )
        self.head = made

    # The interface of a model

    @property
    def identity(self) -> dict[str, Any]:
        """What the record of a run recognises the model by: its parts as they are shown."""
        return {"parts": repr(self).splitlines()}

    def loss(self, batch: Batch, state: State = None) -> Loss:
        """The mean of the negative bound, and the terms; ``kl`` is measured.

        The term ``annealing``, ``(kl_weight - 1) · KL``, makes the bound the weighted objective.
        """
        bound = self.bound(batch, state)
        kl = mean_over_scored(bound.kl, batch)
        terms = dict(self.costs(batch, bound))
        if self.kl_weight != 1:
            terms["annealing"] = (self.kl_weight - 1) * kl
        mean = mean_over_scored(bound.kl - bound.log_p, batch)
        return Loss(mean, batch.count, terms, bound.state, measured={"kl": kl})

    def log_prob(self, batch: Batch, state: State = None) -> tuple[Tensor, State]:
        """The bound of each step with one draw of z, ``(T, N)``, and the state."""
        bound = self.bound(batch, state)
        return bound.log_p - bound.kl, bound.state

    def bound(self, batch: Batch, state: State = None, *, eta: Tensor | None = None) -> Bound:
        """The parts of the bound; ``eta``, ``(T, N, Z)``, is your own standard normal noise."""
        walk = Walk(self, batch, state, eta=eta)
        steps = walk.steps()
        log_p = self.log_emission(steps.read, batch)
        return Bound(log_p, steps.q.kl(steps.p), steps, walk.inputs, walk.carried)

    def log_emission(self, read: Tensor, batch: Batch) -> Tensor:
        """``log p(x_t | z_t, past)`` of each target, ``(T, N)``."""
        nll: Tensor = self.head.nll(self.drop_output(self.emission(read)), batch)[0]
        return -nll

    def predict_next(
        self, x: Tensor, state: State = None, *, generator: Generator | None = None
    ) -> tuple[Tensor, State]:
        """The natural parameters after the last step of x, ``(N, O)``, and the state.

        The latent variables of the steps of x are drawn from their prior, with ``generator``: the
        prediction is that of one draw, and the law of the next target the mean over all of them.
        To read targets that are known, so that z is drawn from the posterior, use
        :meth:`log_prob`, and continue from its state.
        """
        z, memory, state = self.encode_next(x, state, generator=generator)
        s: Tensor = self.head.predict(z, memory)
        return s[0], state

    def encode_next(
        self, x: Tensor, state: State = None, *, generator: Generator | None = None
    ) -> tuple[Tensor, State, State]:
        """What the head reads after the last step of x, ``(1, N, H)``; no memory; the state."""
        walk = Walk(self, x, state, eta=None, generator=generator)
        read = walk.steps().read[-1:]
        return self.drop_output(self.emission(read)), None, walk.carried

    def _embedded(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The inputs and the targets of a batch, embedded."""
        here = {"x": batch.x, "target": batch.target, "scored": batch.scored}
        checks.require_one_device(type(self).__name__, **here)
        u, x = self._embedded_inputs(batch.x), self.embed_x(self.values[1](batch.target))
        return u, self.drop_input(x)

    def _embedded_inputs(self, x: Tensor) -> Tensor:
        """Inputs, embedded."""
        own = next(self.parameters())
        checks.require_one_device(type(self).__name__, x=x, weights=own)
        u: Tensor = self.drop_input(self.embed_u(self.values[0](x)))
        return u
