"""Reports as a person sees them, compared whole."""

from pathlib import Path

import pytest
from support.cases import CASES
from support.golden import GOLDEN, MARKDOWN, rendered, summary_of_case

from trainperf.reports.layout.markdown import as_markdown
from trainperf.reports.run.document import run_document


@pytest.mark.parametrize("name", CASES)
def test_the_text_report_is_the_one_that_was_read_and_approved(name: str, tmp_path: Path) -> None:
    """Every letter."""
    assert rendered(CASES[name](), tmp_path) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", MARKDOWN)
def test_the_markdown_report_is_the_one_that_was_read_and_approved(
    name: str, tmp_path: Path
) -> None:
    """Every letter."""
    expected = (GOLDEN / f"{name}.md").read_text(encoding="utf-8")

    assert as_markdown(run_document(summary_of_case(CASES[name](), tmp_path))) == expected


def test_no_golden_file_is_forgotten() -> None:
    """A case that was removed leaves no file behind."""
    names = {path.stem for path in GOLDEN.glob("*.txt")} | {p.stem for p in GOLDEN.glob("*.md")}

    assert names == set(CASES)
