"""Answers of a database written to an address under a signature, and those of others read from there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import attrs
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from morello.api import SpecStore, targets_of
from morello.db.boxes import Boxes
from morello.db.export_import import import_tables
from morello.db.maintenance import target_names
from morello.db.tables import AnswerTable, FingerprintedTarget, merged_tables
from morello.errors import MorelloError
from morello_sharing.address import Address
from morello_sharing.contents import Manifest, object_name, packed, read_object, unpacked
from morello_sharing.keys import key_id

#: Requests at once.
_REQUESTS = 16
_A = TypeVar("_A")
_B = TypeVar("_B")


@attrs.frozen
class Pushed:
    """Counts for a target: rectangles and objects in the manifest, and the new objects with their bytes."""

    target: str
    rectangles: int
    objects: int
    new: int
    bytes: int


@attrs.frozen
class Pulled:
    """Counts for a target and a key: objects in the manifest, and the rectangles and bytes that were read."""

    target: str
    key: str
    objects: int
    rectangles: int
    bytes: int


def push(store: SpecStore, address: str, key: Ed25519PrivateKey) -> list[Pushed]:
    """Sign the verified answers for installed targets, together with those that the key has signed there before.

    Objects come before the manifest that lists them, so that an interrupted push changes nothing for readers. Raises
    MorelloError, also if the answers contradict those that the key has signed.
    """
    place, done = Address.of(address), list[Pushed]()
    # Fingerprints of all installed targets take seconds.
    names = {*target_names(store.whole())}
    owners = [FingerprintedTarget.of(one) for one in targets_of(store) if one.stored_name in names]
    for owner, tables in _tables(store, owners, _verified).items():
        before = Manifest.read(place, owner, key.public_key())
        objects = packed(owner, tables)
        others = {} if before is None else {one: size for one, size in before.objects.items() if one not in objects}
        if others:
            tables = _merged(place, owner, [*unpacked(place, owner, _objects(place, others))], tables)
            objects = packed(owner, tables)
        sizes = _at_once(lambda one: place.size(object_name(one)), objects)
        # One that was cut while it was written is written again.
        new = {one: data for one, size in zip(objects, sizes, strict=True) if size != len(data := objects[one])}
        for _ in _at_once(lambda one: place.write(object_name(one[0]), one[1]), new.items()):
            pass
        manifest = Manifest(owner, {one: len(data) for one, data in objects.items()})
        if manifest != before:
            place.write(manifest.name(owner, key.public_key()), manifest.signed(key))
        count = sum(len(table.boxes) for table in tables)
        done.append(Pushed(owner.name, count, len(objects), len(new), sum(map(len, new.values()))))
    return done


def pull(store: SpecStore, address: str, keys: Sequence[Ed25519PublicKey], *, trust: bool = False) -> list[Pulled]:
    """Store the answers for installed targets that one of `keys` signed: all of them, or none after an error.

    They are unverified, unless `trust` says that they are as good as the database's own. Objects that the database
    agrees with are not read. Raises MorelloError for anything that is not what a key signed, and for contradictions.
    """
    place, done, found = Address.of(address), list[Pulled](), list[AnswerTable]()
    owners = dict.fromkeys(FingerprintedTarget.of(target) for target in targets_of(store))
    wanted = [(owner, key) for owner in owners for key in keys]
    manifests = _at_once(lambda one: Manifest.read(place, *one), wanted)
    present = [(manifest, key) for manifest, (_, key) in zip(manifests, wanted, strict=True) if manifest]
    own = _tables(store, (manifest.owner for manifest, _ in present), _verified if trust else _unmarked)
    for manifest, key in present:
        owner, known = manifest.owner, packed(manifest.owner, own.get(manifest.owner, []))
        objects = _objects(place, {one: size for one, size in manifest.objects.items() if one not in known})
        tables = [*unpacked(place, owner, objects)]
        found += tables
        rectangles, size = sum(len(one.boxes) for one in tables), sum(len(data) for _, data in objects)
        done.append(Pulled(owner.name, key_id(key), len(manifest.objects), rectangles, size))
    import_tables(store, found, trust=trust)
    return done


def _verified(boxes: Boxes) -> Boxes:
    return boxes.take(~boxes.unverified)


def _unmarked(boxes: Boxes) -> Boxes:
    return attrs.evolve(boxes, unverified=np.full(len(boxes), False))


def _tables(
    store: SpecStore, owners: Iterable[FingerprintedTarget], choose: Callable[[Boxes], Boxes]
) -> dict[FingerprintedTarget, list[AnswerTable]]:
    """Return the tables of owners with the boxes that `choose` returns, empty ones left out."""
    found: dict[FingerprintedTarget, list[AnswerTable]] = {owner: [] for owner in owners}
    for table in store.whole().tables():
        boxes = choose(table.boxes)
        if table.owner in found and len(boxes):
            found[table.owner].append(attrs.evolve(table, boxes=boxes))
    return {owner: tables for owner, tables in found.items() if tables}


def _objects(place: Address, sizes: dict[str, int]) -> list[tuple[str, bytes]]:
    return [*zip(sizes, _at_once(lambda one: read_object(place, *one), sizes.items()), strict=True)]


def _merged(
    place: Address, owner: FingerprintedTarget, old: Sequence[AnswerTable], new: Sequence[AnswerTable]
) -> list[AnswerTable]:
    """Return the tables of both. Raises MorelloError if they contradict each other."""
    found = list[AnswerTable]()
    for axes in sorted({one.boxes.axes for one in (*old, *new)}):
        parts = ([one for one in tables if one.boxes.axes == axes] for tables in (old, new))
        tables, contradictions = merged_tables(*parts, searched=False)
        if contradictions:
            raise MorelloError(
                f"{place.text}: answers for {owner.name} that this key signed contradict those to push, as in table "
                f"{contradictions[0][0].labels}",
                "`morello db verify` checks your database; delete the manifest to withdraw what it signed",
            )
        found += tables
    return found


def _at_once(function: Callable[[_A], _B], values: Iterable[_A]) -> list[_B]:
    """Return the results of calls by several threads, in order."""
    with ThreadPoolExecutor(_REQUESTS) as pool:
        return [*pool.map(function, values)]
