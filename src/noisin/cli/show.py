"""``noisin show``: all settings of a preset or run, and the schema of settings."""

from __future__ import annotations

import json
from typing import Annotated

from cyclopts import Parameter

from noisin.cli.arguments import Switch
from noisin.cli.consoles import tell
from noisin.cli.settings import nested, with_settings
from noisin.experiments import presets

PRESET = f"""The base settings: the name of a preset, a TOML file, or the folder of a run or its
config.json. The flags below override them. Presets: {presets.known()}."""


@with_settings
def show(
    preset: Annotated[str, Parameter(help=PRESET)] = presets.MAIN_JOB,
    /,
    *,
    schema: Switch = False,
    **flags: str | None,
) -> None:
    """Print all settings of a preset, file or run as TOML, which noisin train reads back.

    noisin show ptb-medium --train.epochs 40 > mine.toml; noisin train mine.toml makes the same run.

    Parameters
    ----------
    schema
        Print the JSON schema of such files instead, for editors that complete and check them.
    """
    if schema:
        tell(json.dumps(presets.schema(), indent=2))
    else:
        tell(presets.base(preset).resolved(nested(flags)))
