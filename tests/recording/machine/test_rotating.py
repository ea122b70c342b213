"""The samples of days are written in parts, each packed when it is left."""

from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from support.machines import plant_machine
from support.runs import RankSpec, make_info, make_run_dir, make_steps
from support.waiting import until

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.machine import MachineSeries, read_machines
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.core.paths import AnyPath, listed
from trainperf.core.run_directory import machine_file
from trainperf.recording.machine import probe as probe_module
from trainperf.recording.machine.probe import MachineProbe
from trainperf.recording.machine.process import pack
from trainperf.recording.recorder import Recorder
from trainperf.recording.rotating_file import RotatingFile


SECONDS = 300


def run_of(path: Path) -> Path:
    """A run of so many seconds."""
    return make_run_dir(path, [RankSpec(steps=make_steps(SECONDS, forward=1000), info=make_info())])


def written_again(run: Path, most: int) -> list[bytes]:
    """Its samples as a sampler writes them, line by line; all lines that there are."""
    path = plant_machine(run, SECONDS)
    lines = path.read_bytes().splitlines(keepends=True)
    path.unlink()
    with closing(RotatingFile(path, most, pack)) as file:
        for line in lines:
            file.write(line)
    return lines


def names(place: AnyPath) -> list[str]:
    """The machine's files in it."""
    return sorted(file.path.name for file in listed(place) if "machine" in file.path.name)


def only(run: AnyPath) -> MachineSeries:
    """The one host's series, read without a problem."""
    ((series,), problems) = read_machines(Run.open(run))
    assert problems == []
    return series


def test_parts_that_were_left_are_packed_and_read_as_one_file(tmp_path: Path) -> None:
    """And smaller by far."""
    run, as_one = run_of(tmp_path / "a"), run_of(tmp_path / "b")
    plant_machine(as_one, SECONDS)
    lines = written_again(run, 8000)

    *packed, last = sorted(names(run), key=lambda name: (name.endswith(".jsonl"), name))
    assert len(packed) >= 3
    assert all(name.endswith(".packed") for name in packed)
    assert last == f"machine-rank0.part{len(packed)}.jsonl"
    on_disk = sum((run / name).stat().st_size for name in (*packed, last))
    assert on_disk < sum(map(len, lines)) / 2
    series, other = only(run), only(as_one)
    assert series.header == other.header
    assert (series.at_ns == other.at_ns).all()
    assert np.array_equal(series.values, other.values, equal_nan=True)


def test_a_part_that_is_there_twice_is_read_once(tmp_path: Path) -> None:
    """The machine went down between packing a part and taking its lines away."""
    run = run_of(tmp_path)
    lines = written_again(run, 8000)
    (run / "machine-rank0.jsonl").write_bytes(b"".join(lines[:20]) + lines[20][:7])

    assert len(only(run)) == SECONDS + 1


def test_a_part_that_cannot_be_packed_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full; sampling goes on while lines can be written."""
    monkeypatch.setattr(
        "trainperf.recording.machine.process.write_atomically",
        Mock(side_effect=OSError("no space left")),
    )
    run = run_of(tmp_path)
    written_again(run, 8000)

    assert all(name.endswith(".jsonl") for name in names(run))
    assert len(only(run)) == SECONDS + 1


def test_whoever_follows_goes_on_in_the_next_part(tmp_path: Path) -> None:
    """A look between any two lines has the newest sample, though parts are packed meanwhile."""
    run = run_of(tmp_path)
    lines = plant_machine(run, SECONDS).read_bytes().splitlines(keepends=True)
    machine_file(run, 0).unlink()
    opened = Run.open(run)
    with closing(RotatingFile(machine_file(run, 0), 4000, pack)) as file:
        for number, line in enumerate(lines):
            file.write(line)
            if number:
                ((series,), _) = read_machines(opened, 1_000)
                assert series.at_ns[-1] == (number - 1) * 1e9
    assert len(names(run)) >= 5
    ((late,), _) = read_machines(opened, 1_000)
    assert late.at_ns[-1] == SECONDS * 1e9
    assert len(late) < SECONDS


def test_the_process_rotates_as_record_files_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples of a child, ten a second, in parts of a kilobyte."""
    monkeypatch.setattr(probe_module, "PART_BYTES", 1000)
    run = run_of(tmp_path)
    probe = MachineProbe(run, 0, every_s=0.05)
    probe.attach(Recorder(monotonic_ns))
    until(lambda: any(name.endswith(".packed") for name in names(run)), "no part was packed")
    probe.detach()

    at_ns = only(run).at_ns
    assert (at_ns[1:] > at_ns[:-1]).all()
