"""Every block of code and every command of the documentation runs."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.docs import PAGES, ROOT, TRACES, Block, blocks, fill, make_world, names
from support.object_store import serving

from trainperf.commands import COMMANDS, main
from trainperf.core.spool import ROOT_VARIABLE
from trainperf.loop import LoopMonitor


TAKES_LONG = ("trainer.fit(", "torch.compile(", "sweep", "benchmark_step(", "assert_no_recompile")
"""What only `scripts/test --all` runs, by what stands in it."""

LASTS = {"view", "watch", "mcp"}
"""Commands that serve until they are stopped: their arguments are not tried here."""

TRAINS = ("run", "try", "prove")
"""Commands that start a training script."""


SLOW = (pytest.mark.slow, pytest.mark.beside)


def _slow(page: Path) -> bool:
    code = "".join(block.text for block in blocks(page) if block.language == "python")
    return any(word in code for word in TAKES_LONG)


EACH_PAGE_WITH_CODE = pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=SLOW if _slow(page) else ())
        for page in PAGES
        if any(block.language == "python" for block in blocks(page))
    ],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)

FIRST_SHOWN: dict[tuple[str, ...], Block] = {}
"""Each command, and the block that shows it first."""
for block in (block for page in PAGES for block in blocks(page)):
    for command in block.commands:
        FIRST_SHOWN.setdefault(tuple(command), block)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One for all pages: they only add to it."""
    place = tmp_path_factory.mktemp("world")
    make_world(place)
    with pytest.MonkeyPatch.context() as patch, serving(patch, "experiments") as store:
        patch.setenv(ROOT_VARIABLE, str(place / "spools"))
        fill(store.bucket, place)
        yield place


@EACH_PAGE_WITH_CODE
@pytest.mark.filterwarnings("ignore")
def test_the_code_of_a_page_runs_from_its_first_block_to_its_last(
    page: Path, world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other, in one place, with the few names that every reader has."""
    monkeypatch.chdir(world)
    known = {**names(), "__name__": "__page__"}
    try:
        for block in blocks(page):
            if block.language == "python":
                code = "\n" * (block.line - 1) + block.text
                exec(compile(code, str(page), "exec"), known)  # noqa: S102 it is our own page
    finally:
        for value in known.values():
            if isinstance(value, LoopMonitor):
                value.close()


@pytest.mark.parametrize(
    ("block", "command"),
    [
        pytest.param(
            block,
            command,
            marks=SLOW if any(word in command for word in TRAINS) else (),
            id=f"{block.page.name}:{' '.join(command)}",
        )
        for command, block in FIRST_SHOWN.items()
        if command[0] == "trainperf" and command[1] not in LASTS
    ],
)
def test_a_command_runs(
    block: Block,
    command: tuple[str, ...],
    world: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """As it is written, and not with 2, which is for what cannot be used."""
    if "trace" in str(command) and not TRACES.is_dir():
        pytest.skip("no recorded traces: set TRAINPERF_TRACES")
    monkeypatch.chdir(world)
    fewer = ["--pairs", "2"] if "prove" in command else []
    shorter = ["--minutes", "0.1"] if "try" in command else []
    monkeypatch.setattr(sys, "argv", [*command[:2], *shorter, *command[2:], *fewer])

    code = main()

    assert code in {0, 1, 3}, f"{block.page}:{block.line}: {capfd.readouterr().err}"


def test_only_commands_that_exist_are_named() -> None:
    """And scripts that are there."""
    known = set(COMMANDS)
    used = {command[1] for command in FIRST_SHOWN if command[0] == "trainperf"}
    scripts = {command[1] for command in FIRST_SHOWN if command[0] == "bash"}

    assert used <= known
    assert [script for script in scripts if not (ROOT / script).is_file()] == []


def test_options_of_try_and_run_stand_before_the_script() -> None:
    """Behind it they are the script's own: whoever copies the line would not try what is meant."""
    import re

    options = "only|without|minutes|format|list|out|audit-at"
    wrong = re.compile(rf"trainperf (?:try|run) (?:SCRIPT|[\w/]+\.py)\s+--(?:{options})\b")
    files = [*PAGES, *(ROOT / "trainperf").rglob("*.py"), *(ROOT / "trainperf").rglob("*.json")]

    assert [file for file in files if wrong.search(file.read_text(encoding="utf-8"))] == []


def test_every_page_has_its_place_in_the_site() -> None:
    """The navigation names each page below `docs/`, and no page that is not there."""
    import re

    named = re.findall(r"[:-] ([\w./-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in PAGES if page.parent != ROOT}

    assert sorted(named) == sorted(pages)


def test_every_how_to_is_on_the_first_page() -> None:
    """By its question."""
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    questions = [page.name for page in PAGES if page.parent.name == "how-to"]

    assert [name for name in questions if f"(how-to/{name})" not in index] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    """Files that exist, and headings that are in them."""
    import re

    text = page.read_text(encoding="utf-8")
    for target, heading in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text):
        if target.startswith("http"):
            continue
        there = (page.parent / target).resolve() if target else page
        assert there.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.*)$", there.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in [_anchor(title) for title in titles], f"{target}#{heading}"


def test_a_how_to_is_short_and_its_title_is_the_question() -> None:
    """At most sixty lines; who needs more follows its links."""
    pages = sorted((ROOT / "docs" / "how-to").glob("*.md"))

    assert len(pages) >= 12
    for page in pages:
        lines = page.read_text(encoding="utf-8").splitlines()
        assert lines[0].startswith("# "), page
        assert lines[0].endswith("?"), page
        assert len(lines) <= 60, page


def _anchor(title: str) -> str:
    """How a heading is linked to: lower case, spaces as hyphens, no punctuation."""
    kept = "".join(c for c in title.lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")
