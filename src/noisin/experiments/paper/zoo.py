"""The systems of the paper's last table, and their relatives, as recipes at true size.

Each has the settings of its authors as far as they are known, and a note that says which are
verified (read in the authors' code or text), reasoned, or from memory. Several train on the loss
summed over the steps of a window. The loss here is its mean, so :func:`.systems.summed` multiplies
the learning rate by the number of steps, and divides the largest norm of the gradient by it.

``ptb-small-SYSTEM[-gaussian]`` has 2 × 200 units, a batch of 20 and 15 epochs, for a machine
without a GPU. Its rates are ours, and none was tuned; its noise has a standard deviation of 0.5.

>>> config("ptb-awd-mos-gamma").noise.alpha
2.0
>>> of_row("krause2017dynamic")[0].name, of_row("krause2017dynamic")[1]
('ptb-awd', 'dynamic')
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from noisin._util.settings import merge
from noisin.experiments.paper import systems
from noisin.experiments.paper.recipes import Settings
from noisin.training.config import RunConfig

PTB, WT2 = 10_000, 33_278  # words
Scores = tuple[float | None, float | None]


@dataclass(frozen=True)
class SystemRecipe:
    """A system by other authors, or of the paper, as settings of ours.

    Attributes:
        name: of the preset.
        settings: of the run.
        parameters: their number at true size, with a vocabulary of ``words``.
        note: what is verified, what is reasoned, and what is from memory.
        published: perplexities on valid and test of the trained model itself.
        rows: the rows of the last table that this model belongs to: each by its citation, with
            what the model was evaluated with.
        words: of the vocabulary of the authors.
    """

    name: str
    settings: Settings
    parameters: int
    note: str
    published: Scores = (None, None)
    rows: Mapping[str | None, str] = field(default_factory=dict)
    words: int = PTB


_SUMMED = "Reasoned: lr and clip are converted from a loss that is summed over the steps. "
_FINE = "The published numbers with a cache or dynamic evaluation are of fine-tuned weights: "
_FINE_TUNING = "noisin train NAME --train.start RUN --train.averaging from_start. "

LARGE = (
    SystemRecipe(
        "ptb-zaremba", systems.ZAREMBA, 19_780_400,
        "Verified, by the authors' code of their large model: two biases, dropout in three places, "
        "and that the loss is summed. From memory: rate and schedule of the medium model, and its "
        "start from U(±0.05), where ours is U(±0.039). " + _SUMMED,
        (86.2, 82.7), {"zaremba2014recurrent": "static"}),
    SystemRecipe(
        "ptb-gal", systems.GAL, 19_780_400,
        "Verified: masks per gate, the schedule and the rates 0.3, 0.5, 0.3, 0.5, but these are "
        "of the large model: those of the medium one, which the row is about, are not known to "
        "us. " + _SUMMED + "The row: noisin evaluate RUN --method monte-carlo --masks pass.",
        (81.9, 79.7), {"gal2016theoretically": "monte-carlo"}),
    SystemRecipe(
        "ptb-pointer-sentinel", systems.POINTER, 20_204_200,
        "Verified: the head's equations. From memory: sizes, batch, steps, lr, clip and their "
        "schedule. A guess: the dropout, and that the loss is summed. The authors' LSTM also has "
        "zoneout, whose rates are not known to us.",
        (72.4, 70.9), {"merity2016pointer": "static"}),
    SystemRecipe(
        "ptb-grave", systems.GRAVE, 28_886_800,
        "From memory: 1 × 1024 and 30 steps. The authors train with Adagrad, which is not here: "
        "optimizer, batch, dropout and epochs are ours, and so is that the weights are not tied.",
        (None, 82.3), {"grave2016improving": "cache"}),
    SystemRecipe(
        "ptb-inan", systems.INAN, 13_270_400,
        "Verified: sizes, batch, steps, lr, and no bias of the output. Second-hand: decay, clip, "
        "gamma (0.5 to 0.8) and the rate. From memory: the temperature. Ours: the epochs, and "
        "masks of their own for the state that goes up and the one that is fed back. " + _SUMMED,
        (75.7, 73.2), {"inan2016tying": "static"}),
    SystemRecipe(
        "ptb-highway", systems.HIGHWAY, 23_482_400,
        "Verified: all settings. " + _SUMMED + "It starts from U(±0.04); ours from U(±0.035).",
        (67.9, 65.4), {"zilly2016recurrent": "static"}),
    SystemRecipe(
        "ptb-melis",
        systems.melis("ptb", 0.00396, 7.449e-5, {
            "hidden_size": 723, "num_layers": 4,
            "dropout": {"input": 0.6336, "between": 0.3091, "recurrent": 0.6428, "output": 0.7009,
                        "locked": True}}, 224),
        23_979_620,
        "Verified: sizes, rates, lr, L2 and initialisation, of the model of 4 layers. Reasoned: "
        "turns as epochs, L2 and clip of the mean loss. All masks are locked, as in the paper's "
        "text; in the code only those of the state are.",
        (60.9, 58.3), {"melis2017state": "static"}, words=PTB + 1),
    SystemRecipe(
        "ptb-melis-10m",
        systems.melis("ptb", 0.004179, 1.2435e-4, {
            "hidden_size": 1194, "embedding_size": 268, "num_layers": 1,
            "projection": {"dropout": 0.327},
            "dropout": {"input": 0.5799, "recurrent": 0.2153, "output": 0.327, "locked": True},
            }, 224),
        9_997_549, "As ptb-melis: the model of 1 layer.", (61.8, 59.6), words=PTB + 1),
    SystemRecipe(
        "wt2-melis",
        systems.melis("wikitext-2", 0.00246, 3.776e-5, {
            "hidden_size": 1227, "embedding_size": 149, "num_layers": 2,
            "projection": {"dropout": 0.3915},
            "dropout": {"input": 0.4842, "between": 0.092, "recurrent": 0.4539, "output": 0.3915,
                        "locked": True}}, 200),
        23_982_129, "As ptb-melis: 2 layers. From memory: the published numbers.", (69.1, 65.9),
        words=WT2 + 1),
    SystemRecipe(
        "ptb-awd", systems.AWD, 24_221_600,
        "Verified: all settings, by the authors' README and main.py. The batch is the README's "
        "20; the paper has 40. " + _FINE + _FINE_TUNING,
        (60.7, 58.8), {"merity2017regularizing": "cache", "krause2017dynamic": "dynamic"}),
    SystemRecipe(
        "wt2-awd", systems.AWD_WT2, 33_556_078,
        "Verified: all settings, and the numbers, by the authors' README and main.py.",
        (68.7, 65.6), words=WT2),
    SystemRecipe(
        "ptb-awd-mos", systems.AWD_MOS, 21_500_620,
        "Verified: all settings, by the authors' README and main.py. From memory: 58.08 on "
        "valid. " + _FINE + _FINE_TUNING + "Then lr is 25.",
        (58.08, 55.97), {"yang2017breaking": "dynamic"}),
    SystemRecipe(
        "wt2-awd-mos", systems.AWD_MOS_WT2, 34_909_528,
        "Verified: all settings, by the authors' README and main.py. The published numbers are "
        "of fine-tuned weights, with an lr of 20.",
        (63.88, 61.45), words=WT2),
    SystemRecipe(
        "ptb-awd-mos-gamma", systems.AWD_MOS_GAMMA, 21_500_620,
        "ptb-awd-mos with the noise of the paper's caption, shape 2 and scale 0.4, centred and "
        "scaled as in its table 2: a standard deviation of 0.4. Reasoned: fed back, in all "
        "layers, and all other settings are those of the row above; the paper does not say.",
        rows={None: "dynamic"}),
    SystemRecipe(
        "ptb-fraternal", systems.FRATERNAL, 9_997_440,
        "Verified: all settings, by the authors' main.py, of 1 × 655. They also put the best "
        "weights back when lr is divided.",
        (67.5, 64.9)),
    SystemRecipe(
        "ptb-krueger", systems.KRUEGER, 66_034_000,
        "Verified: the rates of zoneout, on top of the large model of Zaremba et al., and the "
        "settings of that, by its code. " + _SUMMED,
        (81.4, 77.4)),
    SystemRecipe(
        "ptb-semeniuta", systems.SEMENIUTA, 5_656_336,
        "Verified: sizes and rates, by the authors' code, whose README drops updates at 0.5 with "
        "one mask per sequence (or states at 0.25 per step). Reasoned: that the loss is summed. "
        "Ours: the epochs. The numbers are those of Krueger et al., who repeated it.",
        (91.6, 87.0)),
)  # fmt: skip

_SMALL: Settings = {
    "data": {"name": "ptb"},
    "model": {"hidden_size": 200, "dropout": systems.locked(0.2)},
    "train": {"batch_size": 20, "lr": 20.0, "epochs": 15},
}
_SMALL_AWD: Settings = {
    "model": {
        "weight_drop": {"p": 0.2},
        "dropout": {"words": 0.05, "words_shared": True},
    },
    "train": {"variable_length": True, "averaging": "nt", "nt_window": 2}
    | {"weight_decay": 1.2e-6, "terms": {"ar": 2.0, "tar": 1.0}},
}
_SMALL_MOS: Settings = {"model": {"head": {"kind": "mixture-of-softmaxes", "experts": 5}}}
_SMALL_GAL: Settings = {
    "model": {
        "gate_dropout": {"x": 0.2, "h": 0.2, "site": "before", "locked": True},
        "dropout": {"input": 0.0, "between": 0.0, "words": 0.05},
    }
}
# The systems of 2 × 200 units, each on top of the first.
SMALL_SYSTEMS: Mapping[str, tuple[Settings, int, str]] = {
    "lstm": ({}, 2_653_200, "The LSTM that the others add to, with locked dropout of 0.2."),
    "awd": (_SMALL_AWD, 2_653_200, "The parts of AWD-LSTM, weaker, and lr is divided."),
    "mos": (merge(_SMALL_AWD, _SMALL_MOS), 2_855_200, "ptb-small-awd with 5 softmaxes."),
    "gal": (_SMALL_GAL, 2_653_200, "Locked masks per gate, and of words."),
    "weight-drop": ({"model": {"weight_drop": {"p": 0.2}}}, 2_653_200, "Weight drop alone."),
    "krueger": (
        systems.ZONEOUT,
        2_653_200,
        "Zoneout. (ptb-small-zoneout has the batch, dropout and epochs of the paper instead.)",
    ),
}


def _small() -> Iterator[SystemRecipe]:
    noises: Mapping[str, Settings] = {
        "": {},
        "-gaussian": {"noise": {"family": "gaussian", "gamma": 0.5}},
    }
    for system, (settings, parameters, note) in SMALL_SYSTEMS.items():
        for suffix, noise in noises.items():
            merged = merge(merge(_SMALL, settings), noise)
            yield SystemRecipe(f"ptb-small-{system}{suffix}", merged, parameters, f"Ours. {note}")
    mos = merge(merge(_SMALL, _SMALL_AWD), _SMALL_MOS)
    note = "Ours. The paper's last row at 2 × 200: ptb-small-mos with its Gamma noise."
    yield SystemRecipe("ptb-small-mos-gamma", merge(mos, systems.GAMMA), 2_855_200, note)


SYSTEM_RECIPES: Mapping[str, SystemRecipe] = {r.name: r for r in (*LARGE, *_small())}
RECIPES: Mapping[str, Settings] = {r.name: r.settings for r in SYSTEM_RECIPES.values()}


def config(name: str) -> RunConfig:
    """The config of a recipe."""
    return RunConfig.parse(RECIPES[name], name)


def of_row(citation: str | None) -> tuple[SystemRecipe, str]:
    """The recipe of a row of the last table, and what its model is evaluated with."""
    return next((r, r.rows[citation]) for r in LARGE if citation in r.rows)
