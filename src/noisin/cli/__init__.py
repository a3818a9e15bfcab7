"""The command line: ``noisin train``, ``evaluate``, ``generate`` and more. Nothing else prints.

Commands import torch when they run, so that ``--help`` is instant and needs none.
"""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from cyclopts import App, CycloptsError

import noisin
from noisin._util import wording
from noisin.cli.consoles import Results, prepare, silence
from noisin.errors import NoisinError

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
NO_MEMORY = "Not enough memory. Use a smaller model or a smaller batch."

app = App(
    name="noisin",
    help="Unbiased noise regularization for recurrent neural networks.",
    version=noisin.__version__,
    result_action="return_value",
    exit_on_error=False,
    print_error=False,
    suppress_keyboard_interrupt=False,
)
_RUNS = ("train", "evaluate", "generate", "sweep", "collect")
_RESULTS = ("table", "figure", "report")
for _order, _command in enumerate((*_RUNS, *_RESULTS, "data", "verify")):
    app.command(getattr(import_module(f"noisin.cli.{_command}"), _command), sort_key=_order)


def main(tokens: Sequence[str] | None = None) -> None:
    """Run the command line. Bad input gives one message and exit code 2."""
    prepare()
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        sys.exit(_run(tokens))


def _run(tokens: Sequence[str] | None) -> int:
    try:
        code = app(tokens, console=Results())
        if sys.stdout is not None:  # None if it was closed before the start
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output, such as head, has stopped reading
        silence(sys.stdout.fileno())
        return 0
    except (CycloptsError, NoisinError, OSError) as error:
        _say(error)
        return FAILED if isinstance(error, ArithmeticError) else BAD_INPUT
    except (MemoryError, RuntimeError) as error:
        if not _is_about_memory(error):
            raise
        _say(f"{NO_MEMORY} {str(error).splitlines()[0] if str(error) else ''}".rstrip())
        return BAD_INPUT
    except KeyboardInterrupt as error:
        _say(str(error) or "interrupted.")
        return getattr(error, "exit_code", INTERRUPTED)
    return code if isinstance(code, int) else 0


def _is_about_memory(error: Exception) -> bool:
    """Torch raises a plain RuntimeError if the memory of the CPU is not sufficient."""
    words = ("can't allocate memory", "out of memory", "not enough memory")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


def _say(said: object) -> None:
    lines = wording.message(str(said)).split("\n")
    text = "\n".join([lines[0], *(f"  {line.strip()}" for line in lines[1:])])
    with contextlib.suppress(OSError):  # the exit code shows it too
        print(f"noisin: {text}", file=sys.stderr or io.StringIO(), flush=True)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    _say(message)
