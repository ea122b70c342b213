"""The tab's routes over HTTP: a policy on every response, nothing sent that is not new."""

import argparse
import gzip
import json
import os
import subprocess
import sys
import threading
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from support.tab import TRACE, a_report, a_run, write_capture
from tensorboard.plugins.base_plugin import TBContext
from werkzeug.test import Client

from trainperf.tensorboard.data import READER
from trainperf.tensorboard.plugin import STATIC, TrainPerfPlugin


QUERY = {"run": "first/trainperf"}


def plugin(root: Path) -> TrainPerfPlugin:
    """The plugin as TensorBoard makes it for a log directory."""
    return TrainPerfPlugin(TBContext(logdir=str(root), flags=argparse.Namespace(logdir_spec="")))


def client(root: Path, route: str) -> Client:
    """Asks one route."""
    return Client(plugin(root).get_plugin_apps()[route])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log directory with a run and a capture."""
    write_capture(a_run(tmp_path), a_report())
    return tmp_path


def test_tensorboard_finds_it_by_its_entry_point() -> None:
    """The group that every dynamic plugin is in."""
    found = {point.name: point for point in entry_points(group="tensorboard_plugins")}

    assert found["trainperf"].load() is TrainPerfPlugin


def test_every_response_forbids_what_is_not_from_here_and_every_route_only_reads(
    root: Path,
) -> None:
    """Files, data, errors and the trace: `default-src 'none'`, no inline script, only GET."""
    for route in plugin(root).get_plugin_apps():
        for query in ({}, QUERY, {**QUERY, "file": TRACE}):
            headers = client(root, route).get("/", query_string=query, buffered=True).headers
            policy = headers["Content-Security-Policy"]
            assert "default-src 'none'; script-src 'self';" in policy, route
            assert "http" not in policy
            assert headers["X-Content-Type-Options"] == "nosniff"
        assert client(root, route).post("/", query_string=QUERY).status_code == 405


def test_an_answer_that_the_browser_has_is_not_sent_again_and_a_large_one_is_packed(
    root: Path,
) -> None:
    """304, without a body; packed it is the same JSON."""
    ask = client(root, "/run")
    first = ask.get("/", query_string=QUERY)

    again = ask.get("/", query_string=QUERY, headers={"If-None-Match": first.headers["ETag"]})
    packed = ask.get("/", query_string=QUERY, headers={"Accept-Encoding": "gzip"})

    assert (first.status_code, again.status_code, again.data) == (200, 304, b"")
    assert again.headers["ETag"] == first.headers["ETag"]
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.data) == first.data


def test_a_trace_is_downloaded_byte_for_byte_under_its_name(root: Path) -> None:
    """As an attachment: a browser must not unpack or show it."""
    response = client(root, "/trace").get("/", query_string={**QUERY, "file": TRACE}, buffered=True)

    assert response.data == (root / "first/trainperf/traces" / TRACE).read_bytes()
    assert response.headers["Content-Disposition"] == f"attachment; filename={TRACE}"
    assert "Content-Encoding" not in response.headers


@pytest.mark.parametrize(
    ("route", "query", "status"),
    [
        ("/run", {}, 404),
        ("/run", {"run": "../first/trainperf"}, 404),
        ("/trace", {**QUERY, "file": "../steps-rank0.jsonl"}, 404),
        ("/capture", {**QUERY, "key": "none"}, 404),
        ("/picture", {**QUERY, "key": "rank0-step000120-3steps.analysis.json", "place": "9"}, 404),
        ("/picture", {**QUERY, "key": "rank0-step000120-3steps.analysis.json", "place": "x"}, 200),
        ("/run", {**QUERY, "first": "x", "rank": "-1", "last": "1e9"}, 200),
    ],
)
def test_a_wrong_question_is_answered_in_a_sentence(
    root: Path, route: str, query: dict[str, str], status: int
) -> None:
    """Never a traceback."""
    response = client(root, route).get("/", query_string=query)

    assert response.status_code == status
    if status != 200:
        assert response.json["error"]


def test_it_is_active_when_there_is_a_run(tmp_path: Path) -> None:
    """TensorBoard lists it among the inactive ones otherwise."""
    assert not plugin(tmp_path).is_active()
    a_run(tmp_path)
    assert plugin(tmp_path).is_active()


def known_ahead(made: TrainPerfPlugin) -> list[str]:
    """Runs that were read without being asked for."""
    for thread in [thread for thread in threading.enumerate() if thread.name == READER]:
        thread.join()
    return [run for run, cached in made._store._cache.items() if cached.page is not None]


def test_the_run_written_last_is_read_before_somebody_asks_for_it(tmp_path: Path) -> None:
    """Beside TensorBoard's own start; one that cannot be read harms nothing."""
    os.utime(a_run(tmp_path, "older") / "steps-rank0.jsonl", (1, 1))
    newer = a_run(tmp_path, "newer")
    made = plugin(tmp_path)
    # Every browser that opens TensorBoard asks.
    assert made.is_active()
    assert made.is_active()

    assert known_ahead(made) == ["newer/trainperf"]
    (newer / "steps-rank0.jsonl").write_text('{"kind": "run", "schema": 99}')
    again = plugin(tmp_path)
    assert again.is_active()
    assert known_ahead(again) == []


def test_the_run_written_last_is_read_while_a_browser_builds_the_page(root: Path) -> None:
    """Whoever opens the page by its own address waits for the answer only once."""
    made = plugin(root)

    assert b"app.js" in Client(made.get_plugin_apps()["/index.html"]).get("/").data
    assert known_ahead(made) == ["first/trainperf"]


def test_the_page_names_only_files_that_are_served(root: Path) -> None:
    """A module that is imported or linked has its route."""
    routes = plugin(root).get_plugin_apps()
    for path in STATIC.iterdir():
        assert f"/{path.name}" in routes
    page = client(root, "/index.html").get("/").text
    linked = [part.split('"')[0] for part in page.replace('src="', 'href="').split('href="')[1:]]
    assert {f"/{name}" for name in linked if not name.startswith("data:")} <= set(routes)


def test_no_script_of_ours_can_make_markup_of_a_text() -> None:
    """Names are text nodes, or come escaped from the server; that is parsed in one place."""
    for path in STATIC.glob("*.js"):
        source = path.read_text(encoding="utf-8")
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in source, path.name
        assert ("DOMParser" in source) == (path.name == "dom.js")


def test_the_lists_of_runs_and_directories_are_json(root: Path) -> None:
    """What the picker shows."""
    answer = json.loads(client(root, "/runs").get("/").data)

    assert answer["runs"] == [{"id": "first/trainperf", "name": "first"}]
    assert answer["where"] == [str(root)]


def test_loading_the_plugin_loads_no_torch() -> None:
    """Every TensorBoard loads it when it starts."""
    program = (
        "import sys, trainperf.tensorboard.plugin\n"
        "print(sorted({'torch', 'lightning', 'pandas'} & sys.modules.keys()))"
    )

    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert said.stdout.strip() == "[]"
