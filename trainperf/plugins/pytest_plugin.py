"""Fixtures and markers for smoke tests of a user's project, loaded by pytest on its own.

pytest imports this wherever trainperf is installed, so nothing heavy is imported before a test asks
for it.  Switch it off with `-p no:trainperf`.
"""

from collections.abc import Callable, Iterator

import pytest


_RESULTS = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Make the markers known, also under --strict-markers."""
    config.addinivalue_line(
        "markers",
        "smoke_timing: asserts on time or memory; leave it out with -m 'not smoke_timing'",
    )
    config.addinivalue_line(
        "markers", "smoke_no_sync: fails if the test's body makes the host wait for the device"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Watch the body of tests marked `smoke_no_sync`; their fixtures may wait."""
    __tracebackhide__ = True
    if item.get_closest_marker("smoke_no_sync") is None:
        return (yield)
    from trainperf.smoke import no_sync  # noqa: PLC0415 torch is loaded where a test needs it

    with no_sync():
        return (yield)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what the tests measured with `smoke_benchmark`."""
    results = terminalreporter.config.stash.get(_RESULTS, [])
    if results:
        terminalreporter.section("trainperf benchmarks")
    for result in results:
        terminalreporter.write_line(result)


@pytest.fixture
def smoke_device() -> str:
    """The type of this machine's accelerator, e.g. `cuda`; `cpu` where there is none."""
    from trainperf.accelerators import default_accelerator  # noqa: PLC0415 as above

    return default_accelerator().type


@pytest.fixture
def smoke_seed() -> Iterator[int]:
    """Python, NumPy and torch draw from seed 0 during the test; afterwards as if it had not run."""
    from trainperf.benchmark.calls import seeded  # noqa: PLC0415 as above

    with seeded(0):
        yield 0


@pytest.fixture
def smoke_benchmark(request: pytest.FixtureRequest) -> Callable[..., object]:
    """`trainperf.benchmark.benchmark_step`, with the result shown at the end of the session.

    In workers of pytest-xdist nothing is shown; they would also disturb each other's times.
    """
    from trainperf.benchmark import StepBenchmark, benchmark_step  # noqa: PLC0415 as above

    def measure(
        fn: Callable[..., object], batch: object, warmup: int = 5, repeat: int = 30, calls: int = 1
    ) -> StepBenchmark:
        measured = benchmark_step(fn, batch, warmup, repeat, calls)
        results = request.config.stash.setdefault(_RESULTS, [])
        results.append(f"{request.node.nodeid}\n{measured}")
        return measured

    return measure
