"""`trainperf bisect`: the first slow commit, or package, of a planted history."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from trainperf.analysis.summary.loss_parity import Parity
from trainperf.commands import main
from trainperf.commands._bisection import Measure, bisected, commit_subject, package_subject
from trainperf.commands._commits import Outside
from trainperf.commands._environments import differences
from trainperf.commands._linked_data import COPIED_BYTES
from trainperf.commands._paired_runs import TrainingError
from trainperf.comparison.bisection import Bisection, State
from trainperf.comparison.results import ClockChange, Comparison, ProofFacts, Side, Speedup
from trainperf.core.errors import ConfigError, RunError
from trainperf.core.stats.verdict import verdict_of
from trainperf.reports.bisection import (
    answer,
    bisection_document,
    notes,
    plan_sentence,
)
from trainperf.reports.layout.forms import as_json_line
from trainperf.reports.layout.markdown import as_markdown
from trainperf.reports.layout.text import as_text


pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="no git")

WORDS = ("train.py", "--lr", "1")

TRAIN = """
import sys, time
import torch
from settings import SLEEP_S
from trainperf.loop import LoopMonitor

assert open("data/rows.txt").read() == "rows"
open("data/new.txt", "w").write("written by a training")
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
monitor = LoopMonitor("unused", report=False).watch(model, optimizer)
for batch in monitor.batches([torch.ones(2, 4)] * 400):
    loss = model(batch).square().mean()
    time.sleep(SLEEP_S)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    monitor.end_step(loss)
monitor.close()
"""


def git(place: Path, *arguments: str) -> str:
    """What git prints in a repository that nobody's settings reach."""
    mine = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main"]
    done = subprocess.run(
        ["git", "-C", str(place), *who, *arguments],  # noqa: S607 as people call it
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **mine},
    )
    return done.stdout.strip()


def history(place: Path, commits: int, contents: Callable[[int], str]) -> list[str]:
    """A repository of so many commits to one file; their hashes, the first one first."""
    place.mkdir(exist_ok=True)
    git(place, "init", "-q")
    (place / ".gitignore").write_text("data/\n*.ckpt\n")
    (place / "train.py").write_text(TRAIN)
    hashes = []
    for number in range(commits):
        (place / "settings.py").write_text(contents(number))
        git(place, "add", "-A")
        git(place, "commit", "-q", "-m", f"commit {number}", "--allow-empty")
        hashes.append(git(place, "rev-parse", "HEAD"))
    (place / "data").mkdir()
    (place / "data" / "rows.txt").write_text("rows")
    return hashes


def stamps(place: Path) -> dict[Path, int]:
    """When each file of a checkout was last changed."""
    paths = [path for path in place.rglob("*") if ".git" not in path.parts]
    return {path: path.stat().st_mtime_ns for path in paths}


def compared(ratio: float, reach: float = 0.02) -> Comparison:
    """What `prove` would say of a speed-up with an interval that reaches so far."""
    speedup = Speedup(
        value=ratio, low=ratio * (1 - reach), high=ratio * (1 + reach), per_rank=False
    )
    verdict = verdict_of(speedup.low, speedup.high)
    side = Side(name="x", paths=("x",), steady_steps=100, world_size=1)
    change = ClockChange(clock="steady step", reading="step_s", verdict=verdict, speedup=speedup)
    took = ProofFacts(pairs=2, most_pairs=10, ended_by="decided", ended_early=True, took_s=9.0)
    parity = Parity(verdict="unknown", why="no loss", tolerance=0.02)
    return Comparison(
        before=side,
        after=side,
        verdict=verdict,
        reason="",
        primary="step_s",
        speedup=speedup,
        clocks=(change,),
        proof=took,
        parity=parity,
    )


class Planted:
    """In place of trainings: the ratio of two planted step times, by the subject of a commit."""

    def __init__(self, step_s: Callable[[int], float | None], reach: float = 0.02) -> None:
        self.step_s = step_s
        self.reach = reach
        self.measured: list[str] = []

    def __call__(self, first: State, second: State, _: object) -> Comparison:
        """A state without a step time does not train."""
        self.measured.append(second.title)
        before, after = (self.step_s(int(state.title.split()[-1])) for state in (first, second))
        if before is None or after is None:
            raise TrainingError(0 if before is None else 1, "x: exit code 1: SyntaxError")
        return compared(before / after, self.reach)


def searched(place: Path, ends: tuple[str, str], planted: Measure) -> Bisection:
    """The search in a repository, with what its trainings would take."""
    outside = Outside(linked=(), out=place / "runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        subject = commit_subject(ends, WORDS, place / "unused", outside)
        return bisected(subject, WORDS, None, planted)


@pytest.fixture(scope="module")
def sixteen(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Sixteen commits one after the other."""
    place = tmp_path_factory.mktemp("sixteen") / "repository"
    return place, history(place, 16, lambda number: f"SLEEP_S = {number}")


@pytest.mark.parametrize("first", [1, 6, 11, 15])
def test_the_first_slow_commit_is_found_in_few_steps(
    first: int, sixteen: tuple[Path, list[str]]
) -> None:
    """20 ms before it, 30 ms from it on: the end, at most four in between, and its parent."""
    place, hashes = sixteen
    planted = Planted(lambda number: 0.02 if number < first else 0.03)

    result = searched(place, (hashes[0], "HEAD"), planted)

    assert (result.end, result.verdict) == ("found", "slower")
    assert result.first_slow == State(id=hashes[first], title=f"commit {first}")
    assert result.before is not None
    assert result.before.id == hashes[first - 1]
    assert result.change is not None
    assert result.change.value == pytest.approx(20 / 30)
    assert len(planted.measured) <= 6
    assert result.limit == pytest.approx(1.5**0.5 - 1)


def test_a_small_slowdown_on_the_way_is_not_taken_for_the_large_one(
    sixteen: tuple[Path, list[str]],
) -> None:
    """3 % in commit 4, 50 % in commit 9: what is nearer to the good end is fast."""
    place, hashes = sixteen
    steps_s = [0.02] * 4 + [0.0206] * 5 + [0.031] * 7

    result = searched(place, (hashes[0], hashes[15]), Planted(steps_s.__getitem__, 0.005))

    assert result.first_slow is not None
    assert result.first_slow.title == "commit 9"


def test_commits_that_do_not_train_are_skipped(sixteen: tuple[Path, list[str]]) -> None:
    """Those next to the first slow one are named with it: it may be any of them."""
    place, hashes = sixteen

    around = Planted(lambda number: None if number in (7, 8) else 0.02 if number < 5 else 0.03)
    found = searched(place, (hashes[0], hashes[15]), around)
    at = Planted(lambda number: None if number in (8, 9) else 0.02 if number < 9 else 0.03)
    several = searched(place, (hashes[0], hashes[15]), at)

    assert found.first_slow is not None
    assert found.first_slow.title == "commit 5"
    assert found.steps[1].state.title in {"commit 7", "commit 8"}
    assert found.steps[1].pace == "broken"
    assert several.end == "several"
    assert {state.title for state in several.candidates} == {"commit 8", "commit 9", "commit 10"}
    assert several.first_slow is None
    # A pair more of what does not train shows nothing; a look at the commits may.
    ids = " ".join(state.id[:10] for state in several.candidates)
    assert notes(several)[-1].startswith(f"next: git show {ids}")


def test_noise_that_hides_the_slowdown_ends_it_at_once(sixteen: tuple[Path, list[str]]) -> None:
    """Nothing is searched where even the ends cannot be told apart."""
    place, hashes = sixteen
    noisy = Planted(lambda number: 0.02 if number < 9 else 0.021, reach=0.2)

    result = searched(place, (hashes[0], hashes[15]), noisy)

    assert (result.end, result.first_slow) == ("cannot tell", None)
    assert noisy.measured == ["commit 15"]
    assert "Cannot tell" in answer(result)


def test_the_slow_end_is_slow_however_wide_its_interval(sixteen: tuple[Path, list[str]]) -> None:
    """It is shown to be slower; that half of it is, no interval of two pairs need show."""
    place, hashes = sixteen

    def measure(first: State, second: State, decides: object) -> Comparison:
        if second.title == "commit 15":
            return compared(0.68, 0.25)
        return Planted(lambda number: 0.02 if number < 11 else 0.03)(first, second, decides)

    result = searched(place, (hashes[0], hashes[15]), measure)

    assert result.steps[0].pace == "slow"
    assert result.first_slow is not None
    assert result.first_slow.title == "commit 11"


def test_a_noisy_commit_is_gone_around(sixteen: tuple[Path, list[str]]) -> None:
    """Its interval contains the limit: neither fast nor slow is claimed of it."""
    place, hashes = sixteen

    def measure(first: State, second: State, decides: object) -> Comparison:
        if second.title in {"commit 7", "commit 8"}:
            return compared(0.8, 0.3)
        return Planted(lambda number: 0.02 if number < 11 else 0.03)(first, second, decides)

    result = searched(place, (hashes[0], hashes[15]), measure)

    assert result.first_slow is not None
    assert result.first_slow.title == "commit 11"
    assert result.steps[1].pace == "cannot tell"


def test_ends_that_are_equally_fast_are_said_to_be(
    sixteen: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is skipped or open then; a good end that does not train ends it with its words."""
    place, hashes = sixteen

    result = searched(place, (hashes[0], hashes[15]), Planted(lambda _: 0.02, 0.01))

    assert result.end == "not slower"
    assert "is not slower than" in answer(result)
    assert result.steps[0].pace == "fast"
    assert not any("skipped" in note or "undecided" in note for note in notes(result))
    assert "cannot tell" not in capsys.readouterr().err
    with pytest.raises(RunError, match="SyntaxError"):
        searched(place, (hashes[0], hashes[15]), Planted(lambda n: None if n == 0 else 0.02))


def test_what_is_left_is_told_when_the_ends_are_measured(
    sixteen: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """How many comparisons more, and how long by the first one."""
    place, hashes = sixteen
    searched(place, (hashes[0], "HEAD"), Planted(lambda number: 0.02 if number < 9 else 0.03))

    assert "trainperf: 14 between the two: about 5 more comparisons, " in capsys.readouterr().err
    assert plan_sentence(14, 60.0).endswith("300 s if each takes as long as this one")
    assert plan_sentence(1, 60.0).startswith("1 between the two: about 2 more comparisons")
    assert plan_sentence(0, 60.0) == "nothing lies between the two"


def test_changes_that_are_in_no_commit_are_said_to_be_left_out(tmp_path: Path) -> None:
    """They may be what somebody has in mind; they are still there at the end."""
    place = tmp_path / "repository"
    hashes = history(place, 4, lambda number: f"SLEEP_S = {number}")
    clean = searched(place, (hashes[0], "HEAD"), Planted(lambda _: 0.02, 0.01))
    name = git(place, "ls-files").splitlines()[0]
    (place / name).write_text("SLEEP_S = 99")
    (place / "data.txt").write_text("no file of git's")

    result = searched(place, (hashes[0], "HEAD"), Planted(lambda _: 0.02, 0.01))

    assert clean.warnings == ()
    assert result.warnings == (f"changes of {name} are in no commit, so they were not measured",)
    assert (place / name).read_text() == "SLEEP_S = 99"


def test_a_merge_is_searched_on_both_sides(tmp_path: Path) -> None:
    """The slow commit is on a branch that was merged."""
    place = tmp_path / "repository"
    (good, *_) = history(place, 3, lambda number: f"SLEEP_S = {number}")
    git(place, "checkout", "-q", "-b", "side", good)
    for number in (3, 4, 5):
        git(place, "commit", "-q", "--allow-empty", "-m", f"commit {number}")
    git(place, "checkout", "-q", "main")
    git(place, "merge", "-q", "--no-ff", "side", "-m", "merge 6")
    slow = {4, 5, 6}

    result = searched(place, (good, "main"), Planted(lambda n: 0.03 if n in slow else 0.02))

    assert result.first_slow is not None
    assert result.first_slow.title == "commit 4"


def test_the_outputs_say_the_same(sixteen: tuple[Path, list[str]]) -> None:
    """As text, as markdown, and as one line of JSON that keeps to its schema."""
    from scripts.render_docs import SCHEMAS

    place, hashes = sixteen
    result = searched(
        place, (hashes[0], "HEAD"), Planted(lambda number: 0.02 if number < 6 else 0.03)
    )
    line = as_json_line(result)
    schema = json.loads((SCHEMAS / "bisection.json").read_text(encoding="utf-8"))

    assert answer(result) == (
        f"{hashes[6][:10]} “commit 6” is the first slow commit: slower, 0.67× as fast (95 % CI "
        "0.653–0.68) as the one before it."
    )
    assert line.count("\n") == 1
    Draft202012Validator(schema).validate(json.loads(line))
    for shown in (as_text(bisection_document(result)), as_markdown(bisection_document(result))):
        assert f"git show {hashes[6][:10]}" in shown
        assert all(step.state.title in shown for step in result.steps)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("HEAD~1", "HEAD"), "no COMMAND"),
        (("HEAD~1", "--", "train.py"), "no GOOD and BAD"),
        (("HEAD", "HEAD", "--", "train.py"), "give two commits that differ"),
        (("HEAD", "HEAD~1", "--", "train.py"), "is no ancestor of"),
        (("nowhere", "HEAD", "--", "train.py"), "nowhere: no such commit"),
        (("--python", sys.executable, "--", "train.py"), "--python: give it twice"),
        (("HEAD~1", "HEAD", "--", "other.py"), "no other.py"),
        (("HEAD~1", "HEAD", "--link", "more", "--", "train.py"), "--link more: not in"),
    ],
)
def test_what_cannot_be_searched_is_refused_in_one_line(
    arguments: tuple[str, ...],
    why: str,
    sixteen: tuple[Path, list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And leaves no worktree."""
    place, _ = sixteen
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "argv", ["trainperf", "bisect", *arguments])

    assert main() == 2
    refused = capsys.readouterr()
    assert why in refused.err
    assert refused.out == ""
    assert len(refused.err.splitlines()) == 1
    assert len(git(place, "worktree", "list").splitlines()) == 1


def test_a_checkout_has_the_data_and_keeps_to_itself(tmp_path: Path) -> None:
    """Untracked data is read there; what is written stays there, and no output is linked."""
    place = tmp_path / "repository"
    history(place, 2, lambda number: f"SLEEP_S = {number}")
    (place / "lightning_logs").mkdir()
    (place / "last.ckpt").write_text("weights")
    before = stamps(place)
    outside = Outside(linked=(), out=place / "runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        subject = commit_subject(("HEAD~1", "HEAD"), WORDS, tmp_path / "trees", outside)
        with subject.training(subject.good) as command:
            assert command.cwd is not None
            there = command.cwd
            assert (there / "settings.py").read_text() == "SLEEP_S = 0"
            assert (there / "data" / "rows.txt").read_text() == "rows"
            assert not (there / "lightning_logs").exists()
            assert not (there / "last.ckpt").exists()
            (there / "data" / "new.txt").write_text("new")
            (there / "settings.py").write_text("scribbled")
            assert command.environment["PYTHONPATH"].split(os.pathsep)[0] == str(there)

    assert stamps(place) == before
    assert not there.exists()
    assert git(place, "status", "--porcelain", "--untracked-files=no") == ""
    assert len(git(place, "worktree", "list").splitlines()) == 1


def test_a_small_file_is_copied_and_a_change_of_a_large_one_is_told(tmp_path: Path) -> None:
    """What a training writes over is its own copy; a linked file is the user's own, and named."""
    place = tmp_path / "repository"
    history(place, 2, lambda number: f"SLEEP_S = {number}")
    large = place / "data" / "large.bin"
    large.write_bytes(bytes(COPIED_BYTES + 1))
    outside = Outside(linked=(), out=place / "runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        subject = commit_subject(("HEAD~1", "HEAD"), WORDS, tmp_path / "trees", outside)
        with subject.training(subject.good) as command:
            assert command.cwd is not None
            (command.cwd / "data" / "rows.txt").write_text("scribbled over")
        assert subject.warnings == []
        with subject.training(subject.good) as command:
            assert command.cwd is not None
            (command.cwd / "data" / "large.bin").write_bytes(b"scribbled over")

    assert (place / "data" / "rows.txt").read_text() == "rows"
    (warning,) = subject.warnings
    assert warning.startswith(f"{large} has changed while")
    assert len(git(place, "worktree", "list").splitlines()) == 1


def environment(place: Path, versions: dict[str, str], requires: dict[str, str]) -> str:
    """A virtual environment with packages that only say their version; its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    (packages,) = place.glob("lib/python*/site-packages")
    for name, version in versions.items():
        (packages / f"{name}.py").write_text(f"VERSION = {version!r}\n")
        about = packages / f"{name}-{version}.dist-info"
        about.mkdir()
        needs = f"Requires-Dist: {requires[name]}\n" if name in requires else ""
        head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (about / "METADATA").write_text(head + needs)
        (about / "RECORD").write_text(f"{name}.py,,\n{about.name}/METADATA,,\n")
    return str(place / "bin" / "python")


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Six packages, of which five differ; `beta` pins `gamma`."""
    place = tmp_path_factory.mktemp("environments")
    names = ("alpha", "beta", "gamma", "delta", "epsilon", "same")
    good = environment(place / "good", dict.fromkeys(names, "1.0"), {"beta": "gamma==1.0"})
    newer = {**dict.fromkeys(names, "2.0"), "same": "1.0"}
    return good, environment(place / "bad", newer, {"beta": "gamma==2.0"})


def test_packages_of_two_environments_are_narrowed_down(
    environments: tuple[str, str], tmp_path: Path
) -> None:
    """The slow one is `delta` 2.0; nothing is installed, the mixture is a folder of links."""
    subject = package_subject(environments, ("python", "-c", "pass"), tmp_path)
    show = "import alpha, beta, gamma, delta, epsilon; print(delta.VERSION)"

    def measure(first: State, second: State, _: object) -> Comparison:
        times = []
        for state in (first, second):
            with subject.training(state) as command:
                python = [command.words[0], "-c", show]
                env = {**os.environ, **command.environment}
                said = subprocess.run(python, env=env, capture_output=True, text=True, check=True)
            times.append(0.03 if said.stdout.strip() == "2.0" else 0.02)
        return compared(times[0] / times[1])

    result = bisected(subject, ("python", "-c", "pass"), None, measure)

    apart = differences(subject.good_python, subject.bad_python)
    assert [each.name for each in apart] == ["alpha", "beta", "delta", "epsilon", "gamma"]
    assert [len(group) for group in subject.mixtures.groups] == [1, 2, 1, 1]
    assert result.end == "found"
    assert result.first_slow is not None
    assert result.first_slow.title == "delta 1.0 → 2.0"
    assert answer(result).startswith("delta 1.0 → 2.0 is the first slow package: slower, 0.67×")
    assert "5 packages differ" in as_text(bisection_document(result))
    # What was measured has more than the package that it is named by.
    rows = as_text(bisection_document(result)).partition("against good")[2].splitlines()[2:]
    assert rows
    assert all(row.startswith("  with all up to ") for row in rows)


def test_a_cause_that_is_no_package_is_not_blamed_on_one(
    environments: tuple[str, str], tmp_path: Path
) -> None:
    """Slow by its Python alone: with all of its packages the good one is as fast as before."""
    subject = package_subject(environments, ("python", "-c", "pass"), tmp_path)

    def measure(first: State, second: State, _: object) -> Comparison:
        return compared(2 / 3 if second == subject.bad else 1.0)

    result = bisected(subject, ("python", "-c", "pass"), None, measure)

    assert (result.end, result.first_slow) == ("cannot tell", None)
    assert "none of their files" in answer(result)


def test_an_environment_that_does_not_run_is_refused(tmp_path: Path) -> None:
    """By its path."""
    with pytest.raises(ConfigError, match="nowhere"):
        package_subject([str(tmp_path / "nowhere"), sys.executable], WORDS, tmp_path)


@pytest.mark.real_clock
@pytest.mark.slow
def test_a_sleep_planted_in_one_of_seven_commits_is_found(tmp_path: Path) -> None:
    """5 ms a step, 20 from commit 2 on; commit 3 does not compile.  Trained for real, in turns."""
    place = tmp_path / "repository"

    def settings(number: int) -> str:
        return "SLEEP_S = (" if number == 3 else f"SLEEP_S = {0.005 if number < 2 else 0.02}\n"

    hashes = history(place, 7, settings)
    status = git(place, "status", "--porcelain", "--ignored")

    ended = subprocess.run(
        [
            *(sys.executable, "-m", "trainperf", "bisect", hashes[0], "HEAD"),
            *("--out", str(tmp_path / "runs"), "--format", "json", "--", "train.py"),
        ],
        cwd=place,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    assert len(ended.stdout.splitlines()) == 1
    result = json.loads(ended.stdout)
    paces = {step["state"]["title"]: step["pace"] for step in result["steps"]}
    expected = {"commit 6": "slow", "commit 3": "broken", "commit 2": "slow", "commit 1": "fast"}
    paces.pop("commit 4", None)  # of two that are as near to the middle, either may come first
    assert paces == expected
    assert result["first_slow"] == {"id": hashes[2], "title": "commit 2"}
    assert result["verdict"] == "slower"
    assert git(place, "status", "--porcelain", "--ignored") == status
    assert not (place / "data" / "new.txt").exists()
    assert len(git(place, "worktree", "list").splitlines()) == 1
