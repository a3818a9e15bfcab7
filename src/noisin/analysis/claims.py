"""Every mathematical claim of the paper, checked: one row per claim, with its figure and error.

``verify`` computes the table that ``noisin verify`` prints. Models, inputs and targets are the same
every time, and the seed is that of the noise alone. A comparison of random figures allows for so
many standard errors that the whole table raises a false alarm with probability below
``FALSE_ALARM_RATE``. Rows about what does *not* hold, or is above zero, pass where that shows
beyond doubt; their effects lie ten standard errors and more beyond what they must exceed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import noisin.regularizers as regularizers
from noisin import likelihoods, noise, objective
from noisin.analysis import curves, regularizer, risk, unbiasedness
from noisin.analysis.rows import (
    FALSE_ALARM_RATE,
    UNBIASEDNESS_CHECKS,
    Row,
    Z,
    equal_row,
    exact_row,
    figure,
    least,
    positive_row,
    worst,
)
from noisin.analysis.toys import Affine, H, Model, N, O, T, X, fixed, generator, inputs
from noisin.cells import Noisy
from noisin.functional import Mode
from noisin.objective import Batch
from noisin.rnn import GRU, LSTM, RNN

# The placement of noise that is strongly unbiased.
STRONG: dict[str, Any] = {"feedback": False, "noisy_layers": "last"}

LIKELIHOODS: tuple[likelihoods.Likelihood, ...] = (
    likelihoods.Bernoulli(),
    likelihoods.Gaussian(0.5),
    likelihoods.Poisson(),
    likelihoods.Categorical(),
)


def verify(seed: int = 1111, progress: Callable[[str], None] | None = None) -> list[Row]:
    """Check all claims; the global random stream is left as it was."""
    rows: list[Row] = []
    with torch.random.fork_rng(devices=[]):
        for number, claim in enumerate(CLAIMS):
            if progress is not None:
                progress(claim.__name__.replace("_", " "))
            torch.manual_seed(seed * 1000 + number)
            rows.extend(claim())
    return rows


def noise_table() -> Iterator[Row]:
    """The table of noises: means and variances of the scaled noise."""
    like, n = torch.empty((), dtype=torch.float64), 200_000
    means, variances = [], []
    for family in noise.FAMILIES.values():
        for variance in (0.2, 1.2):
            eps = family.from_variance(variance).sample((n,), like=like)
            squares = eps.square() / variance
            means.append((eps.mean(), eps.std() / math.sqrt(n)))
            variances.append((squares.mean(), squares.std() / math.sqrt(n)))
    place = "Table of noises, Sec. 3"
    yield equal_row(
        "noise-mean", "every noise is centred (worst of 16)", place, *worst(means, 0), 0
    )
    claim = "its variance is the table's, as a ratio (worst of 16)"
    yield equal_row("noise-variance", claim, place, *worst(variances, 1), 1)


def likelihood_table() -> Iterator[Row]:
    """The table of likelihoods: A, its Hessian, and the moments they give."""
    s = torch.randn(O, dtype=torch.float64, generator=generator(5))
    p, one = s.softmax(-1), torch.eye(O, dtype=torch.float64)
    printed = {
        "Bernoulli": torch.diag(s.sigmoid() * (1 - s.sigmoid())),
        "Gaussian": one / 0.5,
        "Poisson": torch.diag(s.exp()),
        "Categorical": torch.diag(p) - torch.outer(p, p),
    }
    errors: list[Tensor] = []
    means: list[tuple[Tensor, Tensor]] = []
    for lik in LIKELIHOODS:
        table = printed[type(lik).__name__]
        second = torch.func.jacrev(torch.func.jacrev(lambda s, lik=lik: lik.A(s).sum()))(s)
        operator = torch.stack([lik.hessian(s)(v) for v in one])
        errors += [(second - table).abs().max(), (operator - table).abs().max()]
        many = s.expand(100_000, O)
        statistic = lik.T(lik.sample(many), like=many)
        slope = torch.func.jacrev(lambda s, lik=lik: lik.A(s).sum())(s)
        off = statistic - slope
        means += zip(off.mean(0), off.std(0) / math.sqrt(len(off)), strict=True)
    place = "Table of A and its Hessian, Sec. 2"
    yield exact_row("likelihood-hessian", "the Hessian of A is the table's", place, max(errors))
    claim = "grad A - E[T(x)] (worst of 24)"
    yield equal_row("likelihood-mean", claim, place, *worst(means, 0), 0)


def algorithm_1() -> Iterator[Row]:
    """Algorithm 1 against the loop that the paper prints: two layers of LSTM, and the loss."""
    x, target = inputs(), torch.randint(O, (T, N), generator=generator(8))
    eps = 0.5 * torch.randn(2, T, N, H, dtype=torch.float64)
    errors = []
    modes: tuple[Mode, ...] = ("multiplicative", "additive")
    for mode in modes:
        rnn = LSTM(X, H, 2, bias=False, noise=noise.Gaussian(0.5), mode=mode)
        model = Model(likelihoods.Categorical(), rnn)
        loss, z, c = torch.zeros((), dtype=torch.float64), *torch.zeros(2, 2, N, H).double()
        z, c = list(z), list(c)
        for t in range(T):
            below = x[t]
            for k in range(2):
                i, f, g, o = torch.cat([*rnn.all_weights[k]], dim=1).chunk(4)
                both = torch.cat([below, z[k]], -1)
                c[k] = (both @ f.t()).sigmoid() * c[k] + (both @ i.t()).sigmoid() * (
                    both @ g.t()
                ).tanh()
                h = (both @ o.t()).sigmoid() * c[k].tanh()
                z[k] = below = h + eps[k, t] if mode == "additive" else h * (1 + eps[k, t])
            s = below @ model.V
            loss = loss - (s.gather(1, target[t, :, None]).squeeze(1) - s.logsumexp(-1)).sum()
        ours = model.likelihood.nll(s=rnn(x, eps=eps)[0] @ model.V, x=target).sum()
        slopes = [torch.autograd.grad(value, rnn.all_weights[0][1])[0] for value in (ours, loss)]
        errors += [(ours - loss).abs(), (slopes[0] - slopes[1]).abs().max()]
    claim = "loss and gradient of Algorithm 1 minus those of a plain loop"
    yield exact_row("algorithm-1", claim, "Algorithm 1", max(errors))


def unbiased_noise() -> Iterator[Row]:
    """Weak and strong unbiasedness of the placements of noise, and the bias of dropout."""
    law = noise.Gaussian(1.0)

    def t_of(module: nn.Module, condition: str) -> tuple[float, float]:
        rate = FALSE_ALARM_RATE / 2 / UNBIASEDNESS_CHECKS
        x = inputs(1).squeeze(1)
        found = unbiasedness.check_unbiased(fixed(module, 3), x, false_alarm=rate)
        return figure(getattr(found, f"{condition}_t").abs().max()), found.threshold

    def holds(id: str, claim: str, place: str, t: float, threshold: float) -> Row:
        return Row(id, claim, place, t, 1.0, f"|t| < {threshold:.1f}", t < threshold)

    def fails(id: str, claim: str, place: str, t: float, threshold: float) -> Row:
        return Row(id, claim, place, t, 1.0, f"|t| > {threshold:.1f}", t > threshold)

    weak, strong = "Weak unbiasedness, Sec. 3", "Strong unbiasedness, Sec. 3"
    yield holds("strong", "E[z] = h for noise on the last layer, not fed back", strong,
                *t_of(LSTM(X, H, 2, noise=law, **STRONG), "strong"))  # fmt: skip
    yield holds("weak", "E[z | z_prev] = f(x, z_prev) for fed-back noise", weak,
                *t_of(RNN(X, H, noise=law), "weak"))  # fmt: skip
    yield fails("fed-back-not-strong", "E[z] ≠ h for fed-back noise, last layer or not", strong,
                *t_of(RNN(X, H, noise=law, noisy_layers="last"), "strong"))  # fmt: skip
    yield fails("shared-not-weak", "noise shared over time and fed back: not even weakly", weak,
                *t_of(RNN(X, H, noise=law, share="sequence"), "weak"))  # fmt: skip
    yield holds("affine", "an affine recurrence is strongly unbiased, fed back too", strong,
                *t_of(Noisy(Affine(), law), "strong"))  # fmt: skip
    yield fails("dropout-biased", "dropout on the gates is biased", "Dropout, Sec. 3",
                *t_of(regularizers.DropoutLSTMCell(X, H, p_x=0.5, p_h=0.4), "weak"))  # fmt: skip


def bernoulli_is_dropout() -> Iterator[Row]:
    """Multiplicative Bernoulli noise is dropout of the hidden state, given the same masks."""
    keep, x, place = 0.6, inputs(), "Dropout, Sec. 3"
    mask = F.dropout(torch.ones(1, T, N, H, dtype=torch.float64), 1 - keep)
    law = noise.Bernoulli(keep)
    output = LSTM(X, H, noise=law, **STRONG).double()
    theirs = nn.LSTM(X, H).double()
    theirs.load_state_dict(output.state_dict())
    error = (output(x, eps=mask - 1)[0] - theirs(x)[0] * mask[0]).abs().max()
    claim = "Bernoulli noise not fed back is Zaremba's dropout"
    yield exact_row("bernoulli-output", claim, place, error)

    fed_back = LSTM(X, H, noise=law).double()
    cell = nn.LSTMCell(X, H).double()
    cell.load_state_dict({name[:-3]: w for name, w in fed_back.state_dict().items()})
    state, zs = None, []
    for t in range(T):
        h, c = cell(x[t], state)
        state = (h * mask[0, t], c)
        zs.append(state[0])
    error = (fed_back(x, eps=mask - 1)[0] - torch.stack(zs)).abs().max()
    yield exact_row("bernoulli-fed-back", "fed back, it is fresh-mask dropout of h", place, error)


def strong_mode_regularizes() -> Iterator[Row]:
    """In strong mode the risk gains the regularizer, on any targets, and that is not negative."""
    law, place = noise.Gaussian(0.7), "Theorem, Sec. 4.1 and Appendix"
    gains, gaps = [], []
    for lik in LIKELIHOODS:
        model = Model(lik, LSTM(X, H, noise=law, **STRONG), scale=1.0)
        s = torch.randn(T, N, O, dtype=torch.float64, generator=generator(6))
        x, target = inputs(), lik.sample(s, generator=generator(7))
        found = risk.risk_decomposition(model, Batch(x, target), K=4000)
        reg = regularizer.explicit_regularizer(lik, model.V, model.clean(x), law, K=1000)
        gains.append((found.difference, found.stderr))
        gap = found.difference - reg.monte_carlo
        gaps.append((gap, (found.stderr**2 + reg.stderr**2).sqrt()))
    claim = "R - R(det) > 0 in strong mode (least of 4)"
    yield positive_row("strong-positive", claim, place, *least(gains))
    claim = "R - R(det) - E[A(Vz) - A(Vh)] on arbitrary targets (worst of 4)"
    yield equal_row("strong-regularizer", claim, place, *worst(gaps, 0), 0)


def weak_mode_regularizes_its_own_data() -> Iterator[Row]:
    """Fed back: on targets drawn from the model the gain is a KL; on others it may be negative."""
    law, place = noise.Gaussian(1.0), "Weak unbiasedness, Appendix"
    lik = likelihoods.Gaussian(1.0)
    model = Model(lik, RNN(X, H, noise=law), scale=1.0)
    x = inputs(1)
    kl = risk.expected_kl(model, x, K=4000)
    yield positive_row(
        "weak-own-data", "fed back: E KL(p_h || p_z) > 0", place, kl.value, kl.stderr
    )
    claim = "R - R(det) on the model's own data, minus that KL"
    yield equal_row("weak-kl", claim, place, *_own_data_gap(model, x, kl), 0)
    dropout = Model(lik, nn.LSTM(X, H, 2, dropout=0.5), scale=1.0)
    kl = risk.expected_kl(dropout, x, K=4000)
    claim = "the same for dropout between layers, biased as it is"
    yield equal_row("weak-dropout", claim, place, *_own_data_gap(dropout, x, kl), 0)
    s = model.clean(x) @ model.V.detach()
    with torch.no_grad():
        shift = model(x.expand(T, 20_000, X))[0].mean(1, keepdim=True) - s
    found = risk.risk_decomposition(model, Batch(x, s + 300 * shift), K=20_000)
    claim = "R(det) - R > 0 on targets chosen for it: no regularizer there"
    yield positive_row("weak-other-data", claim, place, -found.difference, found.stderr)


def _own_data_gap(model: Model, x: Tensor, kl: risk.Measured) -> tuple[Tensor, Tensor]:
    """R - R(det) per row, on targets that the clean model draws, minus the KL; and its error."""
    rows = 4000
    many = x.expand(T, rows, X)
    s = model.clean(many) @ model.V.detach()
    target = model.likelihood.sample(s)
    with torch.no_grad():
        noisy = -objective.estimate(model, Batch(many, target), K=20).log_p.mean(0)
    gains = noisy - model.likelihood.nll(s=s, x=target).sum((0, 2))
    return gains.mean() - kl.value, (gains.var() / rows + kl.stderr**2).sqrt()


def closed_form() -> Iterator[Row]:
    """The second-order closed form against Monte Carlo: where it holds, and where it does not."""
    place = "Regularizer, Sec. 4.1"
    W, h = curves.problem()

    def ratio(
        lik: likelihoods.Likelihood, V: Tensor, law: noise.Noise, mode: Mode, K: int
    ) -> tuple[float, float]:
        reg = regularizer.explicit_regularizer(lik, V, h, law, mode, K)
        exact = figure(reg.monte_carlo)
        return figure(reg.closed_form) / exact, figure(reg.stderr) / exact

    modes: tuple[Mode, ...] = ("multiplicative", "additive")
    small = noise.Gaussian(0.05)
    value, stderr = worst(
        [ratio(lik, W / 2, small, mode, 1500) for lik in LIKELIHOODS for mode in modes], 1
    )
    yield Row("closed-small", "closed form over Monte Carlo, gamma 0.05 (worst of 8)", place, value,
              stderr, "1 ± 0.01", abs(value - 1) < 0.01 + Z * stderr and stderr < 0.01)  # fmt: skip
    categorical = likelihoods.Categorical()
    value, stderr = ratio(categorical, W, noise.Gaussian(1.39), "multiplicative", 1000)
    yield Row("closed-large", "... at gamma 1.39, the paper's largest: no longer", place, value,
              stderr, "off by 0.1", abs(value - 1) > 0.1 + Z * stderr)  # fmt: skip
    value, stderr = ratio(categorical, W, noise.ChiSquare(0.04), "multiplicative", 10_000)
    yield Row("closed-rare", "... for Chi-square at std 0.2: rare draws are not small", place,
              value, stderr, "off by 0.05", abs(value - 1) > 0.05 + Z * stderr)  # fmt: skip

    off = []
    for family in noise.FAMILIES.values():
        law = family.from_variance(1.44)
        reg = regularizer.explicit_regularizer(likelihoods.Gaussian(0.5), W, h, law, K=1000)
        off.append((reg.monte_carlo / reg.closed_form, reg.stderr / reg.closed_form))
    claim = "Gaussian likelihood: the same at std 1.2, exact for all (worst of 8)"
    yield equal_row("closed-gaussian", claim, place, *worst(off, 1), 1)


def fed_back_noise_by_fisher_score() -> Iterator[Row]:
    """The Fisher-score estimate of what small fed-back noise adds, against the KL itself."""
    model = Model(likelihoods.Categorical(), GRU(X, H, 2, noise=noise.Gaussian(0.05)))
    x = inputs()
    fisher = risk.fisher_penalty(model, x, draws=1000)
    kl = risk.expected_kl(model, x, K=2000)
    value = figure(fisher.value / kl.value)
    relative = (fisher.stderr / fisher.value).square() + (kl.stderr / kl.value).square()
    stderr = value * figure(relative.sqrt())
    yield Row("fisher", "½ v E|score|² over E KL for fed-back noise at gamma 0.05",
              "Fisher information, Sec. 4.1", value, stderr, "1 ± 0.02",
              abs(value - 1) < 0.02 + Z * stderr)  # fmt: skip


def ensembles() -> Iterator[Row]:
    """In strong mode the geometric ensemble over noise is the clean RNN."""
    lik, law, place = likelihoods.Categorical(), noise.Gumbel(0.8), "Ensembles, Sec. 4.2"
    model = Model(lik, LSTM(X, H, noise=law, **STRONG))
    x = inputs(1)
    with torch.no_grad():
        ensemble = objective.predict(model, x, K=20_000)
        off = ensemble.s - model.clean(x) @ model.V
    pairs = list(
        zip(off.mean(0).flatten(), off.std(0).flatten() / math.sqrt(len(off)), strict=True)
    )
    claim = f"mean over noise of s, minus the clean RNN's (worst of {len(pairs)})"
    yield equal_row("geometric", claim, place, *worst(pairs, 0), 0)
    reg = regularizer.explicit_regularizer(lik, model.V, model.clean(x), law, K=4000)
    gap = (
        lik.A(ensemble.s).sum((1, 2))
        + ensemble.log_normaliser().sum()
        - lik.A(ensemble.s.mean(0)).sum()
    )
    value = -ensemble.log_normaliser().sum() - reg.monte_carlo
    stderr = (gap.var() / len(gap) + reg.stderr**2).sqrt()
    claim = "minus the log of its normaliser, minus the regularizer"
    yield equal_row("normaliser", claim, place, value, stderr, 0)


def jensen_bound() -> Iterator[Row]:
    """The objective bounds the marginal likelihood, whose estimate rises with K."""
    model = Model(likelihoods.Categorical(), LSTM(X, H, noise=noise.Gaussian(1.0)))
    batch = Batch(inputs(), torch.randint(O, (T, N), generator=generator(8)))
    with torch.no_grad():
        log_p = objective.estimate(model, batch, K=2**13).log_p
    rises = []
    for K in (1, 4, 16):
        groups = log_p.view(-1, 4, K, N)
        few = torch.stack(
            [objective.Estimate(part, None).marginal for part in groups.flatten(0, 1)]
        )
        many = torch.stack(
            [objective.Estimate(part.flatten(0, 1), None).marginal for part in groups]
        )
        rise = many - few.view(-1, 4).mean(1)
        rises.append((rise.mean(), rise.std() / math.sqrt(len(rise))))
    claim = "rise of the K-sample marginal, K = 1 → 4 → 16 → 64 (least)"
    yield positive_row("jensen", claim, "Jensen bound, Sec. 3", *least(rises))
    found = objective.Estimate(log_p, None)
    gap = found.marginal - found.bound
    stderr = (found.bound_stderr**2 + found.marginal_stderr**2).sqrt()
    claim = "marginal at K = 8192 minus the bound that training maximises"
    yield positive_row("bound", claim, "Jensen bound, Sec. 3", gap, stderr)


def empirical_bayes() -> Iterator[Row]:
    """The prior of the noisy states is a density, and the marginal is what sampling estimates."""
    place, grid = "Empirical Bayes, Sec. 4.2", torch.linspace(-20, 20, 200_001, dtype=torch.float64)
    modes: tuple[Mode, ...] = ("multiplicative", "additive")
    smooth = (noise.Gaussian, noise.Gumbel, noise.Laplace, noise.Logistic)
    masses = [
        torch.trapezoid(
            objective.transition_log_density(
                grid[:, None], torch.full_like(grid[:, None], 0.8), family(0.5), mode
            ).exp(),
            grid,
        )
        for family in smooth
        for mode in modes
    ]
    off = figure(max((mass - 1).abs() for mass in masses))
    claim = "mass of p(z | z_prev, x) minus one (worst of 8)"
    yield Row("prior", claim, place, off, 0.0, "0 ± 1e-4", off < 1e-4)

    rnn = RNN(1, 1, bias=False, noise=noise.Gaussian(0.5), mode="additive").double()
    with torch.no_grad():
        for weight in rnn.parameters():
            weight.zero_()
    one = Batch(torch.zeros(1, 1, 1, dtype=torch.float64), torch.ones(1, 1, 1, dtype=torch.float64))
    with torch.no_grad():
        found = objective.estimate(rnn, one, K=20_000, likelihood=likelihoods.Gaussian())
    exact = -0.5 * math.log(2 * math.pi * 1.25) - 1 / (2 * 1.25)
    claim = "marginal of a linear-Gaussian model minus the exact one"
    yield equal_row("marginal", claim, place, found.marginal - exact, found.marginal_stderr, 0)


CLAIMS: tuple[Callable[[], Iterator[Row]], ...] = (
    noise_table,
    likelihood_table,
    algorithm_1,
    unbiased_noise,
    bernoulli_is_dropout,
    strong_mode_regularizes,
    weak_mode_regularizes_its_own_data,
    closed_form,
    fed_back_noise_by_fisher_score,
    ensembles,
    jensen_bound,
    empirical_bayes,
)
