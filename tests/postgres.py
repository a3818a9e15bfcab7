"""A real PostgreSQL server on loopback, for tests: started as its own user, with a password."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PASSWORD = "a-secret-that-must-not-appear-0451"  # grepped for everywhere
FOUND = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
USER = "postgres"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class PostgresServer:
    """A server with its data in a folder; it can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.bin = FOUND[-1].parent
        (folder / "password").write_text(PASSWORD)
        if os.geteuid() == 0:
            shutil.chown(folder, USER, USER)
            shutil.chown(folder / "password", USER, USER)
        self._run("initdb", "-D", str(self.data), "-U", "noisin", "-A", "scram-sha-256",
                  f"--pwfile={folder / 'password'}", "--no-sync", "-E", "UTF8")  # fmt: skip
        (folder / "password").unlink()
        self.start()
        self._create()

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def address(self) -> str:
        """Without the password."""
        return f"postgresql+psycopg://noisin@127.0.0.1:{self.port}/sweeps"

    @property
    def secret_address(self) -> str:
        return self.address.replace("noisin@", f"noisin:{PASSWORD}@")

    @property
    def pid(self) -> int:
        return int((self.data / "postmaster.pid").read_text().split()[0])

    def start(self, more: str = "") -> None:
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        options, log = f"{options} {more}", str(self.folder / "log")
        self._run("pg_ctl", "-D", str(self.data), "-w", "-l", log, "-o", options, "start")

    def kill(self) -> None:
        """As a power failure: the server is gone, with all of its connections."""
        os.kill(self.pid, signal.SIGQUIT)
        while (self.data / "postmaster.pid").exists():
            signal.sigtimedwait([], 0.05)

    def stop(self) -> None:
        if (self.data / "postmaster.pid").exists():
            self._run("pg_ctl", "-D", str(self.data), "-m", "immediate", "-w", "stop")

    def _create(self) -> None:
        import psycopg

        postgres = self.secret_address.replace("+psycopg", "").replace("/sweeps", "/postgres")
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute("CREATE DATABASE sweeps")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self.bin / program), *arguments]
        if os.geteuid() == 0:
            command = ["runuser", "-u", USER, "--", *command]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    if not FOUND:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    pytest.importorskip("psycopg")
    with tempfile.TemporaryDirectory(prefix="noisin-postgres-") as name:
        server = PostgresServer(Path(name))
        try:
            yield server
        finally:
            server.stop()
