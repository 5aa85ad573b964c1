"""Folders, web servers and buckets: files are read within limits, and written as a whole where that is possible."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs
import fsspec
from fsspec.implementations.local import LocalFileSystem

from morello.atomic_write import write_file
from morello.errors import MorelloError

#: The most letters of an error of a library that a message shows.
_MOST_SHOWN = 300


@attrs.frozen
class Address:
    """A folder at an address of fsspec. Names of files in it are `FOLDER/FILE`. Methods raise MorelloError."""

    text: str
    files: Any
    root: str

    @classmethod
    def of(cls, text: str) -> Address:
        """Return the folder at an address. Raises MorelloError for one that holds a secret, or that nothing reads."""
        if any((parts := urlsplit(one)).password or ("://" in one and parts.query) for one in text.split("::")):
            raise MorelloError(
                "the address holds a password or a query, which other users of this machine can read",
                "set the environment variables or files that the library of the address reads credentials from",
            )
        try:
            files, root = fsspec.url_to_fs(text)
        except ImportError as error:
            name = text.partition(":")[0].replace("https", "http")
            known = name in (metadata("fsspec").get_all("Provides-Extra") or ())
            hint = f"pip install 'fsspec[{name}]'" if known else "install the library that it names"
            raise MorelloError(f"cannot open {text}: {_said(error)}", hint) from error
        except Exception as error:
            hint = "give a folder, or an address such as s3://BUCKET/FOLDER or https://HOST/FOLDER"
            raise MorelloError(f"cannot open {text}: {_said(error)}", hint) from error
        return cls(text.rstrip("/"), files, root.rstrip("/"))

    def read(self, name: str, most: int) -> bytes | None:
        """Return the first `most` + 1 bytes of a file, None if it does not exist."""
        path = f"{self.root}/{name}"
        with self._messages("read", name):
            try:
                if "http" not in self.files.protocol:
                    return self.files.cat_file(path, start=0, end=most + 1)
                # One request, of which no more is read. By default, any error would be a FileNotFoundError.
                with self.files.open(path, block_size=0, size=1) as file:
                    found = bytearray()
                    while len(found) <= most and (part := file.read(most + 1 - len(found))):
                        found += part
                    return bytes(found)
            except FileNotFoundError:
                return None

    def size(self, name: str) -> int | None:
        """Return the bytes of a file, None if it does not exist."""
        with self._messages("read", name):
            try:
                return self.files.info(f"{self.root}/{name}")["size"]
            except FileNotFoundError:
                return None

    def write(self, name: str, data: bytes) -> None:
        """Replace a file, atomically on this machine and in buckets. Folders on this machine are made."""
        path = f"{self.root}/{name}"
        with self._messages("write", name):
            if isinstance(self.files, LocalFileSystem):
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                write_file(path, data)
                return
            try:
                self.files.pipe_file(path, data)
            except FileNotFoundError:
                # Buckets have no folders, and are not made here.
                self.files.mkdir(path.rpartition("/")[0], create_parents=False)
                self.files.pipe_file(path, data)

    @contextmanager
    def _messages(self, verb: str, name: str) -> Iterator[None]:
        """Make errors of libraries MorelloErrors: each has exceptions of its own."""
        try:
            yield
        except MorelloError:
            raise
        except Exception as error:
            hint = "check the address, the network, and your credentials and rights there"
            raise MorelloError(f"cannot {verb} {self.text}/{name}: {_said(error)}", hint) from error


def _said(error: Exception) -> str:
    text = (isinstance(error, OSError) and error.strerror) or str(error)
    return "".join(char if char.isprintable() else " " for char in f"{type(error).__name__}: {text}"[:_MOST_SHOWN])
