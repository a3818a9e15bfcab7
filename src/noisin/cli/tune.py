"""``noisin tune``: find the strength of noise or dropout within a budget."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.table import Table

from noisin.cli.arguments import Number, Switch, require_text
from noisin.cli.consoles import Results, tell
from noisin.cli.progress import Display, labelled
from noisin.cli.settings import nested, with_settings
from noisin.errors import InvalidValue
from noisin.experiments import presets
from noisin.experiments.pictures import learning_curves
from noisin.experiments.seeds import number
from noisin.experiments.tuning import driver
from noisin.experiments.tuning.driver import TunedRun
from noisin.experiments.tuning.trials import NAME
from noisin.experiments.tuning.tunable import Tunable, dropout_rate
from noisin.tuning.search import HIGHEST, LOWEST

DEFAULT = "manual"
PRESET = f"""The settings of the model and its data: the name of a preset of one run, a TOML
file, or the folder of a run or its config.json. The flags below override them. Presets:
{presets.known()}."""


@with_settings
def tune(
    preset: Annotated[str, Parameter(help=PRESET)] = DEFAULT,
    /,
    *,
    budget: str,
    what: str = "noise",
    around: Number | None = None,
    keep_lr: Switch = False,
    out: Path = Path("runs"),
    **flags: str | None,
) -> None:
    """Find a good strength of the noise, and a learning rate beside it, within a budget.

    Trains without noise for a ninth of the epochs, finds the std at which noise adds 2 % to the
    loss, and from there tries stds on a logarithmic grid by successive halving: after a ninth and a
    third of the epochs the best and the next larger ones continue. The file tuned.toml has the
    result, for noisin train. The same command continues a search that was stopped, and a larger
    budget uses what was trained before; nothing is trained twice.

    Parameters
    ----------
    budget
        The time of all runs together, such as 2h, 30m or 90s, or their epochs, such as 40epochs.
    what
        What has the std: noise; dropout, whose rate p has the std sqrt(p / (1 - p)); or rates by
        their names, such as model.zoneout.p_h. Several, separated by commas, have the same std.
    around
        The std in the middle of those that are tried, in place of the one that is measured.
    keep_lr
        Do not try half and twice the learning rate.
    out
        The folder in which the folder of the search is created.
    """
    require_text("--out", out)
    require_text("--budget", budget)
    if around is not None and not LOWEST <= around <= HIGHEST:
        raise InvalidValue(f"--around must lie in [{LOWEST:g}, {HIGHEST:g}], got {around:g}.")
    tunable = Tunable.of(preset, nested(flags), what)
    found = driver.run(tunable, budget, out, around=around, keep_lr=keep_lr, progress=Display())
    _print(found, tunable)
    tell(_conclusion(found, tunable))
    tell(f"The scores of all trials are in {found.folder / 'tune.json'}{_picture(found)}.")
    tell(f"\nThe settings are in {found.folder / NAME}.toml. The model that was trained with them:")
    tell(f"noisin train {found.folder / NAME}.toml --out {found.folder}")


def _print(found: TunedRun, tunable: Tunable) -> None:
    """What was tried: a row for each std and lr, a column for each rung."""
    tuned, rungs = found.tuned, found.tuned.plan.rungs
    columns = [f"{epochs} epoch{'s' * (epochs > 1)}" for epochs in rungs]
    table = Table("std", *(["rate"] if tunable.rates else []), "lr", *columns,
                  box=None, pad_edge=False)  # fmt: skip
    for column in table.columns:
        column.justify = "right"
    clean = [] if found.clean is None else [found.clean]
    tried = {(one.std, one.lr, one.epochs): one.score for one in [*clean, *tuned.tried]}
    for std, lr in sorted({(std, lr) for std, lr, _ in tried}, key=lambda p: (p[1] or 0, p[0])):
        scores = [tried.get((std, lr, epochs)) for epochs in rungs]
        shown = [number(found.unit.value(s), found.unit) if s is not None else "" for s in scores]
        if (std, lr) == (tuned.std, tuned.lr):
            shown[-1] += " *"
        rate = [f"{dropout_rate(std):g}"] if tunable.rates else []
        table.add_row(f"{std:g}", *rate, f"{_lr(found, lr):g}", *shown)
    console = Results()
    console.width = max(console.width, 100)
    console.print(f"\nThe lowest {found.unit} on valid within so many epochs, noise off:\n")
    console.print(table)


def _lr(found: TunedRun, lr: float | None) -> float:
    return found.config.train.lr if lr is None else lr


def _conclusion(found: TunedRun, tunable: Tunable) -> str:
    tuned = found.tuned
    score = labelled(found.unit.value(tuned.score), found.unit)
    rate = f" (rate {dropout_rate(tuned.std):g})" if tunable.rates else ""
    start = "" if found.start is None else f" The search started around std {found.start.std:.2g}."
    text = (
        f"\n* The best: {tunable.what} of std {tuned.std:g}{rate}, lr {found.config.train.lr:g}, "
        f"{score} on valid. {found.spent} epochs were trained.{start}"
    )
    if not tuned.plan.lr:
        text += " Other learning rates were not tried."
    if tuned.lr_at_end:
        text += (
            f"\nThe learning rate is the {tuned.lr_at_end} that was tried, and a better one may "
            f"lie beyond: use --train.lr {tuned.lr:g}."
        )
    if tuned.at_end:
        beyond = tuned.std * (10**0.4 if tuned.at_end == "largest" else 10**-0.4)
        text += (
            f"\nThe std is the {tuned.at_end} that was trained to the end, and the best may lie "
            f"beyond: use a larger budget, or --around {beyond:.2g}."
        )
    return text


def _picture(found: TunedRun) -> str:
    if not learning_curves.can_draw():
        return ". To draw them, run pip install 'noisin[plot]' and the same command again"
    from noisin.experiments.pictures.tuning import tuning_picture

    path, _ = learning_curves.save(tuning_picture(found), found.folder / "tune.svg")
    return f", and a picture of them in {path} (and .png)"
