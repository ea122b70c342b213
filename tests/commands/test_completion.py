"""`trainperf completion`: what a shell offers when TAB is pressed, asked of the shell itself."""

import os
import select
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from trainperf.commands import COMMANDS, main


PATIENCE_S = 60.0
MARK = "-----"
"""Behind the offers for one line."""


def completion(capsys: pytest.CaptureFixture[str], shell: str) -> str:
    """The script for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["trainperf", "completion", shell])
        assert main() == 0
    return capsys.readouterr().out


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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One with something of each kind to be offered."""
    for name in ("train.py", "config.yaml"):
        (tmp_path / name).touch()
    (tmp_path / "runs").mkdir()
    return tmp_path


def ended_well(command: Sequence[str], folder: Path) -> str:
    """What it printed there, without a word of complaint."""
    ended = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def test_bash_offers_commands_options_names_and_paths(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the function that it calls itself."""
    pytest.importorskip("shtab")
    (folder / "script.bash").write_text(completion(capsys, "bash"), encoding="utf-8")
    asked = "\n".join(
        f"COMP_WORDS=(trainperf {shlex.join(words)}); COMP_CWORD={len(words)}; COMPREPLY=(); "
        '"$function"; echo "${COMPREPLY[*]}"'
        for words, _ in OFFERED
    )
    program = (
        "source ./script.bash\n"
        "function=$(complete -p trainperf | sed -E 's/.*-F ([^ ]+).*/\\1/')\n"
        f"{asked}\n"
    )

    printed = ended_well(["/bin/bash", "--norc", "-c", program], folder)

    offers = [set(line.split()) for line in printed.splitlines()]
    assert offers == [offered for _, offered in OFFERED]


def test_fish_offers_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Asked with its own `complete -C`."""
    pytest.importorskip("shtab")
    shell = installed("fish")
    (folder / "script.fish").write_text(completion(capsys, "fish"), encoding="utf-8")
    lines = [f"complete -C 'trainperf {' '.join(words)}'; echo {MARK}" for words, _ in OFFERED]

    printed = ended_well(
        [shell, "--no-config", "-c", "source script.fish\n" + "\n".join(lines)], folder
    )

    answers = printed.split(f"{MARK}\n")[:-1]
    offers = [
        {line.partition("\t")[0].rstrip("/") for line in answer.splitlines()} for answer in answers
    ]
    assert offers == [offered for _, offered in OFFERED]


ZSH = f"""
fpath=($PWD/functions $fpath)
autoload -Uz compinit
compinit -u -D
[[ -e script.zsh ]] && source ./script.zsh
bindkey '^I' complete-word
function compadd {{
  local -a offered
  if [[ ${{@[1,(i)(-|--)]}} != *-(O|A|D)* ]]; then
    builtin compadd -O offered "$@"
    print -rl -- $offered >> offers
  fi
  builtin compadd "$@"
}}
function finished {{
  comppostfuncs=(finished)
  print -- {MARK} >> offers
}}
comppostfuncs=(finished)
: > offers
"""
"""Writes what is offered at each TAB into a file: zsh completes nowhere but behind its prompt."""


@pytest.mark.parametrize("way", ["functions/_trainperf", "script.zsh"])
def test_zsh_offers_the_same(way: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At the prompt of a terminal, found on its path of functions or read with `source`."""
    pytest.importorskip("shtab")
    shell = installed("zsh")
    (folder / way).parent.mkdir(exist_ok=True)
    (folder / way).write_text(completion(capsys, "zsh"), encoding="utf-8")
    (folder / "begin").write_text(ZSH, encoding="utf-8")
    offers = folder / "offers"

    terminal, its_end = os.openpty()
    with subprocess.Popen(
        [shell, "-f", "-i"],
        cwd=folder,
        env={**os.environ, "TERM": "dumb"},
        stdin=its_end,
        stdout=its_end,
        stderr=its_end,
        start_new_session=True,
    ) as process:
        os.close(its_end)
        try:
            typed(terminal, "source ./begin\n", offers.exists)
            for number, (words, _) in enumerate(OFFERED, start=1):
                # Control-U takes away what the words before have become.
                line = f"\x15trainperf {' '.join(words)}\t"
                typed(terminal, line, lambda n=number: offers.read_text().count(MARK) >= n)  # type: ignore[misc]
        finally:
            process.kill()
            os.close(terminal)

    answers = offers.read_text().split(f"{MARK}\n")[:-1]
    assert [set(answer.split()) for answer in answers] == [offered for _, offered in OFFERED]


def typed(terminal: int, line: str, answered: Callable[[], bool]) -> None:
    """Type that, and read what the terminal shows until there is an answer."""
    os.write(terminal, line.encode())
    shown, until = b"", time.monotonic() + PATIENCE_S
    while not answered():
        assert time.monotonic() < until, shown.decode()
        if select.select([terminal], [], [], 0.02)[0]:
            shown += os.read(terminal, 4096)


def installed(shell: str) -> str:
    """Where that shell is; else the test is skipped, and says so."""
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not installed")
    return path


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_script_of_another_shell_names_all_commands(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the shell is not installed."""
    pytest.importorskip("shtab")
    script = completion(capsys, shell)

    assert all(name in script for name in COMMANDS)


def test_what_zsh_reads_takes_several_values_and_can_be_sourced(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also where zsh is not installed."""
    pytest.importorskip("shtab")
    script = completion(capsys, "zsh")

    assert '"(*):' not in script
    assert '"*:two or more run directories' in script
    assert "$zsh_eval_context[-1] == (eval|file)" in script


def test_without_the_library_the_remedy_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, as for every input that cannot be used."""
    monkeypatch.setitem(sys.modules, "shtab", None)
    monkeypatch.setattr(sys, "argv", ["trainperf", "completion", "bash"])

    assert main() == 2
    assert capsys.readouterr().err == "trainperf: shtab: not installed; pip install shtab\n"
