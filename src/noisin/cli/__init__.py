"""The command line: ``noisin train``, ``evaluate``, ``generate`` and more. Nothing else prints.

A command is imported when it is called, and imports torch when it runs, so that ``--help`` is
instant.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cyclopts import App, CycloptsError

import noisin
from noisin._util import wording
from noisin.cli.consoles import Results, prepare, silence
from noisin.errors import NoisinError

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
NO_MEMORY = "Not enough memory. Use a smaller model or a smaller batch."

# The commands in the order of the help, each with the first paragraph of its own.
COMMANDS: Mapping[str, str] = {
    "train": "Train a model of text, music or series. Run the same command again to continue a run "
    "that was stopped.",
    "evaluate": "Score a trained model on its data, and add the score to evaluations.jsonl in its "
    "folder.",
    "generate": "Continue a prompt, draw a piece of music, or forecast a series with a trained "
    "model.",
    "tune": "Find a good strength of the noise, and a learning rate beside it, within a budget.",
    "sweep": "Make many runs with several processes. The same command continues a sweep that was "
    "stopped.",
    "collect": "Copy the finished records of several folders into one. Run it again to add what "
    "is new.",
    "table": "Show a table of your own runs, or a table of the paper next to them.",
    "figure": "Draw a figure of the paper from your own runs. The paper has one.",
    "report": "Write a page about all runs of a folder: curves, tables, settings. It works "
    "offline.",
    "data": "Show facts about data: of a text, tokens, words, unknown words, and the overlap with "
    "train.",
    "show": "Print all settings of a preset, file or run as TOML, which noisin train reads back.",
    "verify": "Check the mathematical claims of the paper, one row each, with standard errors.",
}


def build_app(tokens: Sequence[str] = ()) -> App:
    """The command line, of which the command that the tokens name is imported, and no other."""
    app = App(
        name="noisin",
        help="Unbiased noise regularization for recurrent neural networks.",
        version=noisin.__version__,
        result_action="return_value",
        exit_on_error=False,
        print_error=False,
        suppress_keyboard_interrupt=False,
    )
    called = next((token for token in tokens if token in COMMANDS), None)
    for order, (name, summary) in enumerate(COMMANDS.items()):
        words = None if name == called else summary  # None for those of its docstring
        app.command(f"noisin.cli.{name}:{name}", name=name, help=words, sort_key=order)
    app.register_install_completion_command(
        help="Install completion of commands and options for your shell: bash, zsh or fish.",
        sort_key=len(COMMANDS),
    )
    return app


def main(tokens: Sequence[str] | None = None) -> None:
    """Run the command line. Bad input gives one message and exit code 2."""
    prepare()
    with warnings.catch_warnings(), _shown_log():
        warnings.showwarning = _show_warning
        sys.exit(_run(tokens))


def _run(tokens: Sequence[str] | None) -> int:
    try:
        given = sys.argv[1:] if tokens is None else tokens
        code = build_app(given)(given, console=Results())
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
