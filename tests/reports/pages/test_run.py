"""The page of a run: the report's words, the records' figures, and nothing a name can break."""

from pathlib import Path

import pytest
from support.cases import CASES
from support.commands import Command
from support.pages import ELEMENTS, Page, asks_for_something
from support.runs import make_run_dir

from trainperf.analysis.run.directory import Run
from trainperf.core.formatting.escape import plain
from trainperf.core.run_directory import REPORT
from trainperf.loop.report import close_run
from trainperf.recording.sinks.loggers import Outputs
from trainperf.reports.run.headline import headline
from trainperf.reports.run.page import PageData, load_page_data, render


def seen_of(case: str, path: Path) -> PageData:
    """A run of the catalogue, read for its page."""
    return load_page_data(Run.open(make_run_dir(path / case / "trainperf", CASES[case]().ranks)))


@pytest.mark.parametrize("case", list(CASES))
def test_every_run_has_a_page_of_known_elements_that_are_all_closed(
    case: str, tmp_path: Path
) -> None:
    """Without a step, killed, named like markup: no address, no script, no file beside it."""
    seen = seen_of(case, tmp_path)
    source = render(seen)
    page = Page(source)

    assert "default-src 'none'" in source
    assert asks_for_something(source) == []

    assert page.open == []
    assert page.names <= ELEMENTS
    assert plain(headline(seen.summary)) in page.words
    assert not {name for name in page.attributes if name.startswith("on")}


def test_the_end_of_a_fit_leaves_the_page_in_the_run_directory(tmp_path: Path) -> None:
    """The very page that `trainperf report --format html` prints, and nothing half-written."""
    run = make_run_dir(tmp_path / "gpt2" / "trainperf", CASES["loader_bound"]().ranks)

    close_run(run, ranks=1, aloud=False, outputs=Outputs())

    assert (run / REPORT).read_text(encoding="utf-8") == render(load_page_data(Run.open(run)))
    assert sorted(path.name for path in run.iterdir()) == [
        "report.html",
        "steps-rank0.jsonl",
        "summary.json",
    ]


def test_the_command_prints_the_page_in_any_encoding(tmp_path: Path, command: Command) -> None:
    """`trainperf report RUN --format html > page.html` is right also where `·` is another byte."""
    run = make_run_dir(tmp_path / "gpt2" / "trainperf", CASES["loader_bound"]().ranks)
    page = command("report", run, "--format", "html").out

    assert page.isascii()
    assert Page(page).words == Page(render(load_page_data(Run.open(run)))).words
