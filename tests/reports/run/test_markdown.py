"""The markdown report: tables that hold, whatever the names."""

from pathlib import Path

import pytest
from support.cases import CASES
from support.golden import summary_of_case

from trainperf.reports.layout.markdown import as_markdown
from trainperf.reports.run.document import run_document


@pytest.mark.parametrize("name", CASES)
def test_every_row_of_a_table_has_the_cells_of_its_head(name: str, tmp_path: Path) -> None:
    """A name with a border in it opens no cell."""
    document = as_markdown(run_document(summary_of_case(CASES[name](), tmp_path)))

    for table in document.split("\n\n"):
        rows = [row.replace("\\|", "") for row in table.splitlines() if row.startswith("|")]
        assert len({row.count("|") for row in rows}) <= 1


@pytest.mark.parametrize("name", CASES)
def test_it_contains_no_html(name: str, tmp_path: Path) -> None:
    """TensorBoard and GitHub render what they are given."""
    assert "<b>" not in as_markdown(run_document(summary_of_case(CASES[name](), tmp_path)))


def test_all_findings_are_there_with_their_evidence(tmp_path: Path) -> None:
    """There is room here for what the terminal leaves out."""
    summary = summary_of_case(CASES["loader_bound"](), tmp_path)

    document = as_markdown(run_document(summary))

    assert len(summary.findings) == 3
    for place, finding in enumerate(summary.findings, start=1):
        assert f"{place}. **{finding.title}**" in document
