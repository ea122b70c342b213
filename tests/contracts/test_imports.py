"""Who may import whom, checked as a test; and how light an import is."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter

from support.sources import ROOT, nodes, trees


UNBOUND = {"__init__", "__main__"}
MOST_ROOMS, MOST_FLOORS = 24, 9
HEAVY = ("torch", "lightning", "tensorboard", "transformers")
UNIX_ONLY = {"fcntl", "grp", "posix", "pwd", "resource", "termios"}


def loaded_by(*imports: str) -> list[set[str]]:
    """Modules in a fresh interpreter after each of the imports, one after the other."""
    shown = "print(json.dumps(sorted(sys.modules)))"
    program = "\n".join(["import json, sys", *(f"import {each}\n{shown}" for each in imports)])
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return [set(json.loads(line)) for line in result.stdout.splitlines()]


def test_every_part_has_a_place_in_the_contracts() -> None:
    """A new module is placed when it is written: one that no contract names may import anything."""
    contracts = (
        (ROOT / "pyproject.toml").read_text(encoding="utf-8").split("[tool.importlinter]")[1]
    )
    parts = {
        path.stem
        for path in (ROOT / "trainperf").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }

    assert parts - set(re.findall(r"\btrainperf\.(\w+)", contracts)) == UNBOUND


def test_what_needs_no_torch_loads_none() -> None:
    """Not even through somebody else's import; `import trainperf` costs next to nothing.

    Pytest imports our plugin everywhere, so it has to be light.
    """
    plain, *others = loaded_by(
        "trainperf",
        "trainperf.plugins.pytest_plugin",
        "trainperf.commands",
        "trainperf.analysis.summarize",
        "trainperf.reports.run.text",
    )

    assert not plain & {*HEAVY, "numpy", "msgspec", "rich", "typer"}
    assert [each & set(HEAVY) for each in others] == [set()] * 4


def test_what_a_training_loads_is_neither_trials_nor_advice() -> None:
    """They are for a process of its own, and for the report."""
    (loaded,) = loaded_by("trainperf.lightning, trainperf.huggingface, trainperf.loop")
    rest = ("trainperf.trials", "trainperf.analysis", "trainperf.reports", "trainperf.comparison")

    assert [name for name in loaded if name.startswith(rest)] == []


def test_the_package_can_be_imported_where_there_is_no_unix() -> None:
    """What only Unix has is imported where it is used, behind a question whether it is there."""
    for path, tree in trees("trainperf").items():
        named = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        modules = {alias.name for node in named for alias in node.names}
        modules |= {node.module or "" for node in named if isinstance(node, ast.ImportFrom)}
        assert not modules & UNIX_ONLY, path


def imported(node: ast.AST) -> Iterator[str]:
    """Full names of the modules that a node imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        # `from trainperf import loop` names the room behind the import.
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room(module: str) -> str | None:
    """The folder or loose module of the repository that a module lives in."""
    top, _, rest = module.partition(".")
    if top == "trainperf":
        name = {"__main__": "commands"}.get(rest.split(".")[0], rest.split(".")[0])
        if name in {"", "__init__"}:
            return top
        return name if (ROOT / top / name).is_dir() or (ROOT / top / f"{name}.py").exists() else top
    return top if top in {"recipes", "scripts"} else None


def drawn() -> dict[str, set[str]]:
    """The structure of the repository: for each room, the rooms that it imports."""
    arrows: dict[str, set[str]] = {}
    for folder in ("trainperf", "recipes", "scripts"):
        for path, node in nodes(folder):
            for module in imported(node):
                here = room(".".join(path.relative_to(ROOT).with_suffix("").parts))
                there = room(module)
                if here is not None and there not in (None, here):
                    arrows.setdefault(here, set()).add(there)
    return arrows


def test_the_drawing_has_no_circle_and_fits_on_a_page() -> None:
    """At most 24 rooms on 9 floors, and every arrow points down.

    A floor is the longest way down from it.  Without `tests/`: a bench runs the corpus of faulty
    scripts that lives there.
    """
    arrows = drawn()
    floors: dict[str, int] = {}
    for name in TopologicalSorter(arrows).static_order():
        floors[name] = 1 + max((floors[below] for below in arrows.get(name, ())), default=0)

    assert len(floors) <= MOST_ROOMS
    assert max(floors.values()) <= MOST_FLOORS
