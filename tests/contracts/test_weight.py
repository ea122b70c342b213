"""A ratchet: no room of the package weighs more than its row in the table of the architecture."""

import ast
import re
from collections import Counter
from pathlib import Path


ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "contributing" / "architecture.md"
ROW = re.compile(r"^\| `(\w+)` \| ([\d,]+) \|", re.MULTILINE)


def statements(source: str) -> int:
    """Statements without imports and docstrings: documentation is free, long lines buy nothing."""

    def counts(node: ast.AST) -> bool:
        if isinstance(node, ast.Import | ast.ImportFrom):
            return False
        words = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        return isinstance(node, ast.stmt) and not (words and isinstance(node.value.value, str))

    return sum(map(counts, ast.walk(ast.parse(source))))


def test_statements_are_counted_without_imports_and_docstrings() -> None:
    """What is nested counts as well."""
    source = (
        '"""A module."""\nimport os\n\ndef f():\n    """Say."""\n    if os:\n        return 1\n'
    )

    assert statements(source) == 3


def test_no_room_weighs_more_than_its_row() -> None:
    """Whoever needs more changes the row, and says beside it why."""
    allowed = {
        room: int(number.replace(",", "")) for room, number in ROW.findall(PAGE.read_text("utf-8"))
    }
    weights: Counter[str] = Counter()
    for path in (ROOT / "trainperf").rglob("*.py"):
        parts = path.relative_to(ROOT / "trainperf").parts
        weights[parts[0] if len(parts) > 1 else "loose"] += statements(path.read_text("utf-8"))

    over = {room: weight for room, weight in weights.items() if weight > allowed.get(room, 0)}
    assert not over, f"more than the table in {PAGE.relative_to(ROOT)} allows"
    assert set(allowed) == set(weights), "rooms that are gone, or not in the table"
