"""The pytest plugin, in a project of its own."""

import pytest


pytest_plugins = ("pytester",)

TESTS = """
import pytest
import torch


@pytest.mark.smoke_no_sync
def test_waits():
    torch.ones(2).sum().item()


@pytest.mark.smoke_no_sync
def test_stays():
    torch.ones(2).sum()


@pytest.fixture
def read():
    return torch.ones(2).sum().item()


@pytest.mark.smoke_no_sync
def test_fixtures_may_wait(read):
    assert read


@pytest.mark.smoke_timing
def test_time(smoke_benchmark, smoke_device):
    batch = torch.ones(2, device=smoke_device)
    assert smoke_benchmark(lambda batch: batch * 2, batch, repeat=8).median_s < 1.0


def test_seed(smoke_seed):
    torch.manual_seed(smoke_seed)
    expected = torch.rand(1)
    torch.manual_seed(0)
    assert torch.equal(torch.rand(1), expected)
"""


@pytest.fixture(autouse=True)
def no_other_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second instead of ten."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run the project's tests."""
    ours = ("-p", "trainperf.plugins.pytest_plugin")
    return pytester.runpytest_subprocess(
        *ours, "-p", "no:cacheprovider", "--strict-markers", *arguments
    )


def test_markers_fixtures_and_the_table_work_in_a_project(pytester: pytest.Pytester) -> None:
    """One test waits and fails with its line; the benchmark is shown at the end."""
    pytester.makepyfile(test_project=TESTS)

    result = run(pytester)

    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*test_project.py:7 in test_waits: .item()*",
            "*What to do: keep the value on the device*",
            "*trainperf benchmarks*",
            "test_project.py::test_time",
            "*median*IQR*",
        ]
    )


@pytest.mark.slow
def test_timing_can_be_left_out(pytester: pytest.Pytester) -> None:
    """A shared CI machine is no stopwatch."""
    pytester.makepyfile(test_project=TESTS)

    run(pytester, "-m", "not smoke_timing", "-k", "time or stays").assert_outcomes(passed=1)


def test_the_entry_point_names_the_plugin() -> None:
    """What pyproject.toml tells pytest to load is the module tested here."""
    from pathlib import Path

    tomllib = pytest.importorskip("tomllib")
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")

    points = tomllib.loads(text)["project"]["entry-points"]["pytest11"]
    assert points == {"trainperf": "trainperf.plugins.pytest_plugin"}


@pytest.mark.slow
def test_the_project_of_the_documentation_passes(pytester: pytest.Pytester) -> None:
    """What docs/reference/smoke-tests.md shows is what runs."""
    from pathlib import Path

    page = Path(__file__).parents[2] / "docs" / "reference" / "smoke-tests.md"
    text = page.read_text(encoding="utf-8")
    pytester.makepyfile(test_step=text.split("```python\n")[1].split("```")[0])

    run(pytester).assert_outcomes(passed=7)
