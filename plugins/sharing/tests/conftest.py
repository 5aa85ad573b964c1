"""Databases, keys and addresses to share through."""

from __future__ import annotations

import importlib.util
import threading
import uuid
from collections.abc import Iterable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fsspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from morello.db.export_import import export_lines
from morello.db.store import SpecStore
from tools.faults.pieces import TARGET, piece

KEY, OTHER = (Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32) for seed in (1, 2))
PUBLIC = KEY.public_key()


@pytest.fixture(autouse=True)
def one_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only one target be installed: fingerprints of all take seconds."""
    monkeypatch.setattr("morello_sharing.exchange.targets_of", lambda store: [TARGET])


def filled(path: Path, numbers: Iterable[int], *, unverified: bool = False) -> SpecStore:
    """Return a database of pieces."""
    store = SpecStore(path)
    store.add(TARGET, [block for number in numbers for block in piece(number)], unverified=unverified)
    return store


def lines(store: SpecStore) -> list[str]:
    return [*export_lines(store)]


@pytest.fixture
def quiet() -> type[SimpleHTTPRequestHandler]:
    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


def serving(handler: object) -> Iterator[str]:
    """Yield the address of a web server on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:  # type: ignore[arg-type]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def http(tmp_path: Path, quiet: type[SimpleHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server of the folder `tmp_path`/shared."""
    if not importlib.util.find_spec("aiohttp"):
        pytest.skip("needs pip install 'fsspec[http]'")
    yield from serving(partial(quiet, directory=str(tmp_path / "shared")))


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The address of a bucket on this machine."""
    if not all(map(importlib.util.find_spec, ("s3fs", "moto", "flask_cors"))):
        pytest.skip("needs pip install 'morello-sharing[test]'")
    from moto.server import ThreadedMotoServer  # pyright: ignore[reportMissingImports]

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", "http://{}:{}".format(*server.get_host_and_port()))
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        fsspec.filesystem("s3").mkdir("bucket")
        yield "s3://bucket"
    server.stop()


@pytest.fixture(params=["file", "memory", "http", "s3"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """An address to push to, and the one to pull from."""
    own = uuid.uuid4().hex
    if request.param == "s3":
        bucket = request.getfixturevalue("s3")
        return f"{bucket}/{own}", f"{bucket}/{own}"
    folder = f"memory://{own}" if request.param == "memory" else str(tmp_path / "shared")
    if request.param == "memory":
        fsspec.filesystem("memory").mkdir(f"/{own}")
    return folder, request.getfixturevalue("http") if request.param == "http" else folder
