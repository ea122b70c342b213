"""What programs may rely on: JSON Schemas that outputs keep to, and names that never change."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator
from support.cases import CASES
from support.commands import Command
from support.planted import planted_steps
from support.runs import make_run, make_run_dir
from support.traces import write_trace
from support.tried import AUTOCAST, FUSED, tried

from scripts.docs.schemas import IDS, PUBLISHED, schemas
from scripts.render_docs import SCHEMAS
from trainperf.core.artifacts import write_document
from trainperf.reports.explanations import explanations


def schema(name: str) -> dict[str, Any]:
    """One as it is shipped."""
    return json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, one of them with trials and findings, a job of ranks, and a trace."""
    place = tmp_path_factory.mktemp("world")
    for name, wait in (("a", 6.0), ("b", 1.0)):
        make_run(place / name / "trainperf", 120, forward=4.0, backward=5.0, data_wait=wait)
    write_document(tried(AUTOCAST, FUSED), place / "a" / "trainperf")
    for name in ("straggler", "failed", "running", "no_step"):
        make_run_dir(place / name / "trainperf", CASES[name]().ranks)
    write_trace(place / "trace.json.gz", planted_steps(6), rank=0, world_size=2)
    return place


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_schema_that_is_shipped_is_valid_and_that_of_the_code(
    name: str, command: Command
) -> None:
    """`python -m scripts.render_docs` writes it, and `explain --schema` prints it."""
    text = (SCHEMAS / f"{name}.json").read_text(encoding="utf-8")

    assert text == schemas()[f"{name}.json"], "stale: run python -m scripts.render_docs"
    Draft202012Validator.check_schema(json.loads(text))
    assert command("explain", "--schema", name).out == text


def test_nothing_else_is_shipped() -> None:
    """No schema of a document that is gone."""
    assert sorted(path.name for path in SCHEMAS.iterdir()) == sorted(schemas())


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("summary", ("report", "a", "--format", "json")),
        ("summary", ("report", "straggler", "--format", "json")),
        ("summary", ("report", "failed", "--format", "json")),
        ("summary", ("report", "running", "--format", "json")),
        ("summary", ("report", "no_step", "--format", "json")),
        ("comparison", ("compare", "a", "b", "--format", "json")),
        ("comparison", ("compare", "a", "b", "straggler", "--format", "json")),
        ("doctor", ("doctor", "a", "--format", "json")),
        ("doctor", ("doctor", "b", "--baseline", "a", "--format", "json")),
        ("trace", ("trace", "trace.json.gz", "--format", "json")),
        ("trace", ("trace", "trace.json.gz", "--lanes", "--format", "json")),
        ("offers", ("try", "--list", "--format", "json")),
        ("offers", ("try", "--list", "--format", "json", "a")),
        ("explanation", ("explain", "--format", "json")),
        ("explanation", ("explain", "data_wait", "--format", "json")),
    ],
)
def test_what_a_command_prints_keeps_to_its_schema(
    name: str,
    arguments: tuple[str, ...],
    world: Path,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And names only fields that the schema describes, so that it cannot lag behind."""
    monkeypatch.chdir(world)
    document = json.loads(command(*arguments).out)

    Draft202012Validator(schema(name)).validate(document)
    strict = json.loads(json.dumps(schema(name)))
    for definition in strict["$defs"].values():
        if definition.get("type") == "object":
            definition["additionalProperties"] = False
    Draft202012Validator(strict).validate(document)


def test_a_finding_and_trials_keep_to_theirs(
    world: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each finding of a summary by itself, and `trials.json` as it lies in a run."""
    monkeypatch.chdir(world)
    summary = json.loads(command("report", "a", "--format", "json").out)

    assert summary["findings"]
    for finding in summary["findings"]:
        Draft202012Validator(schema("finding")).validate(finding)
    trials = json.loads((world / "a/trainperf/trials.json").read_text(encoding="utf-8"))
    Draft202012Validator(schema("trials")).validate(trials)


def test_a_document_of_another_kind_is_refused() -> None:
    """The schemas are not so loose that anything passes."""
    refused = Draft202012Validator(schema("finding"))

    assert not refused.is_valid({"id": "data_wait"})
    assert not refused.is_valid({**msgspec.to_builtins(AUTOCAST), "severity": "enormous"})
    assert not Draft202012Validator(schema("summary")).is_valid({"schema": 1})


def test_a_schema_says_its_version_as_the_documents_do() -> None:
    """A document that names its version names that of the schema."""
    for name, published in PUBLISHED.items():
        assert schema(name)["$id"] == f"urn:trainperf:schema:{name}:{published.version}"
        for definition in schema(name)["$defs"].values():
            own = definition.get("properties", {}).get("schema", {}).get("default")
            if own is not None and definition.get("title") in schema(name).get("$ref", ""):
                assert own == published.version, name


def test_no_name_that_was_published_is_gone() -> None:
    """An id means the same for ever: a finding that is dropped or renamed breaks who waits for it.

    `python -m scripts.render_docs` adds new names to the list, and takes none away.
    """
    listed = set(IDS.read_text(encoding="utf-8").splitlines())
    now = {f"{entry.kind} {entry.id}" for entry in explanations()}

    assert listed - now == set(), "a published name is gone: give it back"


def test_every_finding_that_the_code_makes_is_a_published_one() -> None:
    """No detector gives its finding another id than its own."""
    import re

    package = Path(__file__).parents[2] / "trainperf"
    made = {
        name
        for folder in ("analysis/diagnosis", "traces")
        for path in (package / folder).rglob("*.py")
        for name in re.findall(
            r"\b(?:Finding|Cause)\(\s*id=\"(\w+)\"", path.read_text(encoding="utf-8")
        )
    }

    assert made - {entry.id for entry in explanations() if entry.kind == "finding"} == set()
