"""`trainperf completion`: what a shell offers when TAB is pressed, asked of bash itself."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import Command

from trainperf.commands import COMMANDS


OFFERED = (
    (("",), set(COMMANDS)),
    (("re",), {"report"}),
    (("report", "--for"), {"--format"}),
    (("report", "--format", ""), {"text", "markdown", "json", "html"}),
    (("compare", "--undecided", "p"), {"pass"}),
    (("report", "ru"), {"runs"}),
    (("run", "tra"), {"train.py"}),
    (("run", "train.py", "con"), {"config.yaml"}),
    (("bisect", "v1", "HEAD", "--", "tra"), {"train.py"}),
    (("explain", "data_w"), {"data_wait", "data_wait_fraction", "data_wait_all_fraction"}),
    (("explain", "mfu", "hf"), {"hfu"}),
    (("explain", "--schema", "su"), {"summary"}),
    (("try", "--only", "autocast_"), {"autocast_bf16"}),
    (("completion", ""), {"bash", "zsh", "fish"}),
    (("compare", "runs", "ru"), {"runs"}),
)
"""Words behind `trainperf`, the last of them unfinished, and what a shell offers for it."""


def test_bash_offers_commands_options_names_and_paths(tmp_path: Path, command: Command) -> None:
    """By the function that it calls itself."""
    pytest.importorskip("shtab")
    for name in ("train.py", "config.yaml"):
        (tmp_path / name).touch()
    (tmp_path / "runs").mkdir()
    (tmp_path / "script.bash").write_text(command("completion", "bash").out, encoding="utf-8")
    presses = "\n".join(
        f"COMP_WORDS=(trainperf {shlex.join(words)}); COMP_CWORD={len(words)}; COMPREPLY=(); "
        '"$function"; echo "${COMPREPLY[*]}"'
        for words, _ in OFFERED
    )
    program = (
        "source ./script.bash\n"
        "function=$(complete -p trainperf | sed -E 's/.*-F ([^ ]+).*/\\1/')\n"
        f"{presses}\n"
    )

    ended = subprocess.run(
        ["/bin/bash", "--norc", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    offers = [set(line.split()) for line in ended.stdout.splitlines()]
    assert (offers, ended.stderr) == ([offered for _, offered in OFFERED], "")


def test_scripts_of_other_shells_name_all_commands(command: Command) -> None:
    """Also where they are not installed; zsh's takes several values and can be sourced."""
    pytest.importorskip("shtab")
    zsh, fish = (command("completion", shell).out for shell in ("zsh", "fish"))

    assert all(name in script for script in (zsh, fish) for name in COMMANDS)
    assert '"(*):' not in zsh
    assert '"*:two or more run directories' in zsh
    assert "$zsh_eval_context[-1] == (eval|file)" in zsh


def test_without_the_library_the_remedy_is_told(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line, as for every input that cannot be used."""
    monkeypatch.setitem(sys.modules, "shtab", None)

    assert command("completion", "bash") == (
        *(2, ""),
        "trainperf: shtab: not installed; pip install shtab\n",
    )
