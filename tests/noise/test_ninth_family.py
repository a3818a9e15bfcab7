"""A family is one class and one row: everything else finds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.extended import extended, run

CLASS = '''
@dataclass(frozen=True)
class Uniform(Family):
    """``eta ~ U(-1, 1)``, ``eps = √3 gamma eta``."""

    def _draw(self, source: Variates) -> Tensor:
        return source.uniform().mul_(2).sub_(1).mul_(math.sqrt(3) * self.gamma)


'''
INSERTIONS = {
    "noise/families.py": ("FAMILIES: Mapping[", CLASS),
    "noise/ranges.py": ('    "ChiSquare": {', '    "Uniform": {"gamma": _STD},\n'),
}
CODE = """
import pathlib, sys
import noisin
from noisin import cli
assert pathlib.Path(noisin.__file__).parents[1] == pathlib.Path(sys.argv[1])

from noisin.experiments import presets, words
from noisin.experiments.paper import recipes, results
from noisin.experiments.records import comparable
from noisin.noise import ranges
from noisin.training.config import RunConfig

config = RunConfig.parse({"noise": {"family": "uniform", "std": 0.5}})
assert words.points([config]) == ["uniform std 0.5"]
assert (config.noise.law, config.noise.known_gamma) == ("Uniform", 0.5)
assert comparable(config).noise.gamma == 0.5
assert RunConfig().hash() == sys.argv[2]
assert len(results.CELLS) == 72 and "uniform" not in recipes.NOISES
for arguments in (["--help"], ["train", "--help"]):
    try:
        cli.main(arguments)
    except SystemExit as exit:
        assert not exit.code
assert "torch" not in sys.modules

import torch
from noisin import noise
from noisin.training.build import build_noise

law = build_noise(config.noise)
assert law == noise.Uniform(0.5) and noise.FAMILIES["uniform"] is noise.Uniform
assert law.variance == 0.25 and noise.validate(law) is law
g = torch.Generator().manual_seed(1)
eps = law.sample((10_000,), like=torch.zeros(()), generator=g)
assert abs(eps.std() - 0.5) < 0.02 and eps.abs().max() <= 0.5 * 3**0.5 + 1e-6
print("done")
"""


@pytest.mark.long
def test_a_ninth_family(tmp_path: Path) -> None:
    from noisin.training.config import RunConfig

    with extended(tmp_path, INSERTIONS) as env:
        printed = run(env, "-c", CODE, str(tmp_path / "src"), RunConfig().hash())
    assert printed.endswith("done\n")
    shown = " ".join(printed.replace("│", " ").split())
    assert "beta, uniform, chi-square, package.module:Class] [default: gaussian]" in shown
