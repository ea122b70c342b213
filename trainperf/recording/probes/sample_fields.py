"""Lines of a dataset that compute one field of a sample and nothing else, by their source.

A sample is what a function returns: a dictionary, or the tuple of a `__getitem__`.  A field is made
by the expression that stands there for it, and by assignments to variables that nothing but it
needs.  A line that computes anything else as well is nobody's.
"""

import ast
import inspect
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from textwrap import dedent
from types import CodeType


_COMPUTES = (ast.Call, ast.BinOp, ast.Subscript, ast.ListComp, ast.GeneratorExp, ast.DictComp)
_RETURNS = ("__getitem__", "__iter__")


@lru_cache(maxsize=256)
def fields_made(code: CodeType) -> Mapping[int, str]:
    """Line to the field that it makes, as code has it: `['depth']`, `[1]`.

    Args:
        code: Of a function; its source is read once.
    """
    try:
        source, first_line = inspect.getsourcelines(code)
        tree = ast.parse(dedent("".join(source)))
    except (OSError, SyntaxError, ValueError):  # no source, or a piece of a line
        return {}
    ast.increment_lineno(tree, first_line - 1)
    makes: dict[str, list[ast.expr]] = defaultdict(list)
    for field, value in _fields(tree, code.co_name):
        makes[field].append(value)
    owners = {
        id(node): field
        for field, values in makes.items()
        for value in _with_its_variables(values, tree)
        for node in ast.walk(value)
    }
    lines: dict[int, set[str]] = defaultdict(set)
    for node in ast.walk(tree):
        if isinstance(node, _COMPUTES) and not isinstance(getattr(node, "ctx", None), ast.Store):
            lines[node.lineno].add(owners.get(id(node), ""))
    return {line: "".join(own) for line, own in lines.items() if len(own) == 1 and "" not in own}


def _fields(tree: ast.Module, function: str) -> Iterator[tuple[str, ast.expr]]:
    """Each field with an expression for it."""
    for node in ast.walk(tree):
        named: Iterable[tuple[ast.expr | None, ast.expr]] = ()
        if isinstance(node, ast.Dict):
            named = zip(node.keys, node.values, strict=True)
        elif isinstance(node, ast.Assign):
            named = ((getattr(target, "slice", None), node.value) for target in node.targets)
        elif isinstance(node, ast.Return | ast.Yield) and function in _RETURNS:
            values = getattr(node.value, "elts", ())
            named = ((ast.Constant(at), value) for at, value in enumerate(values))
        for key, value in named:
            if isinstance(key, ast.Constant):
                yield f"[{key.value!r}]", value


def _with_its_variables(values: list[ast.expr], tree: ast.Module) -> list[ast.expr]:
    """Expressions, and what is assigned to variables that are read in them only."""
    assigned: dict[str, list[ast.expr]] = defaultdict(list)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            assigned[node.targets[0].id].append(node.value)
    own, read = [*values], _names_read(tree)
    for value in own:  # which grows
        for name in _names_read(value):
            further = [each for each in assigned[name] if each not in own]
            inside = sum((_names_read(each) for each in (*own, *further)), Counter[str]())
            own += further if inside[name] == read[name] else ()
    return own


def _names_read(tree: ast.AST) -> Counter[str]:
    """Variables, and how often they are read."""
    return Counter(
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    )
