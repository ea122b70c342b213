"""What no command can use: one line with the remedy, exit code 2, and nothing else happens."""

import shlex
from pathlib import Path

import pytest
from support.commands import Command
from support.doctor import Planted


REFUSED = {
    # Whatever the command; a part of an option's name is none, lest a new option break it.
    "reprot run": "argument COMMAND: invalid choice: 'reprot'",
    "trace": "the following arguments are required: PATH; see trainperf trace --help",
    "run": "the following arguments are required: SCRIPT; see trainperf run --help",
    "trace a --form json": "unrecognized arguments: --form",
    "trace a --format pdf": "argument --format: invalid choice: 'pdf'",
    "view a --port 65536": "argument --port: 65536: must be a number",
    "view a --port -1": "argument --port: -1: must be a number from 0",
    "view empty": "not a run directory",
    "trace missing.json": "missing.json",
    "report nowhere": "nowhere: no such file or directory",
    "report empty": "empty",
    "report file": "file",
    "report foreign": "foreign",
    "report future": "schema version 99: this trainperf reads version 1",
    "report 'a\nb'": "no such file",
    "compare run": "one RUN",
    "compare run run --noise 300": "give a share, as in 5% or 0.05",
    "compare nowhere run": "nowhere: no such file",
    "doctor run --baseline nowhere": "nowhere: no such file or directory",
    "doctor --script train.py": "--script is gone: trainperf run --out runs/a train.py, then",
    "run --loader-anatomy train.py": "--loader-anatomy is gone: every run samples what makes the",
    "run missing.py --loader-anatomy": "missing.py: no such file",
    "explain datawait": "did you mean data_wait",
    "explain --schema poem": "argument --schema: invalid choice: 'poem'",
    "mcp --root nowhere": "--root nowhere: no such folder",
    "mcp --root s3://bucket/runs": "must be on this machine",
    "merge run --out empty": "exists already",
    "prove a.py b.py --pairs 0": "--pairs: 0: must be at least 1",
    "prove a.py b.py --every 1": "--every: 1: must be at least 2",
    "prove a.py b.py": "a.py: no such file",
    "prove '' b.py": "give a training",
    'prove "train.py \'x" b.py': "No closing quotation",
    "run missing.py": "trainperf: missing.py: no such file; give the script that trains",
    "run no-such-command": "no-such-command",
    "run --audit-at -1 train.py": "--audit-at",
    "run --audit-at 3 --no-audit train.py": "--no-audit",
    "try --minutes 0 train.py": "--minutes",
    "try --only a --without a train.py": "a",
    "try missing.py": "missing.py",
    "try --list train.py": "give a run directory of it",
    "watch run": "needs a terminal; `trainperf report run`",
    "watch nowhere": "no such file or directory",
    "watch run --every 0": "give a number above 0",
    "watch run --every 2s": "--every: 2s: give a number",
}


@pytest.mark.parametrize("typed", REFUSED)
def test_what_cannot_be_used_is_refused_in_one_line(
    typed: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never a traceback, nothing on stdout, and no file is written."""
    Planted(phases_ms={"forward": 30.0}).write(tmp_path / "run")
    (tmp_path / "file").write_text("hello")
    (tmp_path / "train.py").touch()
    (tmp_path / "empty").mkdir()
    for name, line in (("foreign", '{"a": 1}'), ("future", '{"kind": "run", "schema": 99}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "steps-rank0.jsonl").write_text(line + "\n")
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)

    ended = command(*shlex.split(typed))

    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("trainperf: ")
    assert REFUSED[typed] in ended.err
    assert ended.err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before
