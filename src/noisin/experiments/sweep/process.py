"""The process of a worker: ``python -m noisin.experiments.sweep.process``.

It reads its job as one line of JSON from standard input, which stays open as long as the parent
process lives: when it closes, the worker saves and stops. It sends lines of JSON to standard
output; everything else that is printed goes to standard error, which is a log.
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
    """Stop when standard input closes, because then the parent process has died."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> NoReturn:
    """Run the job that standard input contains."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what libraries print is not a message

    def tell(message: Mapping[str, Any]) -> None:
        with suppress(OSError):  # the parent has died; standard input will close too
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
