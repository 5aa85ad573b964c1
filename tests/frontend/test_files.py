"""Errors for files that are missing or not text."""

import pytest

from morello.errors import MorelloError
from morello.frontend import read_file


def test_text(tmp_path):
    path = tmp_path / "a.spec"
    path.write_text("spec a = Move(4×4, GL, L1)\n", encoding="utf-8")
    assert read_file(str(path)) == "spec a = Move(4×4, GL, L1)\n"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"spec \xff", "is not UTF-8: byte 0xff at offset 5"),
        ("spec a = Move(4×4)".encode("latin-1"), "is not UTF-8: byte 0xd7 at offset 15"),
        (b"\x7fELF\0", "is not a text file: it has a NUL byte at offset 4"),
        ("spec".encode("utf-16-le"), "is not a text file: it has a NUL byte at offset 1"),
    ],
)
def test_no_text(tmp_path, data, message):
    path = tmp_path / "a.spec"
    path.write_bytes(data)
    with pytest.raises(MorelloError) as caught:
        read_file(str(path))
    assert caught.value.message == f"{path} {message}"


def test_missing_file(tmp_path):
    with pytest.raises(MorelloError, match=r"cannot read .*none\.spec: No such file"):
        read_file(str(tmp_path / "none.spec"))


def test_directory(tmp_path):
    with pytest.raises(MorelloError, match="Is a directory"):
        read_file(str(tmp_path))


def test_unreadable(tmp_path, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(MorelloError, match=r"cannot read .*a\.spec: Permission denied"):
        read_file(str(tmp_path / "a.spec"))


def test_impossible_path():
    with pytest.raises(MorelloError, match="null byte"):
        read_file("a\0b")


def test_endless_file():
    with pytest.raises(MorelloError, match="larger than 64 MiB"):
        read_file("/dev/zero")
