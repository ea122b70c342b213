"""A ratchet: no room of the package weighs more than its row in the table of the architecture."""

import ast
import re
from collections import Counter

from support.sources import ROOT, nodes


PAGE = ROOT / "docs" / "contributing" / "architecture.md"
ROW = re.compile(r"^\| `(\w+)` \| ([\d,]+) \|", re.MULTILINE)


def counts(node: ast.AST) -> bool:
    """Statements without imports and docstrings: documentation is free, long lines buy nothing."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return False
    words = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return isinstance(node, ast.stmt) and not (words and isinstance(node.value.value, str))


def test_statements_are_counted_without_imports_and_docstrings() -> None:
    """What is nested counts as well."""
    source = (
        '"""A module."""\nimport os\n\ndef f():\n    """Say."""\n    if os:\n        return 1\n'
    )

    assert sum(map(counts, ast.walk(ast.parse(source)))) == 3


def test_no_room_weighs_more_than_its_row() -> None:
    """Whoever needs more changes the row, and says beside it why."""
    allowed = {
        room: int(number.replace(",", "")) for room, number in ROW.findall(PAGE.read_text("utf-8"))
    }
    weights: Counter[str] = Counter()
    for path, node in nodes("trainperf"):
        parts = path.relative_to(ROOT / "trainperf").parts
        weights[parts[0] if len(parts) > 1 else "loose"] += counts(node)

    over = {room: weight for room, weight in weights.items() if weight > allowed.get(room, 0)}
    assert not over, f"more than the table in {PAGE.relative_to(ROOT)} allows"
    assert set(allowed) == set(weights), "rooms that are gone, or not in the table"
