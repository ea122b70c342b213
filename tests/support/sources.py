"""The sources of the repository, each parsed once for all tests that look at them."""

import ast
from functools import cache
from pathlib import Path


ROOT = Path(__file__).parents[2]


@cache
def trees(folder: str) -> dict[Path, ast.Module]:
    """Syntax trees of all modules below a folder of the repository, in the order of their paths."""
    paths = sorted((ROOT / folder).rglob("*.py"))
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}


@cache
def nodes(folder: str) -> tuple[tuple[Path, ast.AST], ...]:
    """Every node of them, with the module that it is in."""
    return tuple((path, node) for path, tree in trees(folder).items() for node in ast.walk(tree))
