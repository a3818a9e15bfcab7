"""The settings of systems by other authors, as they trained them; :mod:`.zoo` has notes on each."""

from __future__ import annotations

from noisin._util.settings import merge
from noisin.experiments.paper.recipes import DROPOUTS, Settings


def summed(lr: float, clip: float, steps: int = 35) -> Settings:
    """The learning rate and clip of a loss that is summed over the steps, for that of the mean."""
    return {"lr": lr * steps, "clip": clip / steps, "averaging": "none"}


def locked(p: float, **others: float | bool) -> Settings:
    """Dropout with one mask per window, of the same rate in three places."""
    return {"input": p, "between": p, "output": p, "locked": True} | others


def melis(corpus: str, lr: float, l2: float, model: Settings, epochs: int) -> Settings:
    """The rates, and what the settings of Melis et al. share. Adam's lr does not need converting.

    26 and 30 turns of 100 steps are about 6 and 7 epochs.
    """
    train = {"optimizer": "adam", "beta1": 0.0, "lr": lr, "weight_decay": l2 / 35}
    train |= {"batch_size": 64, "clip": 10 / 35, "state_reset": 0.01, "averaging": "none"}
    train |= {"lr_decay": 10.0, "lr_patience": 6, "patience": 7, "epochs": epochs}
    shared = {"cell": "melis-lstm", "skip": True, "initialization": "truncated-normal"}
    return {"data": {"name": corpus}, "model": shared | model, "train": train}


ZAREMBA: Settings = {
    "data": {"name": "ptb"},
    "model": {"tied": False, "dropout": {"input": 0.5, "between": 0.5, "output": 0.5}},
    "train": summed(1.0, 5.0)
    | {"batch_size": 20, "lr_decay": 1.2, "lr_decay_after": 6, "epochs": 39},
}
ZAREMBA_LARGE: Settings = merge(
    ZAREMBA,
    {
        "model": {"hidden_size": 1500, "dropout": {"input": 0.65, "between": 0.65, "output": 0.65}},
        "train": summed(1.0, 10.0) | {"lr_decay": 1.15, "lr_decay_after": 14, "epochs": 55},
    },
)
ZONEOUT: Settings = {"model": {"zoneout": DROPOUTS["zoneout"]["zoneout"]}}
KRUEGER: Settings = merge(ZAREMBA_LARGE, ZONEOUT)
GAL: Settings = {
    "data": {"name": "ptb"},
    "model": {
        "tied": False,
        "gate_dropout": {"x": 0.5, "h": 0.3, "site": "before", "locked": True},
        "dropout": {"output": 0.5, "locked": True, "words": 0.3},
    },
    "train": summed(1.0, 10.0)
    | {"batch_size": 20, "lr_decay": 1.15, "lr_decay_after": 10, "shrink": 1e-7, "epochs": 55},
}
POINTER: Settings = {
    "data": {"name": "ptb"},
    "model": {
        "tied": False,
        "head": {"kind": "pointer-sentinel", "window": 100},
        "dropout": locked(0.5),
    },
    "train": summed(1.0, 1.0, 100)
    | {"batch_size": 32, "bptt": 100, "lr_decay": 2.0, "patience": 3, "epochs": 64},
}
GRAVE: Settings = {
    "data": {"name": "ptb"},
    "model": {
        "hidden_size": 1024,
        "num_layers": 1,
        "tied": False,
        "dropout": {"input": 0.5, "output": 0.5},
    },
    "train": {"batch_size": 20, "bptt": 30, "lr": 20.0, "averaging": "none", "epochs": 40},
}
INAN: Settings = {
    "data": {"name": "ptb"},
    "model": {"output_bias": False, "dropout": locked(0.5, recurrent=0.5)},
    "train": summed(1.0, 5.0)
    | {"batch_size": 20, "lr_decay": 1 / 0.9, "lr_decay_after": 10, "epochs": 55}
    | {"augmented_loss": {"gamma": 0.65, "temperature": 20.0}},
}
HIGHWAY: Settings = {
    "data": {"name": "ptb"},
    "model": {
        "cell": "highway",
        "cell_arguments": {"depth": 10},
        "hidden_size": 830,
        "num_layers": 1,
        "dropout": {"input": 0.75, "recurrent": 0.25, "output": 0.75, "locked": True}
        | {"words": 0.25},
    },
    "train": summed(0.2, 10.0)
    | {"batch_size": 20, "lr_decay": 1.02, "lr_decay_after": 20, "epochs": 500}
    | {"terms": {"l2": 1e-7 / 35}},
}
AWD: Settings = {
    "data": {"name": "ptb"},
    "model": {
        "hidden_size": 1150,
        "embedding_size": 400,
        "num_layers": 3,
        "weight_drop": {"p": 0.5},
        "dropout": {"input": 0.4, "between": 0.25, "output": 0.4, "locked": True}
        | {"words": 0.1, "words_shared": True},
    },
    "train": {
        "batch_size": 20,
        "bptt": 70,
        "variable_length": True,
        "lr": 30.0,
        "lr_decay": 1.0,
        "clip": 0.25,
        "weight_decay": 1.2e-6,
        "averaging": "nt",
        "nt_window": 5,
        "epochs": 500,
        "terms": {"ar": 2.0, "tar": 1.0},
    },
}
AWD_WT2: Settings = merge(
    AWD,
    {
        "data": {"name": "wikitext-2"},
        "model": {"dropout": {"input": 0.65, "between": 0.2}},
        "train": {"batch_size": 80, "epochs": 750},
    },
)
AWD_MOS: Settings = merge(
    AWD,
    {
        "model": {
            "hidden_size": 960,
            "embedding_size": 280,
            "last_size": 620,
            "head": {"kind": "mixture-of-softmaxes", "experts": 15, "dropout": 0.29},
            "dropout": {"input": 0.4, "between": 0.225},
        },
        "train": {"batch_size": 12, "lr": 20.0, "epochs": 1000},
    },
)
AWD_MOS_WT2: Settings = merge(
    AWD_MOS,
    {
        "data": {"name": "wikitext-2"},
        "model": {
            "hidden_size": 1150,
            "embedding_size": 300,
            "last_size": 650,
            "dropout": {"input": 0.55, "between": 0.2},
        },
        "train": {"batch_size": 15, "lr": 15.0},
    },
)
GAMMA: Settings = {"noise": {"family": "gamma", "gamma": 0.4, "alpha": 2.0}}
AWD_MOS_GAMMA: Settings = merge(AWD_MOS, GAMMA | {"train": {"epochs": 400}})
FRATERNAL: Settings = {
    "data": {"name": "ptb"},
    "model": {
        "hidden_size": 655,
        "num_layers": 1,
        "weight_drop": {"p": 0.5},
        "dropout": {"input": 0.65, "output": 0.4, "words": 0.1, "words_shared": True},
    },
    "train": {
        "batch_size": 64,
        "variable_length": True,
        "lr": 30.0,
        "lr_decay": 3.0,
        "lr_patience": 21,
        "clip": 0.25,
        "weight_decay": 1.2e-6,
        "state_reset": 0.01,
        "averaging": "none",
        "epochs": 1000,
        "objective": "fraternal",
        "fraternal": {"kappa": 0.15},
    },
}
SEMENIUTA: Settings = {
    "data": {"name": "ptb"},
    "model": {
        "hidden_size": 256,
        "num_layers": 1,
        "tied": False,
        "update_dropout": {"p": 0.5, "locked": True},
        "dropout": {"input": 0.2, "output": 0.5},
    },
    "train": summed(1.0, 10.0) | {"batch_size": 32, "lr_decay": 1.5, "epochs": 50},
}
