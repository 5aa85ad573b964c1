"""The files around the code agree with it: CONTRIBUTING, the Makefile, the citation, the site, the pinned tools."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PLUGINS = sorted(ROOT.glob("plugins/*/pyproject.toml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_files_that_the_page_names_exist() -> None:
    named = re.findall(r"`((?:morello|plugins|tests|docs|\.ci)/[\w/.-]+)`", CONTRIBUTING)
    assert len(named) > 15
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_tools_are_named() -> None:
    """The page lists the commands in `tools/`, and no others."""
    run = {path for path in ROOT.glob("tools/**/*.py") if "__name__ ==" in path.read_text(encoding="utf-8")}
    run = {path.parent if path.stem == "__main__" else path for path in run}
    there = {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in run} - {"tools.primitives"}
    assert {*re.findall(r"`python -m (tools[\w.]+)`", CONTRIBUTING)} == there


def test_make_has_the_targets_on_the_page() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    there = set(re.findall(r"^(\w+):.*## ", makefile, re.MULTILINE))
    named = {name for names in re.findall(r"`make ([a-z ]+)`", CONTRIBUTING) for name in names.split()}
    assert len(named) > 5
    assert named <= there
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert {*phony.split()} == there


def test_every_page_is_on_the_site() -> None:
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    pages |= {f"plugins/{path.parent.name}.md" for path in ROOT.glob("plugins/*/README.md")}
    assert pages - {*re.findall(r": (\S+\.md)$", site, re.MULTILINE)} == set()


def test_tests_named_by_the_page_of_departures_exist() -> None:
    page = (ROOT / "docs" / "departures.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page)
    assert len(named) > 10
    assert [one for one in named if f"def {one[1] or 'test_'}" not in (ROOT / one[0]).read_text(encoding="utf-8")] == []


def test_tools_have_one_version_in_one_place() -> None:
    pinned = [one for extra in ("dev", "docs") for one in PROJECT["optional-dependencies"][extra] if "==" in one]
    assert {re.split(r"\[|==", one)[0] for one in pinned} >= {"ruff", "pyright", "mkdocs-material", "mkdocstrings"}
    for file in (".ci/run", "Makefile", "requirements-dev.txt", "requirements.txt"):
        assert not re.search(r"[\w\]][=~<>]=\d", (ROOT / file).read_text(encoding="utf-8")), file


def test_packages_go_together() -> None:
    """All have one version and equal metadata, and require that version of one another."""
    own = {path.parent.name: tomllib.loads(path.read_text(encoding="utf-8"))["project"] for path in PLUGINS}
    assert {"baselines", "reference_c", "x86", "x86_avx2", "x86_avx512"} <= {*own}
    for project in own.values():
        same = ("version", "license", "requires-python", "authors", "classifiers")
        assert [project[key] for key in same] == [PROJECT[key] for key in same]
        assert project["keywords"]
    names = {project["name"] for project in own.values()}
    extras = PROJECT["optional-dependencies"].values()
    needs = [one for listed in (*(each["dependencies"] for each in own.values()), *extras) for one in listed]
    needs = [one for one in needs if one.startswith("morello") and "[" not in one]
    assert {one.partition("~=")[0] for one in needs} <= {"morello", *names}
    assert {one.partition("~=")[2] for one in needs} == {PROJECT["version"]}


def test_extras_are_those_that_the_page_lists() -> None:
    table = (ROOT / "docs" / "install.md").read_text(encoding="utf-8").split("| extra |")[1].split("\n\n")[0]
    listed = [name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(listed) == sorted(PROJECT["optional-dependencies"])


@pytest.mark.xdist_group("one worker")
@pytest.mark.parametrize("turn", range(4))
def test_tests_of_a_group_share_a_worker(
    turn: int, tmp_path_factory: pytest.TempPathFactory, worker_id: str, testrun_uid: str
) -> None:
    """Some versions of pytest and pytest-xdist lose groups, and shared results are then computed in each worker."""
    own = tmp_path_factory.getbasetemp()
    path = (own if worker_id == "master" else own.parent) / f"workers_{testrun_uid}"
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{worker_id}\n")
    assert {*path.read_text(encoding="utf-8").split()} == {worker_id}


def test_the_citation_has_this_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.*)$", citation, re.MULTILINE) == [PROJECT["version"]]


def test_papers_are_cited_by_existing_keys() -> None:
    page = (ROOT / "docs" / "references.md").read_text(encoding="utf-8")
    keys = set(re.findall(r"^\| \[(\w+)\] \|", page, re.MULTILINE))
    files = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("**/[!r]*.md"),
        *(ROOT / "morello").rglob("*.py"),
        *ROOT.glob("plugins/*/src/**/*.py"),
    ]
    cited = {key for file in files for key in re.findall(r"\[([A-Z]\w+\d{4})\]", file.read_text(encoding="utf-8"))}
    assert "Kaufman2025" in cited
    assert cited == keys
