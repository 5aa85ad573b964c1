"""A private PostgreSQL server for tests, faults and benchmarks: in a temporary folder, on loopback."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import attrs
import pytest

#: The roles of each database: `owner` makes the schema, `writer` and `reader` may do no more than their names say.
#: `secret` writes, and is the only one that needs a password.
ROLES = ("owner", "writer", "reader", "secret")
PASSWORD = "Hush-5b1f"
#: The user of the server where root runs the tests, as PostgreSQL refuses root.
USERS = ("postgres", "nobody")
#: Seconds for the server to start, or for a replica to follow.
PATIENCE = 60
_ACCESS = """local all all trust
local replication all trust
host replication all 127.0.0.1/32 trust
host all secret 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 trust
"""
_GRANTS = """CREATE DATABASE {0} OWNER owner; \\c {0}
REVOKE CREATE ON SCHEMA public FROM PUBLIC; GRANT ALL ON SCHEMA public TO owner;
ALTER DEFAULT PRIVILEGES FOR ROLE owner GRANT SELECT ON TABLES TO reader, writer, secret;
ALTER DEFAULT PRIVILEGES FOR ROLE owner GRANT INSERT, UPDATE, DELETE ON TABLES TO writer, secret;
ALTER DEFAULT PRIVILEGES FOR ROLE owner GRANT USAGE ON SEQUENCES TO writer, secret;
"""
_numbers = itertools.count()


def programs() -> Path | None:
    """Return the folder of PostgreSQL's programs, that of the newest version, or None where there is none."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    folders = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    return max(folders, key=lambda folder: int(folder.parent.name), default=None)


def server_user() -> dict[str, Any]:
    """Return the options of subprocess for the server's user: this one, unless it is root."""
    if os.geteuid():
        return {}
    known = {one.pw_name: one for one in pwd.getpwall()}
    one = next(known[name] for name in USERS if name in known)
    return {"user": one.pw_uid, "group": one.pw_gid, "extra_groups": []}


@attrs.frozen
class Server:
    """A running PostgreSQL, and one of its databases."""

    folder: Path
    port: int
    database: str = "postgres"

    def address(self, role: str = "owner", **parameters: str) -> str:
        """Return the address of the database for a role, with parameters of libpq or Morello."""
        query = f"?{urlencode(parameters)}" if parameters else ""
        return f"postgresql://{role}@127.0.0.1:{self.port}/{self.database}{query}"

    def sql(self, text: str) -> str:
        """Run SQL as the superuser; return the rows, a line each, with `|` between columns."""
        command = ["-XqAt", "-v", "ON_ERROR_STOP=1", "-h", str(self.folder), "-p", str(self.port), self.database]
        return self.run("psql", *command, input=text).strip()

    def run(self, program: str, *arguments: str, **options: Any) -> str:
        """Run one of PostgreSQL's programs as the user of the server; return its output."""
        folder = programs()
        assert folder
        environment = {**os.environ, "PGUSER": "postgres", "LC_ALL": "C", "PGTZ": "UTC"}
        command = [str(folder / program), *arguments]
        # A server that is started keeps its standard output open, so that goes into a file.
        with tempfile.TemporaryFile("w+") as output:
            done = subprocess.run(
                command, stdout=output, stderr=output, text=True, cwd="/", env=environment, **server_user(), **options
            )
            output.seek(0)
            if done.returncode:
                raise RuntimeError(f"{program} failed: {output.read()}")
            return output.read()

    def configure(self, **settings: object) -> None:
        """Change settings, which count from now on or, if it has to, from the next start on."""
        with (self.folder / "data" / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        if (self.folder / "data" / "postmaster.pid").exists():
            self.run("pg_ctl", "reload", "-D", str(self.folder / "data"))

    def start(self) -> None:
        """Start it, and return when it answers."""
        log = str(self.folder / "log")
        self.run("pg_ctl", "start", "-w", "-t", str(PATIENCE), "-l", log, "-D", str(self.folder / "data"))

    def stop(self) -> None:
        """Stop it without waiting for clients, if it runs."""
        if (self.folder / "data" / "postmaster.pid").exists():
            self.run("pg_ctl", "stop", "-m", "immediate", "-D", str(self.folder / "data"))

    def kill9(self) -> None:
        """Kill all of its processes at once."""
        lock = self.folder / "data" / "postmaster.pid"
        parent = int(lock.read_text().split()[0])
        pairs = [line.split() for line in _ps("-A", "-o", "pid=,ppid=")]
        processes = [str(parent), *(child for child, of in pairs if of == str(parent))]
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)
        while not all(state.startswith("Z") for state in _ps("-o", "stat=", "-p", ",".join(processes))):
            time.sleep(0.01)
        # They name a process that is dead, but perhaps still listed, which PostgreSQL would take for a server.
        for file in (lock, *self.folder.glob(".s.PGSQL.*.lock")):
            file.unlink()

    def create_database(self) -> Server:
        """Return this server with a new database, in which no table is."""
        name = f"test{next(_numbers)}"
        self.sql(_GRANTS.format(name))
        return attrs.evolve(self, database=name)

    def certificate(self) -> Path:
        """Let it offer TLS as `localhost`; return the certificate that clients have to trust."""
        key, certificate = self.folder / "data" / "server.key", self.folder / "server.crt"
        subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "2"]
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject, "-keyout", key]
        subprocess.run([*command, "-out", certificate], check=True, capture_output=True, **server_user())
        self.configure(ssl="on", ssl_cert_file=certificate)
        return certificate

    @contextmanager
    def standby(self) -> Iterator[Server]:
        """Yield a replica that can be read only, and follows this server."""
        with temporary_folder() as folder:
            data = str(folder / "data")
            self.run("pg_basebackup", "-h", str(self.folder), "-p", str(self.port), "-R", "-c", "fast", "-D", data)
            replica = attrs.evolve(self, folder=folder, port=free_port())
            replica.configure(port=replica.port, unix_socket_directories=folder)
            replica.start()
            try:
                yield replica
            finally:
                replica.stop()

    @contextmanager
    def small_disk(self, size: str) -> Iterator[Path | None]:
        """Within a block, keep the database on a small disk; yield its folder, or None if none may be mounted."""
        disk = self.folder / "disk"
        disk.mkdir()
        if subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], capture_output=True
        ).returncode:
            yield None
            return
        elsewhere = attrs.evolve(self, database="template1")
        leave = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{self.database}';"
        move = f"{leave} ALTER DATABASE {self.database} SET TABLESPACE"
        try:
            os.chown(disk, server_user()["user"], server_user()["group"])
            elsewhere.sql(f"CREATE TABLESPACE small LOCATION '{disk}'")
            elsewhere.sql(f"{move} small")
            yield disk
        finally:
            elsewhere.sql(f"{move} pg_default; DROP TABLESPACE IF EXISTS small")
            subprocess.run(["umount", disk], check=True)

    def follow(self, primary: Server) -> None:
        """Wait until this replica has everything that was committed on the primary."""
        position = primary.sql("SELECT pg_current_wal_lsn()")
        end = time.monotonic() + PATIENCE
        while self.sql(f"SELECT pg_last_wal_replay_lsn() >= '{position}'") != "t":
            assert time.monotonic() < end, "the replica does not follow"
            time.sleep(0.05)


def _ps(*options: str) -> list[str]:
    return subprocess.run(["ps", *options], capture_output=True, text=True).stdout.splitlines()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a folder of the server's user, with a path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp") as name:
        if user := server_user():
            os.chown(name, user["user"], user["group"])
        yield Path(name)


@contextmanager
def server() -> Iterator[Server]:
    """Yield a new server with its roles, and remove it in the end."""
    with temporary_folder() as folder:
        one = Server(folder, free_port())
        one.run("initdb", "-D", str(folder / "data"), "-U", "postgres", "-E", "UTF8", "-A", "trust")
        (folder / "data" / "pg_hba.conf").write_text(_ACCESS)
        one.configure(port=one.port, listen_addresses="127.0.0.1", unix_socket_directories=folder)
        one.start()
        try:
            for role in ROLES:
                one.sql(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'")
            yield one
        finally:
            one.stop()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """A server for all tests of the session; a test that kills it starts it again."""
    if not programs():
        pytest.skip("PostgreSQL is not installed")
    with server() as one:
        yield one


@pytest.fixture
def postgres(postgres_server: Server) -> Server:
    """A database of this test's own."""
    return postgres_server.create_database()
