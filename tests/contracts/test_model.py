"""One model instead of exceptions: constants, and branches on loops and devices, are counted.

A number here is a ceiling that may only fall.  `pytest -s` prints what there is.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.sources import trees

from trainperf.analysis.diagnosis import DETECTORS
from trainperf.core.findings import LIMITS


PACKAGE = Path(__file__).parents[2] / "trainperf"

CONSTANT = re.compile(r"^_?[A-Z][A-Z_0-9]*(, ?_?[A-Z_0-9]+)*(: [^=]+)? = [-(]?[0-9]", re.MULTILINE)
MOST_CONSTANTS = {"analysis": 45, "traces": 9, "comparison": 7, "commands": 13}
"""Numbers with a name at the top of a module; the aim was 80 in all rooms together."""

OFFLINE = ("analysis", "traces", "comparison", "commands", "reports", "importers", "tensorboard")
LOOPS = {"LIGHTNING", "HUGGING_FACE", "PLAIN", "OUTSIDE", "INFERENCE"}
KINDS = {"own", "outside", "data_wait_is_bound", "trains"}
MOST_LOOP_BRANCHES = 8
"""Comparisons with a kind of loop, and tests of what kind it is; the aim was 12."""
MOST_DEVICE_BRANCHES = 10
"""Comparisons with `cpu`; a kind of device has words, and a step beside one a `DeviceAccount`."""


def modules(*rooms: str) -> Iterator[tuple[str, ast.Module]]:
    """Each module of some rooms: its path in the package, and its syntax tree."""
    for path, tree in trees("trainperf").items():
        place = path.relative_to(PACKAGE).as_posix()
        if place.startswith(tuple(f"{room}/" for room in rooms)):
            yield place, tree


def report(what: str, places: list[str]) -> int:
    """Print them, for whoever lowers their number."""
    print(f"\n{what}: {len(places)}", *places, sep="\n  ")  # noqa: T201 the point of `-s`
    return len(places)


@pytest.mark.parametrize("room", MOST_CONSTANTS)
def test_a_room_has_no_more_constants_than_before(room: str) -> None:
    """A rule that was fitted to one script on one machine is worth nothing on the next one."""
    places = [
        f"{path.relative_to(PACKAGE)}: {found.group(0)}"
        for path in sorted((PACKAGE / room).rglob("*.py"))
        for found in CONSTANT.finditer(path.read_text("utf-8"))
    ]

    assert report(f"constants in {room}", places) <= MOST_CONSTANTS[room]


def conditions(tree: ast.Module) -> Iterator[ast.expr]:
    """What decides: conditions of `if`, `while`, comprehensions, and parts of `and` and `or`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
            yield node.test
        elif isinstance(node, ast.comprehension):
            yield from node.ifs
        elif isinstance(node, ast.BoolOp):
            yield from node.values


def names_in(node: ast.AST) -> set[str]:
    """All names and attributes."""
    return {
        part.attr if isinstance(part, ast.Attribute) else part.id
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute | ast.Name)
    }


def comparisons(tree: ast.Module) -> Iterator[ast.Compare]:
    """Wherever they are."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.Compare))


def of_loop(tree: ast.Module) -> Iterator[ast.expr]:
    """Branches on the kind of loop."""
    for compared in comparisons(tree):
        identity = any(isinstance(each, ast.Is | ast.IsNot) for each in compared.ops)
        if identity and names_in(compared) & LOOPS:
            yield compared
    seen = set()
    for test in conditions(tree):
        for part in ast.walk(test):
            if isinstance(part, ast.Attribute) and part.attr in KINDS and id(part) not in seen:
                seen.add(id(part))
                if any("loop" in name for name in names_in(part.value)):
                    yield part


def of_device(tree: ast.Module) -> Iterator[ast.expr]:
    """Branches on where the model computes."""
    for compared in comparisons(tree):
        sides = (compared.left, *compared.comparators)
        if any(isinstance(side, ast.Constant) and side.value == "cpu" for side in sides):
            yield compared


def places(of: object) -> list[str]:
    """Where in the offline rooms."""
    return [
        f"{path}:{node.lineno} {ast.unparse(node)}"
        for path, tree in modules(*OFFLINE)
        for node in of(tree)
    ]


def test_no_more_branches_on_the_kind_of_loop() -> None:
    """What a loop calls a thing is in its kind; what it lacks is `None` in the account."""
    assert report("branches on the kind of loop", places(of_loop)) <= MOST_LOOP_BRANCHES


def test_no_more_branches_on_the_device() -> None:
    """A step beside a device has a `DeviceAccount`."""
    assert report("branches on the device", places(of_device)) <= MOST_DEVICE_BRANCHES


def test_no_detector_calls_another_one() -> None:
    """To silence itself, or to say what another one says: what is claimed is gone already."""
    names = {detector.__name__ for detector in DETECTORS}
    calls = [
        f"{path}:{node.lineno} {ast.unparse(node)}"
        for path, tree in modules("analysis/diagnosis/detectors")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in names - {"logging"}
    ]

    assert report("calls of detectors", calls) == 0


def test_no_detector_is_imported_by_another_module() -> None:
    """Helpers may be shared; a cause is found in one place."""
    names = {detector.__name__ for detector in DETECTORS}
    imported = [
        f"{path}:{node.lineno} {alias.name}"
        for path, tree in modules("analysis")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and "diagnosis.detectors" in (node.module or "")
        for alias in node.names
        if alias.name in names
    ]

    assert imported == []


def test_a_detector_reads_only_what_it_is_given() -> None:
    """No files, no clock, no configuration of its own: account and facts."""
    needless = {"trainperf.analysis.summarize", "trainperf.analysis.run", "pathlib", "os", "time"}
    for path, tree in modules("analysis/diagnosis/detectors"):
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "") not in needless, path
            elif isinstance(node, ast.Import):
                assert not {alias.name for alias in node.names} & needless, path


def test_shared_limits_are_few() -> None:
    """A limit of one detector is beside it."""
    assert len(LIMITS.__slots__) <= 7
