"""The markdown report: tables that hold, whatever the names."""

from pathlib import Path

import pytest
from support.cases import CASES
from support.golden import summary_of_case

from trainperf.reports.layout.markdown import as_markdown
from trainperf.reports.run.document import run_document


@pytest.mark.parametrize("name", CASES)
def test_every_row_of_a_table_has_the_cells_of_its_head(name: str, tmp_path: Path) -> None:
    """A name with a border in it opens no cell, and one that is markup no element."""
    document = as_markdown(run_document(summary_of_case(CASES[name](), tmp_path)))

    assert "<b>" not in document
    for table in document.split("\n\n"):
        rows = [row.replace("\\|", "") for row in table.splitlines() if row.startswith("|")]
        assert len({row.count("|") for row in rows}) <= 1
