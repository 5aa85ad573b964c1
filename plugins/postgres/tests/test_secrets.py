"""Passwords come from the environment or a file, and appear nowhere; TLS verifies the server."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from morello.db.default import open_store
from morello.errors import MorelloError
from tools.faults.pieces import TARGET, look, piece
from tools.fixtures import Cli, Write
from tools.postgres import PASSWORD, Server


@pytest.fixture
def filled(postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A database with piece 0, and a client that has nothing of it."""
    monkeypatch.setenv("MORELLO_CACHE_DIR", str(tmp_path / "owner"))
    with closing(open_store(postgres.address(trust="yes"))) as store:
        store.add(TARGET, piece(0))
    monkeypatch.setenv("MORELLO_CACHE_DIR", str(tmp_path / "client"))
    return postgres


def found(address: str) -> str:
    with closing(open_store(address)) as store:
        return look(store.whole(), 0)


def test_the_password_is_in_the_environment(filled: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    assert found(filled.address("secret", trust="yes")) == "all"


def test_the_password_is_in_a_file(filled: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pgpass").write_text(f"127.0.0.1:{filled.port}:*:secret:{PASSWORD}\n")
    (tmp_path / "pgpass").chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pgpass"))
    assert found(filled.address("secret", trust="yes")) == "all"


@pytest.mark.parametrize("place", ["user", "query"])
def test_a_password_in_an_address_is_refused(place: str, filled: Server, cli: Cli, write: Write) -> None:
    address = filled.address("secret", **({"password": PASSWORD} if place == "query" else {}))
    if place == "user":
        address = address.replace("secret@", f"secret:{PASSWORD}@")
    result = cli("compile", write(), "--db", address)
    assert result.exit_code == 1
    assert "PGPASSWORD" in result.stderr
    assert PASSWORD not in result.output + result.stderr


def test_a_wrong_password_is_not_shown(filled: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "Wrong-77")
    with pytest.raises(MorelloError) as caught:
        found(filled.address("secret"))
    assert "secret" in caught.value.message
    assert "Wrong-77" not in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.slow
def test_no_trace_of_a_password_is_left(filled: Server, write: Write, tmp_path: Path) -> None:
    environment = {**os.environ, "PGPASSWORD": PASSWORD, "XDG_STATE_HOME": str(tmp_path / "state")}
    environment["MORELLO_CACHE_DIR"] = str(tmp_path / "cache")
    # A search that crashes writes a report, with the command and its facts.
    crashing = "import morello.api as api, morello.cli.app as app; api.prepare = lambda *_: {}['x']; app.main()"
    said = b""
    for command in (["-m", "morello"], ["-c", crashing]):
        arguments = ["compile", write(), "-v", "--db", filled.address("secret")]
        process = subprocess.Popen(
            [sys.executable, *command, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        listed = subprocess.run(["ps", "-A", "-ww", "-o", "args="], capture_output=True, check=True).stdout
        assert PASSWORD.encode() not in listed
        said += process.communicate()[0]
    assert b"the report is in" in said
    assert PASSWORD.encode() not in said
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any("crash" in path.name for path in files)
    assert not [path for path in files if PASSWORD.encode() in path.read_bytes() or PASSWORD in str(path)]
    assert PASSWORD not in (filled.folder / "log").read_text()


def test_tls_verifies_the_server(filled: Server, tmp_path: Path) -> None:
    certificate = filled.certificate()
    safe = filled.address("writer", trust="yes", sslmode="verify-full", sslrootcert=str(certificate))
    assert found(safe.replace("127.0.0.1", "localhost")) == "all"
    with pytest.raises(MorelloError, match="does not match host name"):
        found(safe)
    other = tmp_path / "other.crt"
    key = tmp_path / "other.key"
    subject = ["-subj", "/CN=localhost", "-days", "2", "-keyout", key, "-out", other]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject], check=True, capture_output=True
    )
    forged = filled.address("writer", sslmode="verify-full", sslrootcert=str(other))
    with pytest.raises(MorelloError, match="certificate"):
        found(forged.replace("127.0.0.1", "localhost"))
