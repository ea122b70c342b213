"""Script of the GitHub Action: a comparison whose markdown is commented on the pull request.

Only the standard library, because it runs with whatever Python a job has.  All that it is told
comes from the environment; the token goes into one header of requests and nowhere else.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


TOKEN = "TRAINPERF_ACTION_TOKEN"  # noqa: S105 the name of the variable
"""Of the environment; trainings do not get it."""

LONGEST_REASON = 1_000
"""Letters of the line that says why there is nothing to show."""

LONGEST = 60_000
"""Letters of a comment; GitHub takes 65,536."""

PAGE = 100
MOST_PAGES = 20
"""Comments of a pull request are looked through up to so many pages for ours."""

TIMEOUT_S = 30.0

COMPARES = ("prove", "compare", "try", "report", "doctor")
"""Commands whose output is markdown if they are told so."""

GATES = {
    "prove": ("--decide", "--fail-on-regression"),
    "compare": ("--decide", "--fail-on-regression"),
    "doctor": ("--strict",),
}
"""Options that make a command a gate: without one of them it ends with 0 whatever it has found."""

OUTCOMES = {
    1: "**failed**: slower than the limit allows, another loss, or a change to discard",
    2: "**unusable**: the log of the job says why",
    3: "**undecided**: neither shown nor excluded",
}

OF_OTHERS = {"doctor": {1: "**failed**: a check failed"}}
"""What an exit code of a command means that is no comparison of two."""


def arguments_of(command: str) -> list[str]:
    """The command line of trainperf, printing markdown.

    Raises:
        SystemExit: It is none that can.
    """
    words = shlex.split(command)
    if words[:1] == ["trainperf"]:
        words = words[1:]
    if not words or words[0] not in COMPARES:
        raise SystemExit(f"command: begin with one of {', '.join(COMPARES)}")
    if any(word == "--format" or word.startswith("--format=") for word in words):
        raise SystemExit("command: leave --format out; the action asks for markdown")
    # Right behind the command's name: what follows -- or a script belongs to somebody else.
    return [words[0], "--format", "markdown", *words[1:]]


def marker(title: str) -> str:
    """What tells our comment from others, invisible to readers."""
    name = "".join(c if c.isalnum() else "-" for c in title.lower())
    return f"<!-- trainperf-action: {name} -->"


def outcome_of(command: str, code: int) -> str:
    """How it ended, in a line: of a gate only where there was one."""
    name, *words = arguments_of(command)
    gates = GATES.get(name, ())
    is_gate = any(word.partition("=")[0] in gates for word in words)
    text = OF_OTHERS.get(name, {}).get(code) or OUTCOMES.get(code)
    if code == 0 and text is None:
        none = f"none was asked for ({' or '.join(gates)})" if gates else "this command has none"
        text = "passed" if is_gate else none
    return f"Gate: {text or f'ended with exit code {code}'}."


def body_of(title: str, markdown: str, outcome: str) -> str:
    """The comment: heading, result, and how the command ended."""
    shown = markdown.strip("\n") or "*trainperf printed nothing; the log of the job says why.*"
    if len(shown) > LONGEST:
        shown = shown[:LONGEST].rpartition("\n")[0] + "\n\n*…the rest is in the job's summary.*"
    return f"{marker(title)}\n### {title}\n\n{shown}\n\n{outcome}\n"


def pull_request(environment: Mapping[str, str]) -> int | None:
    """Its number; `None` where the job is of none."""
    path = environment.get("GITHUB_EVENT_PATH")
    if not path:
        return None
    event = json.loads(Path(path).read_text(encoding="utf-8"))
    number = event.get("pull_request", {}).get("number") or event.get("number")
    return int(number) if number else None


class GitHub:
    """The interface of one repository's issues."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        api = environment.get("GITHUB_API_URL", "https://api.github.com")
        self._base = f"{api}/repos/{environment['GITHUB_REPOSITORY']}/issues"
        self._token = environment[TOKEN]

    def put(self, number: int, title: str, body: str) -> str:
        """Change our comment of that title, or write the first one; its address."""
        for comment in self._comments(number):
            if str(comment.get("body", "")).startswith(marker(title)):
                path = f"{self._base}/comments/{comment['id']}"
                return str(self._ask("PATCH", path, {"body": body})["html_url"])
        path = f"{self._base}/{number}/comments"
        return str(self._ask("POST", path, {"body": body})["html_url"])

    def _comments(self, number: int) -> Iterator[dict[str, Any]]:
        for page in range(1, MOST_PAGES + 1):
            path = f"{self._base}/{number}/comments?per_page={PAGE}&page={page}"
            comments = self._ask("GET", path)
            yield from comments
            if len(comments) < PAGE:
                return

    def _ask(self, method: str, address: str, content: object = None) -> Any:  # noqa: ANN401 JSON
        request = urllib.request.Request(  # noqa: S310 the address is GitHub's own
            address,
            method=method,
            data=None if content is None else json.dumps(content).encode(),
            headers={
                "Authorization": f"Bearer {self._token}",
                "Accept": "application/vnd.github+json",
                "Content-Type": "application/json",
            },
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310 as above
            return json.load(answer)


def compared(command: str, environment: Mapping[str, str]) -> tuple[str, int]:
    """Run it: what it printed, or why it printed nothing, and its exit code.

    Its progress goes to the log.
    """
    without = {name: value for name, value in environment.items() if name != TOKEN}
    last = ""
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as printed,
        subprocess.Popen(
            [sys.executable, "-m", "trainperf", *arguments_of(command)],
            stdout=printed,
            stderr=subprocess.PIPE,
            env=without,
            encoding="utf-8",
            errors="replace",
        ) as process,
    ):
        for line in process.stderr or ():
            sys.stderr.write(line)
            last = line.strip() or last
        code = process.wait()
        printed.seek(0)
        markdown = printed.read()
    if code and last and not markdown.strip():
        # Of the user's script, perhaps: indented, nothing in it is markup.
        markdown = f"    {last[:LONGEST_REASON]}"
    return markdown, code


def commented(title: str, body: str, environment: Mapping[str, str]) -> None:
    """Comment, or say in the log why not: a comment that fails is no reason to fail a job."""
    number = pull_request(environment)
    if number is None:
        print("trainperf: not of a pull request, nothing to comment on")
        return
    try:
        print(f"trainperf: {GitHub(environment).put(number, title, body)}")
    except urllib.error.HTTPError as error:
        why = "; give the job pull-requests: write" if error.code in {401, 403, 404} else ""
        print(f"::warning::trainperf: no comment (HTTP {error.code}){why}")
    except (OSError, ValueError, KeyError) as error:
        print(f"::warning::trainperf: no comment ({type(error).__name__})")


def append(environment: Mapping[str, str], variable: str, text: str) -> None:
    """Write to a file that the runner reads, if there is one."""
    if environment.get(variable):
        with Path(environment[variable]).open("a", encoding="utf-8") as file:
            file.write(text)


def main(environment: Mapping[str, str]) -> int:
    """Compare, publish, and end as trainperf did."""
    title = " ".join(environment.get("TRAINPERF_ACTION_TITLE", "").split()) or "Training speed"
    command = environment.get("TRAINPERF_ACTION_COMMAND", "")
    markdown, code = compared(command, environment)
    folder = Path(environment.get("RUNNER_TEMP") or tempfile.gettempdir())
    file = folder / "trainperf.md"
    file.write_text(markdown, encoding="utf-8")
    body = body_of(title, markdown, outcome_of(command, code))
    append(environment, "GITHUB_STEP_SUMMARY", body)
    append(environment, "GITHUB_OUTPUT", f"exit-code={code}\nmarkdown={file}\n")
    if environment.get("TRAINPERF_ACTION_COMMENT", "true") == "true":
        commented(title, body, environment)
    return code


if __name__ == "__main__":
    sys.exit(main(os.environ))
