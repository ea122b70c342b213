"""What a commit must pass is what `scripts/test` checks, by the same tools."""

import re
import shlex
from pathlib import Path
from typing import Any

import yaml


ROOT = Path(__file__).parents[2]

HOOKS: list[dict[str, Any]] = [
    hook
    for repository in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    for hook in repository["hooks"]
]


def test_the_hooks_are_those_of_the_house_rules() -> None:
    """Style, form, types, spelling, and tables that are generated; nothing slow, nothing else."""
    found = {hook["id"] for hook in HOOKS}

    assert found == {"ruff", "ruff-format", "mypy", "codespell", "render-docs"}


def test_a_hook_runs_the_tool_of_the_environment_that_the_tests_use() -> None:
    """Two versions of a formatter never agree; only codespell is fetched, pinned."""
    for hook in HOOKS:
        program = shlex.split(hook["entry"])[0]
        if hook["language"] == "system":
            assert program.startswith(".venv/bin/"), hook["id"]
        else:
            assert re.fullmatch(r"codespell==[\d.]+", *hook["additional_dependencies"])


def test_a_hook_never_changes_a_file() -> None:
    """It says what is wrong, as `scripts/test` does."""
    checks = (ROOT / "scripts" / "test").read_text()
    for hook in HOOKS:
        arguments = shlex.split(hook["entry"])[1:]
        assert not {"--fix", "-w", "--write-changes"} & set(arguments)
        if hook["id"] == "ruff-format":
            assert "--check" in arguments
            assert "check ruff format --check" in checks


def test_a_hook_of_ours_is_there() -> None:
    """The script that it runs, with the option it takes."""
    (entry,) = [hook["entry"] for hook in HOOKS if hook["id"] == "render-docs"]
    _, script, option = shlex.split(entry)

    assert f'"{option}"' in (ROOT / script).read_text()
