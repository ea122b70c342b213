"""The pytest plugin, in a project of its own."""

import subprocess
import sys
from importlib.metadata import entry_points

import pytest


pytest_plugins = ("pytester",)

INSTALLED = bool(entry_points(group="pytest11", name="trainperf"))
"""An environment that was set up before the entry point existed loads the plugin by name."""

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


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run the project's tests."""
    loaded = () if INSTALLED else ("-p", "trainperf.plugins.pytest_plugin")
    plain = ("-p", "no:cacheprovider", "-p", "no:xdist", "--strict-markers")
    return pytester.runpytest_subprocess(*loaded, *plain, *arguments)


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

    result = run(pytester, "-m", "not smoke_timing", "-k", "time or stays")

    result.assert_outcomes(passed=1)


def test_a_project_that_uses_none_of_it_does_not_load_torch() -> None:
    """Pytest imports the plugin everywhere, so it has to be light."""
    program = "import trainperf.plugins.pytest_plugin, sys; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


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
