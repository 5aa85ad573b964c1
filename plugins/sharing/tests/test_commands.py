"""`morello db push` and `morello db pull`: arguments, keys, addresses and messages."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import Result
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from morello_sharing import private_key, public_key
from morello_sharing.keys import VARIABLE

from morello.api import open_database
from tools.fixtures import Cli

from .conftest import KEY, PUBLIC, filled, lines

PRIVATE_TEXT = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
SECRET = PRIVATE_TEXT.splitlines()[1]


@pytest.fixture
def keys(tmp_path: Path) -> tuple[str, str]:
    """The files of a private and a public key."""
    private, public = tmp_path / "private.pem", tmp_path / "public.pem"
    private.write_text(PRIVATE_TEXT)
    public.write_bytes(PUBLIC.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return str(private), str(public)


def fails(result: Result, *words: str, code: int = 1) -> None:
    assert (result.exit_code, result.stdout) == (code, "")
    assert all(word in result.stderr for word in words), result.stderr
    assert SECRET not in result.stderr


@pytest.mark.slow
def test_push_and_pull_print_what_they_moved(cli: Cli, keys: tuple[str, str], tmp_path: Path) -> None:
    private, public = keys
    a, b, shared = str(tmp_path / "a.db"), str(tmp_path / "b.db"), str(tmp_path / "shared")
    filled(Path(a), [1])
    none = cli("db", "pull", b, shared, "--key", public)
    assert none.stdout == f"nothing to pull: {shared} has no answers of these keys for installed targets\n"
    pushed = cli("db", "push", a, shared, "--key", private)
    assert "reference_c: " in pushed.stdout
    assert "1 of 1 objects are new" in pushed.stdout
    assert "0 of 1 objects are new: 0 bytes" in cli("db", "push", a, shared, **{VARIABLE: PRIVATE_TEXT}).stdout
    pulled = cli("db", "pull", b, shared, "--key", public, "--key", public, "--trust")
    assert pulled.stdout.count("rectangles") == 1
    assert lines(open_database(a)) == lines(open_database(b))
    again = cli("db", "pull", b, shared, "--key", public, "--trust")
    assert "reference_c: nothing new, signed by" in again.stdout
    empty = str(tmp_path / "empty.db")
    filled(Path(empty), [1], unverified=True)
    left = cli("db", "push", empty, shared, "--key", private)
    assert left.stdout == f"nothing to push: {empty} has no verified answers for installed targets\n"


@pytest.mark.slow
def test_keys_that_do_not_fit(cli: Cli, keys: tuple[str, str], tmp_path: Path) -> None:
    private, public = keys
    filled(tmp_path / "a.db", [1])
    push, pull = ("db", "push", str(tmp_path / "a.db"), "x"), ("db", "pull", str(tmp_path / "b.db"), "x")
    rsa = tmp_path / "rsa.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "rsa", "-out", rsa], check=True, capture_output=True)
    locked = tmp_path / "locked.pem"
    lock = ["openssl", "pkey", "-in", private, "-aes256", "-passout", "pass:x", "-out", locked]
    subprocess.run(lock, check=True, capture_output=True)
    for path in (public, str(rsa), str(locked)):
        fails(cli(*push, "--key", path), path, "is not a private Ed25519 key", "openssl genpkey")
    for path in (private, str(rsa)):
        fails(cli(*pull, "--key", path), path, "is not a public Ed25519 key", "-pubout")
    fails(cli(*push), "there is no private key", VARIABLE)
    fails(cli(*push, **{VARIABLE: f"{SECRET}\n"}), VARIABLE, "is not a private")
    fails(cli(*push, "--key", "missing.pem"), "cannot read missing.pem")
    fails(cli(*pull), "--key", code=2)
    assert not (tmp_path / "b.db").exists()


def test_openssl_makes_the_keys(tmp_path: Path) -> None:
    private, public = tmp_path / "private.pem", tmp_path / "public.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True)
    public_key(str(public)).verify(private_key(str(private)).sign(b"text"), b"text")


@pytest.mark.parametrize(
    ("address", "word", "hint"),
    [
        ("https://me:hunter2@host/x", "holds a password or a query", "environment variables"),
        ("https://host/x?sig=hunter2", "holds a password or a query", "environment variables"),
        ("simplecache::s3://me:hunter2@host/x", "holds a password or a query", "environment variables"),
        ("nix://x", "Protocol not known: nix", "s3://BUCKET/FOLDER"),
        ("sftp://host.invalid/x", "sftp://host.invalid/x", "pip install 'fsspec[sftp]'"),
        ("http://127.0.0.1:1/x", "http://127.0.0.1:1/x", ""),
    ],
)
def test_addresses_that_lead_nowhere(
    address: str, word: str, hint: str, cli: Cli, keys: tuple[str, str], tmp_path: Path
) -> None:
    filled(tmp_path / "a.db", [1])
    for way, key in zip(("push", "pull"), keys, strict=True):
        result = cli("db", way, str(tmp_path / "a.db"), address, "--key", key)
        fails(result, word, hint)
        assert "hunter2" not in result.stderr


def test_help_lists_the_commands(cli: Cli) -> None:
    found = cli("db", "--help").stdout
    assert "\n  pull " in found
    assert "\n  push " in found
    assert "db push" not in cli("--help").stdout


@pytest.mark.usefixtures("no_plugins")
def test_a_missing_distribution_is_named(cli: Cli) -> None:
    fails(cli("db", "push", "a", "b"), "`morello db push` is not installed", "pip install morello-sharing")
    assert "no such command" in cli("db", "pusj").stderr


@pytest.fixture
def no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("morello.cli.app.plugin_commands", list)
