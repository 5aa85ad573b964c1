"""The README is up to date with commands, options and links."""

from __future__ import annotations

import re
from pathlib import Path

from morello.cli.app import all_commands

ROOT = Path(__file__).parents[2]
COMMANDS = all_commands()
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_two_commands() -> None:
    for command in ("pip install . ./plugins/* && morello run examples/matmul.spec", "pytest -n 2"):
        assert re.search(rf"^(\$ )?{re.escape(command)}$|&& {command}$", README, re.MULTILINE)


def test_commands() -> None:
    assert sorted(re.findall(r"^\| `morello ([\w-]+)", README, re.MULTILINE)) == sorted(COMMANDS)


def test_options() -> None:
    having: dict[str, set[str]] = {name: set() for name in ("--spec", "--target", "--profile", "--db", "--json")}
    for name, command in COMMANDS.items():
        for option in {text for parameter in command.load().params for text in parameter.opts} & set(having):
            having[option].add(name)
    others = {"targets", "calibrate", "db", "cache", "fmt", "lsp"}
    assert having["--spec"] == set(COMMANDS) - others - {"build", "import"}
    assert having["--db"] == set(COMMANDS) - others - {"import"}
    assert having["--target"] == having["--profile"] == {*set(COMMANDS) - others, "calibrate"}
    shown = {"check", "bench", "explain", "bound", "front", "map", "tune"}
    assert having["--json"] == {*shown, "targets", "calibrate", "cache"}


def test_licence() -> None:
    assert "[MIT](LICENSE)" in README
    assert (ROOT / "LICENSE").read_text(encoding="utf-8").startswith("MIT License")


def test_links_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "plugins").glob("*/README.md")]
    assert len(pages) > 12
    for page in pages:
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
            file, _, anchor = link.partition("#")
            linked = page.parent / file if file else page
            assert linked.exists(), f"{page.name}: {link}"
            if anchor:
                headings = re.findall(r"^#+ (.+)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
                assert anchor in [re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in headings], link
