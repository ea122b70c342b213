"""Budgets: the size of files and functions, names that are used once, and plain words."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from support.sources import ROOT, nodes, trees


PACKAGE = ROOT / "trainperf"

LEAST_LINES_OF_FILE = 20
MOST_LINES_OF_FUNCTION = 60
MOST_PARAMETERS = 6

FACES = {"__init__.py", "__main__.py"}

VAGUE = {"one", "found", "known", "said", "made", "asked", "told", "seen"}

QUESTION_WORDS = {
    *("are", "can", "could", "did", "do", "does", "had", "has", "have", "how", "is", "may", "must"),
    *("should", "was", "were", "what", "when", "where", "which", "who", "whom", "whose", "why"),
    *("will", "would"),
}

FOLDERS = ("trainperf", "recipes")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def in_package() -> Iterator[tuple[str, ast.Module]]:
    """Each module of the package: its path in it, and its syntax tree."""
    for path, tree in trees("trainperf").items():
        yield path.relative_to(PACKAGE).as_posix(), tree


def everywhere() -> Iterator[tuple[Path, ast.AST]]:
    """Each node of the package and the recipes, with its module."""
    for folder in FOLDERS:
        yield from nodes(folder)


def functions() -> Iterator[tuple[str, Function]]:
    """Every function and method, and where it is."""
    for path, node in everywhere():
        if isinstance(node, Function):
            yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", node


def parameters(function: Function) -> list[str]:
    """What it takes, besides the object that it belongs to.

    Options of a constructor are named by whoever gives one: there may be more of them.
    """
    options = [] if function.name == "__init__" else function.args.kwonlyargs
    arguments = [*function.args.posonlyargs, *function.args.args, *options]
    return [argument.arg for argument in arguments if argument.arg not in {"self", "cls"}]


def length(function: Function) -> int:
    """Lines without the docstring."""
    documented = ast.get_docstring(function) is not None
    body = function.body[1:] if documented else function.body
    last = function.end_lineno or function.lineno
    return last - body[0].lineno + 1 if body else 0


def lines_of(path: Path) -> int:
    """All lines, empty ones too."""
    return len(path.read_text(encoding="utf-8").splitlines())


def named_by(node: ast.AST) -> str | None:
    """The name that a node gives to something: class, function, parameter, variable, field."""
    if isinstance(node, ast.ClassDef | Function):
        return node.name
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return node.attr
    return node.asname if isinstance(node, ast.alias) else None


def test_no_file_is_a_fragment() -> None:
    """At least 20 lines, faces excepted: a fragment belongs into the file that it serves."""
    short = {
        path.relative_to(PACKAGE).as_posix()
        for path in trees("trainperf")
        if path.name not in FACES and lines_of(path) < LEAST_LINES_OF_FILE
    }

    assert short == set()


def test_a_function_is_short() -> None:
    """At most 60 lines."""
    assert [where for where, node in functions() if length(node) > MOST_LINES_OF_FUNCTION] == []


def test_a_function_takes_few_things() -> None:
    """At most six parameters besides `self`; a seventh is a dataclass missing."""
    assert [where for where, node in functions() if len(parameters(node)) > MOST_PARAMETERS] == []


def test_a_public_class_has_its_name_to_itself() -> None:
    """Who reads `Steps` in a traceback or an import knows which."""
    places = defaultdict(list)
    for place, tree in in_package():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(place)

    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_a_name_says_what_it_names() -> None:
    """`found` is whatever was looked for: a noun of the field says what it is."""
    # Those in folders of `bench` are others', judged as they came.
    others = set((ROOT / "scripts" / "bench").glob("*/*/*.py"))
    own = [each for each in nodes("scripts") if each[0] not in others]
    names = [(path, named_by(node)) for path, node in [*everywhere(), *own]]
    names += [(path, path.stem) for path in {path for path, _ in names}]
    vague = Counter(
        path.relative_to(ROOT) for path, name in names if (name or "").strip("_").lower() in VAGUE
    )

    assert vague == Counter()


def test_a_module_says_what_it_is() -> None:
    """Its docstring begins with a noun phrase, not with a question."""
    questions = []
    for place, tree in in_package():
        first = (ast.get_docstring(tree) or "").split("\n")[0]
        if first.endswith("?") or first.split(" ")[0].lower() in QUESTION_WORDS:
            questions.append(place)

    assert questions == []


def test_only_the_guard_catches_everything() -> None:
    """One boundary for failure: elsewhere an error has a name."""
    broad = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path, node in everywhere()
        if isinstance(node, ast.ExceptHandler)
        and (ast.unparse(node.type) if node.type else "") in {"", "Exception", "BaseException"}
        and path.name != "guard.py"
    ]

    assert broad == []


def test_nothing_reads_the_clock_on_the_wall() -> None:
    """`time.time()` jumps; durations come from the host clock."""
    files = [path for folder in FOLDERS for path in trees(folder)]

    assert [path for path in files if "time.time(" in path.read_text(encoding="utf-8")] == []
