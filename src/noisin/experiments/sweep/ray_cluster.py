"""The connection to a Ray cluster that runs, or to a new one on this machine alone.

A new cluster is reachable from this machine only, requires a token that only the user can read,
has no dashboard and sends no usage statistics; it ends with the command.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from noisin.errors import InvalidValue, Unavailable, Unsupported
from noisin.experiments.sweep.engine import available_threads

TIMEOUT = 10.0  # seconds until a cluster that does not answer is given up
OLDEST = (2, 52)  # older ones cannot require a token
STORE = 100 * 2**20  # bytes of the object store, which only messages pass through
TOKEN, MODE = "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"
OPEN = (
    "note: this Ray cluster requires no token, so whoever reaches it can run code on it. Start it "
    "with RAY_AUTH_MODE=token."
)


class RayCluster:
    """A Ray cluster to connect to.

    Args:
        address: ``HOST:PORT`` of a running cluster, or ``"auto"`` for that of this machine; None
            for that of ``RAY_ADDRESS``, or a new one.
        say: called with messages for the user.
    """

    def __init__(self, address: str | None, say: Callable[[str], None]) -> None:
        given = os.environ.get("RAY_ADDRESS") if address is None else address
        self.address = "local" if given is None else given
        self._place = None if self.address in ("auto", "local") else _host_and_port(self.address)
        self.say = say
        self._stack = ExitStack()

    def connect(self) -> Any:
        """Connect, or raise one message about what is wrong; return the module ``ray``."""
        with ExitStack() as stack:
            if self.address == "local":
                _close_to_others(stack)
            if self._place is not None:
                self._reach(self._place)
            ray = _imported()
            stack.callback(ray.shutdown)
            try:
                ray.init(self.address, **self._options())
            except (Exception, SystemExit) as error:
                raise self._unavailable(error) from None
            self._stack = stack.pop_all()
        if self.address != "local" and os.environ.get(MODE, "").lower() != "token":
            self.say(OPEN)
        return ray

    def _reach(self, place: tuple[str, int]) -> None:
        """Raise at once where nothing answers. Ray would try for minutes."""
        try:
            socket.create_connection(place, TIMEOUT).close()
        except OSError as error:
            raise self._unavailable(error) from None

    def disconnect(self) -> None:
        """Disconnect, and end a cluster that :meth:`connect` has started."""
        self._stack.close()

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
        if self.address == "local":
            options |= {"include_dashboard": False, "object_store_memory": STORE}
            options["num_cpus"] = available_threads()
        return options

    def _unavailable(self, error: BaseException) -> Unavailable:
        what = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if self.address == "local":
            return Unavailable(f"sweep: Ray cannot be started on this machine: {what}")
        return Unavailable(
            f"sweep: the Ray cluster at {self.address} cannot be used: {what.rstrip('.')}. Check "
            f"that it runs; if it requires a token, set RAY_AUTH_MODE=token and "
            f"RAY_AUTH_TOKEN_PATH to the file that contains it."
        )


def _host_and_port(address: str) -> tuple[str, int]:
    """The parts of an address.

    >>> _host_and_port("10.0.0.1:6379"), _host_and_port("[::1]:6379")
    (('10.0.0.1', 6379), ('::1', 6379))
    """
    host, _, port = address.rpartition(":")
    number = int(port) if port.isdecimal() and len(port) < 6 else 0
    if not host or "://" in address or not 0 < number < 2**16:
        raise InvalidValue(
            f"sweep: --address must be HOST:PORT or auto, got {address!r}. Run the command on a "
            f"node of the cluster, and not by a Ray client."
        )
    return host.strip("[]"), number


def _close_to_others(stack: ExitStack) -> None:
    """Let the cluster that is started next be reachable from this machine and with a token only.

    Ray reads the environment when it is imported.
    """
    if "ray" in sys.modules:
        raise Unsupported(
            "sweep: ray is imported already, so that it is too late to make a cluster that only "
            "this machine can reach. Start one by `ray start`, and pass its address."
        )
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="noisin-ray-")))
    token = folder / "token"
    token.touch(0o600)
    token.write_text(secrets.token_hex(32), encoding="ascii")
    new = {
        MODE: "token",
        TOKEN: str(token),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # the loopback address, on Linux too
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    before = {name: os.environ.pop(name, None) for name in (*new, "RAY_AUTH_TOKEN")}
    os.environ.update(new)

    def restore() -> None:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value

    stack.callback(restore)


def _imported() -> Any:
    import ray

    release = tuple(int(part) for part in ray.__version__.split(".")[:2])
    if release < OLDEST:
        raise Unsupported(
            f"sweep: --engine ray needs Ray 2.52 or newer, which can require a token, got "
            f"{ray.__version__}. Upgrade it: pip install --upgrade 'noisin[ray]'."
        )
    return ray
