"""The GitHub Action: what it runs, what it comments, and that its token is in no log."""

import json
import os
import runpy
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from support.runs import make_run


ROOT = Path(__file__).parents[2]
ACTION = ROOT / "action.yml"
SCRIPT = ROOT / "scripts" / "pull_request_comment.py"
TOKEN = "ghs_planted_secret"  # noqa: S105 opens nothing


class Forge(BaseHTTPRequestHandler):
    """As much of GitHub as the action talks to."""

    comments: ClassVar[list[dict[str, Any]]] = []
    refuses: ClassVar[int] = 0
    tokens: ClassVar[list[str]] = []

    def _answer(self, content: object, code: int = 200) -> None:
        if self.refuses:
            code, content = self.refuses, {"message": "refused"}
        self.tokens.append(self.headers["Authorization"])
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def _content(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def do_GET(self) -> None:
        """A page of comments."""
        assert self.path.startswith("/repos/o/r/issues/7/comments")
        self._answer(self.comments if "page=1" in self.path.split("&") else [])

    def do_POST(self) -> None:
        """A comment more."""
        comment = {"id": len(self.comments), "html_url": "u", **self._content()}
        self._answer(comment, 201)
        if not self.refuses:
            self.comments.append(comment)

    def do_PATCH(self) -> None:
        """A comment changed."""
        comment = self.comments[int(self.path.rpartition("/")[2])]
        comment |= self._content()
        self._answer(comment)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def forge() -> Iterator[str]:
    """Its address."""
    Forge.comments, Forge.refuses, Forge.tokens = [], 0, []
    server = HTTPServer(("127.0.0.1", 0), Forge)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def runner(tmp_path: Path, forge: str) -> dict[str, str]:
    """The environment of a job of pull request 7, with two runs in its directory."""
    for name, wait in (("main", 1.0), ("pr", 9.0)):
        make_run(tmp_path / name / "trainperf", 120, forward=5.0, data_wait=wait)
    (tmp_path / "event.json").write_text(json.dumps({"pull_request": {"number": 7}}))
    return {
        **{name: os.environ[name] for name in ("PATH", "PYTHONPATH", "HOME") if name in os.environ},
        "GITHUB_API_URL": forge,
        "GITHUB_REPOSITORY": "o/r",
        "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "RUNNER_TEMP": str(tmp_path),
        "TRAINPERF_ACTION_COMMAND": "compare main pr --fail-on-regression 5%",
        "TRAINPERF_ACTION_TITLE": "Speed of <training>",
        "TRAINPERF_ACTION_TOKEN": TOKEN,
    }


def run(runner: dict[str, str], place: Path) -> "subprocess.CompletedProcess[str]":
    """The script as the action starts it."""
    ended = subprocess.run(
        [sys.executable, SCRIPT], cwd=place, env=runner, capture_output=True, text=True, check=False
    )
    written = [ended.stdout, ended.stderr]
    written += [path.read_text() for path in place.iterdir() if path.is_file()]
    assert not any(TOKEN in text for text in written)
    return ended


def test_the_comparison_is_commented_once_and_then_changed(
    runner: dict[str, str], tmp_path: Path
) -> None:
    """The same on the job's summary; it ends as trainperf does."""
    first = run(runner, tmp_path)
    again = run({**runner, "TRAINPERF_ACTION_COMMAND": "compare main main"}, tmp_path)

    assert (first.returncode, again.returncode) == (1, 0), first.stderr
    (comment,) = Forge.comments
    begins = "<!-- trainperf-action: speed-of--training- -->\n### Speed of"
    assert comment["body"].startswith(begins)
    # What was no gate has not passed one.
    assert "Gate: none was asked for (--decide or --fail-on-regression)." in comment["body"]
    summary = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert "**pr against main: slower" in summary
    assert "Gate: **failed**" in summary
    output = (tmp_path / "output").read_text().splitlines()
    assert output[0] == "exit-code=1"
    assert Path(output[1].removeprefix("markdown=")).is_file()
    assert set(Forge.tokens) == {f"Bearer {TOKEN}"}


def test_other_comments_are_left_alone(runner: dict[str, str], tmp_path: Path) -> None:
    """Of other people, and of the action under another title."""
    Forge.comments += [{"id": 0, "body": "nice"}, {"id": 1, "body": "<!-- trainperf-action: x -->"}]

    run(runner, tmp_path)

    assert [comment["body"][:10] for comment in Forge.comments[:2]] == ["nice", "<!-- train"]
    assert len(Forge.comments) == 3


def test_a_token_that_may_not_comment_fails_no_job(runner: dict[str, str], tmp_path: Path) -> None:
    """As that of a fork: a warning, and the gate decides."""
    Forge.refuses = 403

    ended = run({**runner, "TRAINPERF_ACTION_COMMAND": "compare main main"}, tmp_path)

    assert ended.returncode == 0
    assert "::warning::trainperf: no comment (HTTP 403); give the job" in ended.stdout


def test_a_job_of_no_pull_request_comments_nowhere(runner: dict[str, str], tmp_path: Path) -> None:
    """A push has its summary."""
    (tmp_path / "event.json").write_text("{}")

    assert run(runner, tmp_path).returncode == 1
    assert Forge.comments == []
    assert "slower" in (tmp_path / "summary.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("view main", "begin with one of"),
        ("", "begin with one of"),
        ("compare a b --format json", "leave --format out"),
    ],
)
def test_a_command_that_prints_no_markdown_is_refused(
    command: str, why: str, runner: dict[str, str], tmp_path: Path
) -> None:
    """Before anything runs."""
    ended = run({**runner, "TRAINPERF_ACTION_COMMAND": command}, tmp_path)

    assert ended.returncode == 1
    assert why in ended.stderr


def test_a_comment_fits_into_one() -> None:
    """A page of hundreds of kilobytes is cut at the end of a line, and says so."""
    script = runpy.run_path(str(SCRIPT))
    outcome = script["outcome_of"]("compare a b --decide", 3)
    body = script["body_of"]("t", "| a | b |\n" * 50_000, outcome)

    assert len(body) < 65_536
    assert "the rest is in the job's summary" in body
    assert "Gate: **undecided**" in body


@pytest.mark.parametrize(
    ("command", "code", "outcome"),
    [
        ("compare a b --fail-on-regression=5%", 0, "Gate: passed."),
        ("prove a b --decide", 1, "Gate: **failed**: slower than the limit allows"),
        ("prove a b", 0, "Gate: none was asked for"),
        ("report a", 0, "Gate: this command has none."),
        ("doctor a --strict", 1, "Gate: **failed**: a check failed."),
    ],
)
def test_a_code_means_what_it_does_of_that_command(command: str, code: int, outcome: str) -> None:
    """A check that failed is no slowdown."""
    assert runpy.run_path(str(SCRIPT))["outcome_of"](command, code).startswith(outcome)


def test_what_cannot_run_says_why_in_the_comment(runner: dict[str, str], tmp_path: Path) -> None:
    """Reviewers do not open the log; what a script has printed is no markup."""
    ended = run({**runner, "TRAINPERF_ACTION_COMMAND": "compare main nowhere"}, tmp_path)

    (comment,) = Forge.comments
    assert ended.returncode == 2
    assert "nowhere: no such file" in ended.stderr
    assert "\n\n    trainperf: nowhere: no such file" in comment["body"]
    assert "Gate: **unusable**" in comment["body"]


def test_the_action_is_a_valid_composite_one() -> None:
    """Every input that is used is declared, none is pasted into a shell, and each has a meaning."""
    action = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
    text = ACTION.read_text(encoding="utf-8")

    assert {"name", "description", "inputs", "outputs", "runs"} <= set(action)
    assert action["runs"]["using"] == "composite"
    for step in action["runs"]["steps"]:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"]
    assert all(each["description"] for each in action["inputs"].values())
    used = {word.split()[0].strip("'\"}") for word in text.split("inputs.")[1:]}
    assert used == set(action["inputs"])
    script = SCRIPT.read_text(encoding="utf-8")
    given = action["runs"]["steps"][1]["env"]
    assert all(f'"{name}"' in script for name in given)
    assert action["runs"]["steps"][1]["run"].endswith('/scripts/pull_request_comment.py"')


def test_the_workflow_that_is_shown_uses_a_copy_and_inputs_that_there_are() -> None:
    """Nobody has to guess whose repository is meant."""
    page = (ROOT / "docs/how-to/comment-on-a-pull-request.md").read_text(encoding="utf-8")
    workflow = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    *checkouts, ours = workflow["jobs"]["speed"]["steps"]
    action = yaml.safe_load(ACTION.read_text(encoding="utf-8"))

    assert {step["uses"].partition("@")[0] for step in checkouts} == {"actions/checkout"}
    assert ours["uses"].startswith("./")
    assert set(ours["with"]) <= set(action["inputs"])
    assert any('pip install "$GITHUB_ACTION_PATH"' in s["run"] for s in action["runs"]["steps"])
