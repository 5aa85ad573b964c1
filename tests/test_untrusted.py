"""Files that are missing, endless or not text, and JSON and TOML beyond limits."""

import pytest

from morello.errors import MorelloError
from morello.untrusted import parse_json, parse_toml, read_file, read_lines


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


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("[" * 100_000 + "]" * 100_000, "nested deeper than 50"),
        ("[" * 51 + "]" * 51, "nested deeper than 50"),
        ('{"a": ' * 51 + "1" + "}" * 51, "nested deeper than 50"),
        ("1" * 1_000_000, "1,000,000 digits, more than 100"),
        ("[NaN]", "NaN is not a finite number"),
        ("-Infinity", "-Infinity is not a finite number"),
        ("1e999", "1e999 is not a finite number"),
        ("[1", "line 1"),
    ],
)
def test_json_beyond_its_limits(text, rule):
    with pytest.raises(ValueError, match=rule):
        parse_json(text)


def test_json_within_its_limits():
    assert parse_json("[" * 50 + "]" * 50)
    assert parse_json('{"a": [1, -2.5, 1e300, "[[[", null, true]}') == {"a": [1, -2.5, 1e300, "[[[", None, True]}


def test_lines(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes("one\u2028still one\x0b\n\ntwo".encode())
    assert [*read_lines(path, "")] == ["one\u2028still one\x0b\n", "\n", "two"]
    path.write_bytes(b"one\ntw\xff\n")
    with pytest.raises(MorelloError, match=r"lines:2: not UTF-8\n  hint: another one"):
        _ = [*read_lines(path, "another one")]
    with pytest.raises(MorelloError, match="/dev/zero:1: a line has more than 64 MiB"):
        _ = [*read_lines("/dev/zero", "")]
    with pytest.raises(MorelloError, match="cannot read none: No such file"):
        _ = [*read_lines("none", "")]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (f"a = {'[' * 100_000}", "nested deeper than 50"),
        (f"{'a.' * 100_000}a = 1", "nested deeper than 50"),
        (f"[{'a.' * 100_000}a]", "nested deeper than 50"),
        (f"a = {'9' * 10_000}", "limit"),
        ("#" * 2_000_000, "more than 1024 KiB"),
    ],
)
def test_toml_beyond_its_limits(text, rule):
    with pytest.raises(ValueError, match=rule):
        parse_toml(text)
