"""Options of a fit are declared and explained once, and every door has all of them."""

import ast
import inspect
from dataclasses import fields

import pytest

from trainperf.huggingface import TrainPerfCallback
from trainperf.lightning import TrainPerf
from trainperf.loop import FitOptions, LoopMonitor


OF_ITS_OWN: dict[type, set[str]] = {
    TrainPerf: set(),
    TrainPerfCallback: set(),
    LoopMonitor: {"kind", "writer", "clock"},
}
"""What no other door can be asked for: a framework tells it."""


def explained(declares: type) -> dict[str, str]:
    """Each option that a class declares, with the text below it."""
    (body,) = ast.parse(inspect.cleandoc(inspect.getsource(declares))).body
    texts: dict[str, str] = {}
    for option, text in zip(body.body, body.body[1:], strict=False):
        if isinstance(option, ast.AnnAssign) and isinstance(option.target, ast.Name):
            shown = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
            texts[option.target.id] = str(text.value.value) if shown else ""  # type: ignore[attr-defined]
    return texts


@pytest.mark.parametrize("door", OF_ITS_OWN, ids=lambda door: door.__name__)
def test_every_door_has_every_option(door: type) -> None:
    """By the same name, with the same default but for where the run goes."""
    given, options = inspect.signature(door).parameters, inspect.signature(FitOptions).parameters

    assert given.keys() == options.keys() | OF_ITS_OWN[door]
    for name in options.keys() - {"dirpath"}:
        assert given[name].default == options[name].default, name


@pytest.mark.parametrize("declares", [FitOptions, LoopMonitor], ids=lambda each: each.__name__)
def test_every_option_is_explained_where_it_is_declared(declares: type) -> None:
    """In a text of its own."""
    texts = explained(declares)

    assert all(texts.values()), texts
    own = {each.name for each in fields(declares)}  # type: ignore[arg-type]
    assert texts.keys() == own if declares is FitOptions else texts.keys() <= own
