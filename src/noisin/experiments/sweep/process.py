"""The process of a worker: ``python -m noisin.experiments.sweep.process``.

It is told what to do by one line of JSON on standard input, which then stays open as long as the
one who started it lives: when it closes, the worker saves and stops. It answers with lines of JSON
on standard output; whatever else is printed goes to standard error, which is a log.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NoReturn

from noisin.errors import NoisinError
from noisin.experiments.sweep.worker import Job, Worker
from noisin.training.runtime.signals import Interrupted, caught


def _stop_with_parent() -> None:
    """Stop when standard input closes: whoever started us has died."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> NoReturn:
    """Do what standard input says."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no answer

    def tell(message: Mapping[str, Any]) -> None:
        with suppress(OSError):  # nobody listens any more, and we shall soon hear of it
            os.write(answers, (json.dumps(message) + "\n").encode())

    with caught() as flag:
        line = b""
        while not line.endswith(b"\n"):
            line += os.read(0, 1 << 20) or b"\n"
        threading.Thread(target=_stop_with_parent, daemon=True).start()
        try:
            import torch

            job = Job(**json.loads(line))
            torch.set_num_threads(job.threads)
            Worker(job, flag, tell).work()
        except NoisinError as error:
            tell({"error": str(error)})
            sys.exit(2)
        except Interrupted as error:
            sys.exit(error.exit_code)
        except KeyboardInterrupt:
            sys.exit(130)
    sys.exit(0)


if __name__ == "__main__":
    main()
