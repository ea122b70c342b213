"""Steps that are read many at once are those that would be read line by line."""

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from support import logs

from trainperf.importers import FORMATS, megatron_alike, torchtitan, torchtitan_blocks
from trainperf.importers.writing import write_run


KINDS = {kind.name: kind for kind in FORMATS}
Damage = Callable[[str], str]


def recorded(name: str, text: str, folder: Path) -> bytes:
    """The record file that a log becomes."""
    file = folder / "train.log"
    file.write_text(text, encoding="utf-8")
    return (write_run(KINDS[name], [file], folder / "run") / "steps-rank0.jsonl").read_bytes()


def some_damaged(text: str, damage: Damage, share: float = 0.02) -> str:
    """The same with that damage to some lines behind the first."""
    chosen = random.Random(1)  # noqa: S311 no secret
    first, *rest = text.splitlines(keepends=True)
    return first + "".join(damage(line) if chosen.random() < share else line for line in rest)


def as_it_is(line: str) -> str:
    """No damage."""
    return line


def cut(line: str) -> str:
    """As where a disk was full."""
    return line[: len(line) // 2] + "\n"


def run_into(line: str) -> str:
    """Cut without an end of the line: the next one follows in it."""
    return line[: len(line) // 2]


def late_run_into(line: str) -> str:
    """The same, behind the name."""
    return line[:-12]


def twice(line: str) -> str:
    """As where two processes wrote the same file."""
    return line + line


def missing(_: str) -> str:
    """A line less."""
    return ""


def blank(_: str) -> str:
    """Nothing in the line."""
    return "\n"


def valued(value: str) -> Damage:
    """A line whose value begins otherwise."""
    return lambda line: line.replace('"value": ', f'"value": {value}')


TITAN = logs.torchtitan(
    logs.steady(300, logs.TITAN),
    passes=2,
    every={"eval": (90, 200.0), "checkpoint_save": (77, 100.0), "gc_collect": (20, 7.0)},
)


@pytest.mark.parametrize("block", [3_000, 100_000, 4 << 20])
@pytest.mark.parametrize(
    "damage",
    [
        as_it_is,
        cut,
        run_into,
        late_run_into,
        twice,
        missing,
        blank,
        valued("-"),
        valued("NaN"),
        valued("1e30"),
        valued("9"),
    ],
)
def test_torchtitans_steps(
    damage: Damage, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written with another blank, each line is decoded by itself."""
    monkeypatch.setattr(torchtitan_blocks, "_BLOCK_BYTES", block)
    text = some_damaged(TITAN, damage)

    alike = recorded("torchtitan", text, tmp_path)

    other = text.replace('"log_type_name": "', '"log_type_name":"')
    assert alike == recorded("torchtitan", other, tmp_path)


def test_most_of_torchtitans_steps_are_read_at_once(tmp_path: Path) -> None:
    """All but the first, behind the line of its process, and those with a pause in them."""
    file = tmp_path / "train.log"
    file.write_text(TITAN, encoding="utf-8")

    read = torchtitan_blocks.stretches(file, torchtitan.NAMES)

    steps = sum(len(stretch.steps.whole_ns) for stretch in read if stretch.steps is not None)
    assert steps == 299 - 300 // 90 - 300 // 77


MEGATRON = {
    "recent": logs.megatron(
        logs.steady(300, logs.MEGATRON),
        interval=1,
        first_too=True,
        every={"evaluate": (90, 200.0), "save-checkpoint": (77, 100.0)},
    ),
    "loss scale": logs.megatron(logs.steady(300, logs.MEGATRON), interval=1, skipped=1, level=1),
    "means": logs.megatron(logs.steady(300, logs.MEGATRON), interval=10),
    "phases above the step": logs.megatron(
        logs.steady(300, logs.MEGATRON, noise=0.2), interval=1, other_ms=-0.5
    ),
}


def replaced(pattern: str, by: str) -> Damage:
    """A line that has something else where a pattern matches."""
    return lambda line: re.sub(pattern, by, line)


@pytest.mark.parametrize("block", [3_000, 4 << 20])
@pytest.mark.parametrize(
    "damage",
    [
        as_it_is,
        cut,
        twice,
        missing,
        blank,
        replaced("lm loss: [^ ]+", "lm loss: nan"),
        replaced("lm loss: [^ ]+", "lm loss: 1E+999"),
        replaced("samples: +[0-9]+", "samples: 7"),
        replaced("iteration +[0-9]+", "iteration 3"),
        replaced(r"\(ms\): ", "(ms): x"),
        replaced(", ", ", 999"),
        replaced("$", " [rank0] memory (MB) | allocated: 1.0 | max allocated: 2.0"),
    ],
)
@pytest.mark.parametrize("form", MEGATRON)
def test_megatrons_iterations(
    form: str, damage: Damage, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another note behind each, every iteration is read by itself."""
    monkeypatch.setattr(megatron_alike, "_BLOCK_BYTES", block)
    text = some_damaged(MEGATRON[form], damage)

    alike = recorded("megatron", text, tmp_path)

    noted = re.sub("(.*elapsed time per iteration.*\n)", r"\1of: nothing" + "\n", text)
    assert alike == recorded("megatron", noted, tmp_path)


def test_most_of_megatrons_iterations_are_read_at_once(tmp_path: Path) -> None:
    """All but the one whose form is learned, and those with a pause behind them."""
    file = tmp_path / "train.log"
    file.write_text(MEGATRON["recent"], encoding="utf-8")

    alike = sum(len(each.rows) for each in megatron_alike.stretches(file) if each.form is not None)

    assert alike == 300 - 1 - 300 // 90 - 300 // 77
