"""The contents of an address: signed manifests, and the objects that they list."""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from collections.abc import Iterable, Iterator

import attrs
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from morello.db.export_import import import_lines, table_lines
from morello.db.tables import AnswerTable, FingerprintedTarget
from morello.errors import MorelloError
from morello.untrusted import MAX_FILE_BYTES, MAX_LINES_BYTES, parse_json
from morello_sharing.address import Address
from morello_sharing.keys import key_id

FORMAT = 1
_HEADER = "morello answers"
_SIGNATURE = 64
MOST_MANIFEST = 4 * 2**20
#: Bytes of text beyond which tables go to several objects. Compressed, this is about 1 MiB.
_SHARD = 2**24
#: The most bytes of the text of an object.
_MOST_TEXT = 2**28


@attrs.frozen
class Manifest:
    """The objects with the answers of one fingerprint: their bytes, by SHA-256 in hexadecimal digits."""

    owner: FingerprintedTarget
    objects: dict[str, int]

    @staticmethod
    def name(owner: FingerprintedTarget, key: Ed25519PublicKey) -> str:
        """Return the name at an address, which a reader that cannot list files knows."""
        return f"{owner.fingerprint}/{key_id(key)}"

    def signed(self, key: Ed25519PrivateKey) -> bytes:
        """Return the bytes of the file: a signature of 64 bytes, and the JSON text that it signs."""
        fields = {_HEADER: FORMAT, **attrs.asdict(self.owner), "objects": dict(sorted(self.objects.items()))}
        text = json.dumps(fields, ensure_ascii=False).encode()
        return key.sign(text) + text

    @classmethod
    def read(cls, place: Address, owner: FingerprintedTarget, key: Ed25519PublicKey) -> Manifest | None:
        """Return the manifest that a key signed, None if there is none. Raises MorelloError for any other file."""
        name = cls.name(owner, key)
        data = place.read(name, MOST_MANIFEST)
        if data is None:
            return None
        try:
            if len(data) > MOST_MANIFEST:
                raise ValueError(f"it has more than {MOST_MANIFEST >> 20} MiB")
            key.verify(data[:_SIGNATURE], data[_SIGNATURE:])
            fields = parse_json(data[_SIGNATURE:].decode())
            if fields[_HEADER] != FORMAT:
                raise ValueError(f"it has format {fields[_HEADER]}, and this version of morello-sharing reads {FORMAT}")
            if {one: fields[one] for one in attrs.asdict(owner)} != attrs.asdict(owner):
                raise ValueError("it is for another target or fingerprint")
            objects = {_digest(digest): _size(size) for digest, size in fields["objects"].items()}
        except InvalidSignature as error:
            raise _refused(place, name, "this key did not sign it as it is") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _refused(place, name, f"{type(error).__name__}: {error}") from error
        return cls(owner, objects)


def _digest(text: str) -> str:
    if len(text) != 64 or {*text} - {*"0123456789abcdef"}:
        raise ValueError("a name of an object is not a SHA-256")
    return text


def _size(size: object) -> int:
    if type(size) is not int or not 0 < size <= MAX_FILE_BYTES:
        raise ValueError(f"an object has 1 to {MAX_FILE_BYTES:,} bytes")
    return size


def object_name(digest: str) -> str:
    """Return the name at an address of the object with a SHA-256."""
    return f"objects/{digest}"


def read_object(place: Address, digest: str, size: int) -> bytes:
    """Return an object. Raises MorelloError if it is missing, or differs from what was signed."""
    name = object_name(digest)
    data = place.read(name, size)
    if data is None:
        raise _refused(place, name, "it is missing")
    if len(data) != size or hashlib.sha256(data).hexdigest() != digest:
        raise _refused(place, name, "it is not what was signed")
    return data


def unpacked(place: Address, owner: FingerprintedTarget, objects: Iterable[tuple[str, bytes]]) -> Iterator[AnswerTable]:
    """Yield the tables of objects with their SHA-256. Raises MorelloError for bad ones, and those of other owners."""
    left = MAX_LINES_BYTES
    for digest, data in objects:
        name, most = object_name(digest), min(left, _MOST_TEXT)
        try:
            stream = zlib.decompressobj()
            text = stream.decompress(data, most + 1)
            left -= len(text)
            if len(text) > most or not stream.eof or stream.unused_data:
                raise ValueError(f"it is cut, or has more than {most:,} bytes of text")
            for table in import_lines(io.StringIO(text.decode(), newline="\n"), name):
                if table.owner != owner:
                    raise ValueError("it has answers of another target or fingerprint")
                yield table
        except MorelloError as error:
            raise _refused(place, name, error.message) from error
        except (ValueError, zlib.error) as error:
            raise _refused(place, name, str(error)) from error


def packed(owner: FingerprintedTarget, tables: Iterable[AnswerTable]) -> dict[str, bytes]:
    """Return the objects with the tables of one fingerprint by SHA-256.

    A hash of its labels decides which tables a table goes with, so another rectangle changes one object only. Raises
    MorelloError for more text than `unpacked` reads.
    """
    rows: list[tuple[int, bytes]] = []
    head = b""
    for table in sorted(tables, key=lambda one: one.labels):
        lines = [f"{line}\n".encode() for line in table_lines([table])]
        head, body = b"".join(lines[:2]), b"".join(lines[2:])
        rows.append((int.from_bytes(hashlib.sha256(table.labels.encode()).digest()), body))
    if sum(len(body) for _, body in rows) > MAX_LINES_BYTES or any(len(body) > _MOST_TEXT for _, body in rows):
        rule = f"{MAX_LINES_BYTES >> 20} MiB, or one of its tables more than {_MOST_TEXT >> 20} MiB"
        raise MorelloError(f"the text of the answers for {owner.name} has more than {rule}", "share the file itself")
    found: dict[str, bytes] = {}
    for shard in _shards(rows):
        data = zlib.compress(head + b"".join(body for _, body in shard), 9)
        found[hashlib.sha256(data).hexdigest()] = data
    return found


def _shards(rows: list[tuple[int, bytes]], bit: int = 0) -> Iterator[list[tuple[int, bytes]]]:
    """Yield rows in parts, which are halved by the bits of their hashes while they are too large."""
    if len(rows) <= 1 or sum(len(body) for _, body in rows) <= _SHARD:
        yield from [rows] if rows else []
        return
    for side in (0, 1):
        yield from _shards([row for row in rows if row[0] >> bit & 1 == side], bit + 1)


def _refused(place: Address, name: str, reason: str) -> MorelloError:
    return MorelloError(
        f"{place.text}/{name} is refused: {reason}",
        "nothing was stored: ask the owner of the key to delete the manifest and to push again",
    )
