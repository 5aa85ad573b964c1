"""Ed25519 keys in PEM, as openssl writes them."""

from __future__ import annotations

import hashlib
import os

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from morello.errors import MorelloError
from morello.untrusted import read_file

#: The environment variable that holds the private key itself, for the secrets of CI. Crash reports leave it out, since
#: its name ends with _KEY.
VARIABLE = "MORELLO_SHARING_KEY"
_PRIVATE = "openssl genpkey -algorithm ed25519 -out private.pem"
_PUBLIC = "openssl pkey -in private.pem -pubout -out public.pem"


def private_key(path: str | None) -> Ed25519PrivateKey:
    """Return the private key in a file, by default that in the environment. Raises MorelloError without a valid one."""
    text = os.environ.get(VARIABLE) if path is None else read_file(path, f"{_PRIVATE} makes a key")
    if not text:
        raise MorelloError("there is no private key", f"give --key, or put the text of the key into {VARIABLE}")
    try:
        key = load_pem_private_key(text.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        rule = "is not a private Ed25519 key in PEM without a passphrase"
        raise MorelloError(f"{VARIABLE if path is None else path} {rule}", f"{_PRIVATE} makes one")
    return key


def public_key(path: str) -> Ed25519PublicKey:
    """Return the public key in a file. Raises MorelloError without a valid one."""
    try:
        key = load_pem_public_key(read_file(path, f"{_PUBLIC} makes the public key").encode())
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise MorelloError(f"{path} is not a public Ed25519 key in PEM", f"{_PUBLIC} makes that of a private key")
    return key


def key_id(key: Ed25519PublicKey) -> str:
    """Return the name of a key at addresses: 32 hexadecimal digits of its hash."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:32]
