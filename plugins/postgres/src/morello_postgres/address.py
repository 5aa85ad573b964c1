"""Addresses of databases on a server: URIs of libpq, with a parameter of Morello's own."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

import attrs

from morello.errors import MorelloError
from morello.paths import user_folder

_SECRETS = ("password", "sslpassword")


@attrs.frozen
class Address:
    """The address of a database.

    `whole` is the address as given, `uri` what libpq takes, `name` the address without user and parameters, and
    `trusted` whether answers of the server count as one's own. Of `several` hosts, reading prefers a replica.
    """

    whole: str
    uri: str
    name: str
    trusted: bool
    several: bool

    @property
    def path(self) -> Path:
        """Return the path of the local file. Users share the file; those who trust the server have another one."""
        user, at, rest = self.uri.partition("://")[2].rpartition("@")
        identity = f"{rest if at else user} {self.trusted}"
        words = re.sub(r"[^A-Za-z0-9.]+", "-", self.name.partition("://")[2]).strip("-")[:60]
        digest = hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()[:12]
        return user_folder() / "servers" / f"{words}-{digest}.db"


def parse_address(whole: str) -> Address:
    """Return the address that a text stands for. Raises MorelloError, which shows no password."""
    try:
        parts = urlsplit(whole)
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise MorelloError("the address of the database is not a URI", "write postgresql://USER@HOST/NAME") from error
    user, _, hosts = parts.netloc.rpartition("@")
    parameters = dict(given)
    if ":" in user or parameters.keys() & {*_SECRETS}:
        raise MorelloError(
            f"the address of the database at {hosts} has a password, which others can see",
            "leave it out, and set PGPASSWORD, or write it into ~/.pgpass",
        )
    trust = parameters.get("trust", "no")
    if trust not in ("yes", "no"):
        raise MorelloError(f"trust={trust} in the address of the database at {hosts}", "write trust=yes or trust=no")
    # The texts of the other parameters stay as they are.
    query = "&".join(one for one in parts.query.split("&") if one and unquote(one.partition("=")[0]) != "trust")
    uri = f"postgresql://{parts.netloc}{parts.path}{query and f'?{query}'}"
    host = hosts or parameters.get("host") or parameters.get("hostaddr") or ""
    service = f"?service={parameters['service']}" if "service" in parameters else ""
    several = "," in unquote(host)
    return Address(whole, uri, f"postgresql://{host}{parts.path}{service}", trust == "yes", several)
