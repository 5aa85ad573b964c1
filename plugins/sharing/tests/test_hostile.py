"""Whatever is at an address: it gives one message, and nothing is stored."""

from __future__ import annotations

import hashlib
import json
import zlib
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from morello_sharing import pull, push
from morello_sharing.contents import MOST_MANIFEST, Manifest

from morello.db.store import SpecStore
from morello.db.tables import FingerprintedTarget
from morello.errors import MorelloError
from tools.faults.pieces import TARGET

from .conftest import KEY, OTHER, PUBLIC, filled, lines, serving

OWNER = FingerprintedTarget.of(TARGET)


@attrs.frozen
class Shared:
    """An address with answers, and a database that pulls from there."""

    folder: Path
    reader: SpecStore

    @property
    def manifest(self) -> Path:
        return self.folder / Manifest.name(OWNER, PUBLIC)

    @property
    def object(self) -> Path:
        return next((self.folder / "objects").iterdir())

    def refused(self, *words: str) -> None:
        """See that pulling is an error with words, after which the database is as it was."""
        before = lines(self.reader)
        with pytest.raises(MorelloError) as error:
            pull(self.reader, str(self.folder), [PUBLIC], trust=True)
        assert all(word in error.value.message for word in (str(self.folder), *words)), error.value
        assert error.value.hint
        assert lines(self.reader) == before

    def sign(self, *objects: bytes) -> None:
        """Sign objects as the owner of the key would."""
        digests = [hashlib.sha256(one).hexdigest() for one in objects]
        for digest, data in zip(digests, objects, strict=True):
            (self.folder / "objects" / digest).write_bytes(data)
        manifest = Manifest(OWNER, {one: len(data) for one, data in zip(digests, objects, strict=True)})
        self.manifest.write_bytes(manifest.signed(KEY))


@pytest.fixture
def shared(tmp_path: Path) -> Shared:
    push(filled(tmp_path / "a.db", range(2)), str(tmp_path / "shared"), KEY)
    return Shared(tmp_path / "shared", filled(tmp_path / "reader.db", [7]))


@pytest.mark.slow
def test_every_byte_of_manifest_and_object_counts(shared: Shared) -> None:
    for path, step in ((shared.manifest, 3), (shared.object, 29)):
        right = path.read_bytes()
        for at in range(0, len(right), step):
            path.write_bytes(right[:at] + bytes([right[at] ^ 1 << at % 8]) + right[at + 1 :])
            shared.refused(path.name, "is refused")
        for wrong in (b"", right[:64], right[:-1], right + b" ", right[1:]):
            path.write_bytes(wrong)
            shared.refused(path.name, "is refused")
        path.write_bytes(right)


def test_manifests_of_others_are_refused(shared: Shared) -> None:
    objects = {shared.object.name: shared.object.stat().st_size}
    for owner, key, word in (
        (OWNER, OTHER, "did not sign"),
        (attrs.evolve(OWNER, fingerprint="0" * 32), KEY, "another target or fingerprint"),
        (attrs.evolve(OWNER, name="x86_avx2"), KEY, "another target or fingerprint"),
        (attrs.evolve(OWNER, levels="GL:1/1/1"), KEY, "another target or fingerprint"),
    ):
        shared.manifest.write_bytes(Manifest(owner, objects).signed(key))
        shared.refused(word)


def test_objects_that_are_missing_or_swapped(shared: Shared, tmp_path: Path) -> None:
    push(filled(tmp_path / "b.db", [9]), str(shared.folder), OTHER)
    first, second = (shared.folder / "objects").iterdir()
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)
    shared.refused("it is not what was signed")
    first.unlink()
    second.unlink()
    shared.refused("it is missing")


def test_signed_objects_are_not_trusted_either(shared: Shared) -> None:
    right = shared.object.read_bytes()
    text = zlib.decompress(right).decode()
    for wrong, word in (
        (b"", "an object has 1 to"),
        (b"plain text", "incorrect header"),
        (zlib.compress(b""), "no text"),
        (zlib.compress(b"\xff"), "utf-8"),
        (zlib.compress(text.encode())[:-1], "it is cut"),
        (zlib.compress(text.encode()) + b"\0", "it is cut"),
        (zlib.compress(text.replace(OWNER.fingerprint, "0" * 32).encode()), "another target"),
        (zlib.compress(text.replace('"exact"', '"right"').encode()), "RIGHT"),
    ):
        shared.sign(right, wrong)
        shared.refused(word)


def test_bombs_are_refused_before_they_are_unpacked(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("morello_sharing.contents._MOST_TEXT", 1 << 20)
    shared.sign(zlib.compress(b" " * (1 << 20) + b" "))
    shared.refused("has more than 1,048,576 bytes of text")
    shared.manifest.write_bytes(b" " * (MOST_MANIFEST + 9))
    shared.refused("it has more than 4 MiB")


WORDS = [*"[] {} -1 1e9 NaN true null \u2028 \\ud800 \x1b".split(" "), "9" * 30, "[" * 99, '"x"', "\n"]
FIELDS = st.sampled_from(["morello answers", "fingerprint", "name", "levels", "objects", "0" * 64])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner),
    max_leaves=9,
)


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_signed_text_is_answers_or_a_message(shared: Shared, data: st.DataObject) -> None:
    """The owner of a key signs a text in which some characters, words or lines are others."""
    push(filled(shared.folder.parent / "a.db", range(2)), str(shared.folder), KEY)
    manifest = json.loads(shared.manifest.read_bytes()[64:])
    (digest,) = [*manifest["objects"]][:1]
    text = zlib.decompress((shared.folder / "objects" / digest).read_bytes()).decode()
    at = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(at, min(at + 40, len(text))))
    part = data.draw(st.sampled_from(WORDS) | st.text(max_size=5))
    changed = (text[:at] + part + text[end:]).encode("utf-8", "surrogatepass")
    shared.sign(zlib.compress(changed))
    reader = SpecStore(shared.folder.parent / "fresh.db")
    before = lines(reader)
    try:
        pull(reader, str(shared.folder), [PUBLIC])
    except MorelloError:
        assert lines(reader) == before
    shared.manifest.unlink()


@pytest.mark.slow
@given(fields=VALUES)
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_signed_manifest_is_one_message(shared: Shared, fields: object) -> None:
    right = {"morello answers": 1, **attrs.asdict(OWNER)}
    for value in (fields, {**right, "objects": fields}):
        text = json.dumps(value).encode()
        shared.manifest.write_bytes(KEY.sign(text) + text)
        if value != {**right, "objects": {}}:
            shared.refused("is refused")


ANSWERS: dict[str, tuple[bytes, str]] = {
    "forbidden": (b"HTTP/1.1 403 \x1b[31mNo\r\nContent-Length: 0\r\n\r\n", "403"),
    "failure": (b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", "500"),
    "cut": (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nshort", "cannot read"),
    "noise": (b"\0\xff\x1b]0;title\x07\r\n\r\n", "cannot read"),
    "nothing": (b"", "cannot read"),
    "endless": (b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (MOST_MANIFEST + 2**20), "it has more than 4 MiB"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_web_servers_that_misbehave(name: str, http: str, shared: Shared) -> None:
    data, word = ANSWERS[name]

    class Handler(BaseHTTPRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            self.wfile.write(data)

    before = lines(shared.reader)
    for address in serving(Handler):
        with pytest.raises(MorelloError, match=word) as error:
            pull(shared.reader, address, [PUBLIC])
        assert address in error.value.message
        assert error.value.message.isprintable()
    assert lines(shared.reader) == before
