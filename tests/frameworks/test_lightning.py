"""``noisin.lightning.NoiseCallback`` in a loop of Lightning's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import noisin
from noisin import noise
from noisin.errors import NoisinError

lightning = pytest.importorskip("lightning.pytorch")
from noisin.lightning import NoiseCallback  # noqa: E402 - after the package that it needs

pytestmark = pytest.mark.filterwarnings("ignore")
LAW = noise.Gaussian(0.5)


class Parity(lightning.LightningModule):  # type: ignore[name-defined]
    """Somebody else's module, with torch's LSTM; notes the class and the noise of each step."""

    def __init__(self, law: Any = None) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.rnn, self.V = nn.LSTM(1, 4, batch_first=True), nn.Linear(4, 1)
        self.seen: list[Any] = []
        self.fails = False

    def loss(self, x: Tensor) -> Tensor:
        s: Tensor = self.V(self.rnn(x)[0]).squeeze(-1)
        return (s - x.squeeze(-1).cumsum(1)).pow(2).mean()

    def training_step(self, batch: Any, _: int) -> Tensor:
        self.seen.append((type(self.rnn), getattr(self.rnn, "noise", None)))
        if self.fails:
            raise KeyError("on purpose")
        return self.loss(batch[0])

    def validation_step(self, batch: Any, _: int) -> None:
        assert torch.equal(self.loss(batch[0]), self.loss(batch[0])), "validation is clean"

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters())


def loader() -> Any:
    x = torch.randn(8, 5, 1, generator=torch.Generator().manual_seed(1))
    return DataLoader(TensorDataset(x), batch_size=4)


def trainer(folder: Path, *callbacks: Any, epochs: int = 3) -> Any:
    return lightning.Trainer(
        max_epochs=epochs, callbacks=list(callbacks), accelerator="cpu", logger=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
        num_sanity_val_steps=1,
    )  # fmt: skip


def test_converts_schedules_and_reverts(tmp_path: Path) -> None:
    module = Parity()
    keys, before = list(module.state_dict()), set(vars(module.rnn))
    callback = NoiseCallback(LAW, schedule=noise.Ramp("linear", epochs=2), feedback=False)
    trainer(tmp_path, callback).fit(module, loader(), loader())
    stds = [law.std for kind, law in module.seen if kind is noisin.LSTM]
    assert stds == pytest.approx([0.0, 0.0, 0.25, 0.25, 0.5, 0.5])
    assert type(module.rnn) is nn.LSTM
    assert set(vars(module.rnn)) == before
    assert list(module.state_dict()) == keys


def test_checkpoints_stay_theirs_and_are_resumed(tmp_path: Path) -> None:
    """A checkpoint is loaded without noisin, and a resumed run has the noise of its epoch."""
    module = Parity(LAW)
    schedule = noise.Ramp("linear", epochs=4, start=1.0, end=0.0)
    first = trainer(tmp_path, NoiseCallback(LAW, schedule=schedule), epochs=2)
    first.fit(module, loader())
    path = first.checkpoint_callback.best_model_path
    loaded = Parity.load_from_checkpoint(path)
    assert loaded.hparams.law == LAW
    state = torch.load(path, weights_only=True)["state_dict"]
    assert list(state) == list(Parity().state_dict())
    nn.LSTM(1, 4).load_state_dict({k[4:]: v for k, v in state.items() if k.startswith("rnn.")})
    again = Parity()
    trainer(tmp_path, NoiseCallback(LAW, schedule=schedule), epochs=4).fit(
        again, loader(), ckpt_path=path
    )
    assert [law.std for _, law in again.seen] == pytest.approx([0.25, 0.25, 0.125, 0.125])


def test_noise_changes_training(tmp_path: Path) -> None:
    weights = []
    for callbacks in ((), (NoiseCallback(LAW),), (NoiseCallback(noise.Gaussian(0.0)),)):
        lightning.seed_everything(1, verbose=False)
        module = Parity()
        trainer(tmp_path, *callbacks, epochs=1).fit(module, loader())
        weights.append(module.V.weight.detach().clone())
    assert not torch.equal(weights[0], weights[1])
    torch.testing.assert_close(weights[0], weights[2], msg="noise of std 0 is no noise")


def test_an_error_in_training_reverts(tmp_path: Path) -> None:
    module = Parity()
    module.fails = True
    with pytest.raises(KeyError):
        trainer(tmp_path, NoiseCallback(LAW)).fit(module, loader())
    assert module.seen[0][0] is noisin.LSTM
    assert type(module.rnn) is nn.LSTM


def test_validation_alone_converts_nothing(tmp_path: Path) -> None:
    module = Parity()
    trainer(tmp_path, NoiseCallback(LAW)).validate(module, loader(), verbose=False)
    assert type(module.rnn) is nn.LSTM


def test_what_was_noisy_before_is_noisy_after(tmp_path: Path) -> None:
    module = Parity()
    module.rnn = noisin.LSTM(1, 4, batch_first=True, noise=noise.Gamma(0.1))
    trainer(tmp_path, NoiseCallback(LAW), epochs=1).fit(module, loader())
    assert module.seen[0] == (noisin.LSTM, LAW)
    assert module.rnn.noise == noise.Gamma(0.1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: NoiseCallback(0.5),
        lambda: NoiseCallback(LAW, schedule=5),
        lambda: NoiseCallback(LAW, mode="x"),
        lambda: NoiseCallback(LAW, schedule=lambda epoch: -1.0),
    ],
)
def test_bad_arguments_are_refused_before_training(make: Any) -> None:
    with pytest.raises(NoisinError):
        make()
