"""`trainperf completion`: what a shell offers when TAB is pressed, asked of the shell itself."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trainperf.commands import COMMANDS, main


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
)
"""Words behind `trainperf`, the last of them unfinished, and what bash offers for it."""


def test_bash_offers_commands_options_names_and_paths(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the function that it calls itself."""
    pytest.importorskip("shtab")
    for name in ("train.py", "config.yaml", "script.bash"):
        (tmp_path / name).touch()
    (tmp_path / "runs").mkdir()
    (tmp_path / "script.bash").write_text(completion(capsys, "bash"), encoding="utf-8")
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

    ended = subprocess.run(
        ["/bin/bash", "--norc", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )

    assert (ended.returncode, ended.stderr) == (0, "")
    offers = [set(line.split()) for line in ended.stdout.splitlines()]
    assert offers == [offered for _, offered in OFFERED]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_another_shell_can_read_its_script(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where it is installed; everywhere the script names all commands."""
    pytest.importorskip("shtab")
    script = completion(capsys, shell)

    assert all(name in script for name in COMMANDS)
    if shutil.which(shell):
        (tmp_path / "script").write_text(script, encoding="utf-8")
        subprocess.run([shell, "-n", tmp_path / "script"], check=True, timeout=30)


def test_without_the_library_the_remedy_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, as for every input that cannot be used."""
    monkeypatch.setitem(sys.modules, "shtab", None)
    monkeypatch.setattr(sys, "argv", ["trainperf", "completion", "bash"])

    assert main() == 2
    assert capsys.readouterr().err == "trainperf: shtab: not installed; pip install shtab\n"
