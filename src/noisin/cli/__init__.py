"""The command line: ``noisin train``, ``evaluate``, ``generate`` and more. Nothing else prints.

Commands import torch when they run, so that ``--help`` is instant and needs none.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Iterator, Sequence
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
_RUNS = ("train", "evaluate", "generate", "tune", "sweep", "collect")
_RESULTS = ("table", "figure", "report")
for _order, _command in enumerate((*_RUNS, *_RESULTS, "data", "show", "verify")):
    app.command(getattr(import_module(f"noisin.cli.{_command}"), _command), sort_key=_order)
app.register_install_completion_command(
    help="Install completion of commands and options for your shell: bash, zsh or fish.",
    sort_key=99,
)


def main(tokens: Sequence[str] | None = None) -> None:
    """Run the command line. Bad input gives one message and exit code 2."""
    prepare()
    with warnings.catch_warnings(), _shown_log():
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


class _Handler(logging.Handler):
    """Shows what the library logs, such as that it compiles the kernel, which takes a while."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message."""
        _say(record.getMessage())


@contextlib.contextmanager
def _shown_log() -> Iterator[None]:
    logger, handler = logging.getLogger("noisin"), _Handler()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
