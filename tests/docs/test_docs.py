"""The documentation says what the code does."""

import subprocess
import sys
from pathlib import Path

from trainperf.analysis.rules import RULES
from trainperf.meters import METERS


ROOT = Path(__file__).parents[2]
DEFINITIONS = (ROOT / "docs" / "definitions.md").read_text(encoding="utf-8")


def test_the_generated_tables_are_up_to_date() -> None:
    """A definition that changed in a meter changed in the document."""
    result = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "render_docs.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 0, result.stderr


def test_every_reading_and_every_finding_has_its_row() -> None:
    """Nothing is measured or claimed that is not defined."""
    rows = [meter.name for meter in METERS] + [rule.__name__ for rule in RULES]

    assert [name for name in rows if f"| `{name}` |" not in DEFINITIONS] == []
