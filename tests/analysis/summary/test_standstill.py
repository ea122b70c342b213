"""What holds the ranks of a job up, and how that is said."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from trainperf.analysis.summary.run_facts import SILENT_S
from trainperf.analysis.summary.schema import RankEnd, RankState
from trainperf.analysis.summary.standstill import held_up
from trainperf.core.artifacts.lines import Place
from trainperf.core.artifacts.standstill import ENDED, Standstill
from trainperf.reports.run.standstill import hang_sentence


MAIN = Place("train.py", 40, "main")
DISTRIBUTED = (
    Place("torch/distributed/c10d_logger.py", 83, "wrapper"),
    Place("torch/distributed/distributed_c10d.py", 2900, "all_reduce"),
)
BACKWARD = (
    Place("torch/_tensor.py", 623, "Tensor.backward"),
    Place("torch/autograd/graph.py", 979, "_engine_run_backward"),
)
LOADER = (
    Place("torch/utils/data/dataloader.py", 700, "_BaseDataLoaderIter.__next__"),
    Place("torch/utils/data/dataloader.py", 1200, "_MultiProcessingDataLoaderIter._get_data"),
)
OWN = Place("distributed/queue.py", 14, "wait")
LOAD = Place("torch/serialization.py", 1400, "load")
SAVE = (Place("torch/serialization.py", 850, "save"),)


def rank(
    number: int,
    *inside: Place,
    still: bool = True,
    phase: str = "backward",
    peers: dict[int, str] | None = None,
    begun: int = 0,
    **facts: object,
) -> Standstill:
    """What a rank has written 300 s after the end of step 11."""
    return Standstill(
        rank=number,
        step=12,
        phase=phase,
        since_s=20.0,
        at_s=320.0,
        still=still,
        busy=0.0,
        stack=(MAIN, *inside),
        own=0,
        peers=peers or {},
        sequences={"0": begun} if begun else {},
        **facts,  # type: ignore[arg-type]
    )


def said(
    *written: Standstill,
    states: Mapping[int, RankState] = MappingProxyType({}),
    ranks: int = 2,
    age_s: float = 0,
) -> str:
    """The sentence; empty where nothing hangs."""
    ends = [
        RankEnd(rank=each, host="", state=states.get(each, "running"), reason=None, steps=12)
        for each in range(ranks)
    ]
    hang = held_up(written, ends, {each.rank: age_s for each in written})
    return "" if hang is None else hang_sentence(hang, several=ranks > 1)


WAITS = "waits in all_reduce (train.py:40)"


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        pytest.param(
            [rank(0, still=False), rank(1, *DISTRIBUTED)],
            "No step has ended for 300 s, since step 12 began: rank 0 is in main (train.py:40); "
            f"rank 1 {WAITS}.",
            id="one evaluates",
        ),
        pytest.param(
            [rank(0, *DISTRIBUTED, begun=91_203), rank(1, *BACKWARD, begun=91_204)],
            f"Hanging for 300 s in step 12: rank 0 {WAITS}; rank 1 waits in backward "
            "(train.py:40), where gradients are reduced. Collectives begun in process group 0: "
            "91,203 on rank 0, 91,204 on rank 1.",
            id="unlike collectives",
        ),
        pytest.param(
            [rank(0, *DISTRIBUTED, peers={1: "stopped"})],
            f"Hanging for 300 s in step 12: rank 1 is stopped by a signal; rank 0 {WAITS}.",
            id="one is stopped",
        ),
        pytest.param(
            [rank(0, *DISTRIBUTED, peers={1: "gone"})],
            f"Hanging for 300 s in step 12: rank 1 is gone: no such process; rank 0 {WAITS}.",
            id="one is gone",
        ),
        pytest.param(
            [rank(0, *DISTRIBUTED, peers={1: "gone"}, starved=1)],
            f"Hanging for 300 s in step 12: rank 1 is gone: no such process; rank 0 {WAITS}. "
            "The system ended 1 process for lack of memory.",
            id="one is gone for lack of memory",
        ),
        pytest.param(
            [rank(0, still=False, handles="MemoryError"), rank(1, *DISTRIBUTED)],
            "No step has ended for 300 s, since step 12 began: rank 0 is in main (train.py:40) "
            f"while it handles MemoryError; rank 1 {WAITS}.",
            id="one handles an error",
        ),
        pytest.param(
            [rank(0, still=False, phase=ENDED, handles="ValueError"), rank(1, *DISTRIBUTED)],
            "Hanging for 300 s in step 12: rank 0 has left the training with ValueError; "
            f"rank 1 {WAITS}.",
            id="one has raised, and a thread of it lives",
        ),
        pytest.param(
            [
                rank(0, still=False, paged_bytes_per_s=9_462_000),
                rank(1, *DISTRIBUTED, paged_bytes_per_s=4096),
            ],
            "No step has ended for 300 s, since step 12 began: rank 0 is in main (train.py:40); "
            f"rank 1 {WAITS}. Rank 0 reads 9.46 MB/s of its memory from a disk (swap or mapped "
            "files).",
            id="one swaps",
        ),
        pytest.param(
            [
                rank(0, Place("/usr/lib/python3.11/socket.py", 720, "SocketIO.readinto")),
                rank(1, *DISTRIBUTED),
            ],
            "No step has ended for 300 s, since step 12 began: rank 0 waits for the answer of a "
            f"server in main (train.py:40); rank 1 {WAITS}.",
            id="one asks a server",
        ),
        pytest.param(
            [rank(1, *DISTRIBUTED)],
            "No step has ended for 300 s, since step 12 began: rank 0 has written nothing yet; "
            f"rank 1 {WAITS}.",
            id="one is on a machine that hangs",
        ),
        pytest.param(
            [rank(0, *SAVE), rank(1, *DISTRIBUTED)],
            "A checkpoint has lasted for 300 s in step 12: rank 0 is saving a checkpoint "
            f"(train.py:40); rank 1 {WAITS}.",
            id="a slow checkpoint",
        ),
        pytest.param([rank(1, *DISTRIBUTED, settled_s=301.0)], "", id="one has yet to look"),
        pytest.param(
            [rank(0, *DISTRIBUTED, settled_s=75.0), rank(1, *DISTRIBUTED, over=True)],
            "",
            id="one has seen first that all go on",
        ),
        pytest.param(
            [rank(0, LOAD), rank(1, *DISTRIBUTED)],
            "Hanging for 300 s in step 12: rank 0 stands still in main (train.py:40); "
            f"rank 1 {WAITS}.",
            id="torch.load is no checkpoint",
        ),
        pytest.param(
            [rank(0, OWN), rank(1, *DISTRIBUTED)],
            "Hanging for 300 s in step 12: rank 0 stands still in main (train.py:40); "
            f"rank 1 {WAITS}.",
            id="a package called distributed is no collective",
        ),
        pytest.param(
            [rank(2, *DISTRIBUTED), rank(3, *DISTRIBUTED)], "", id="ranks that a restart has not"
        ),
        pytest.param([rank(0, still=False), rank(1, still=False)], "", id="a long validation"),
        pytest.param([rank(0, *DISTRIBUTED, over=True)], "", id="it went on"),
        pytest.param([], "", id="nobody waits"),
    ],
)
def test_ranks_are_told_apart_by_what_they_are_at(written: list[Standstill], sentence: str) -> None:
    """Those that hold the others come first."""
    assert said(*written) == sentence


OVER = (
    f"Hung for 300 s before it ended, in step 12: rank 1 is in main (train.py:40); rank 0 {WAITS}."
)


@pytest.mark.parametrize(
    ("written", "known", "sentence"),
    [
        pytest.param(
            [
                rank(0, *DISTRIBUTED, peers={1: "gone", 2: "gone"}, starved=2),
                *(rank(number, still=False, handles="OSError") for number in (3, 4)),
            ],
            {"ranks": 5},
            "No step has ended for 300 s, since step 12 began: ranks 1–2 are gone: no such "
            "process; ranks 3–4 are in main (train.py:40) while they handle OSError; rank 0 "
            f"{WAITS}. The system ended 2 processes for lack of memory.",
            id="ranks that are at the same come together",
        ),
        pytest.param(
            [rank(1, *BACKWARD)],
            {"states": {0: "finished"}},
            "Hanging for 300 s in step 12: rank 0 has left the training; rank 1 waits in backward "
            "(train.py:40), where gradients are reduced.",
            id="one had fewer batches",
        ),
        pytest.param(
            [rank(0, *DISTRIBUTED, settled_s=75.0), rank(1, *DISTRIBUTED, over=True)],
            {"age_s": 76},
            "No step has ended for 376 s, since step 12 began: rank 1 has written nothing yet; "
            f"rank 0 {WAITS}.",
            id="one went on long ago, alone",
        ),
        pytest.param(
            [rank(0, *LOADER, phase="data_wait")],
            {"ranks": 1},
            "Hanging for 300 s in step 12: it waits for a batch of the loader (train.py:40).",
            id="no rank is named where there is one",
        ),
        pytest.param(
            [rank(0, *DISTRIBUTED), rank(1, still=False)],
            {"states": {0: "failed", 1: "failed"}},
            OVER,
            id="an error ended it, as of a collective that ran out of time",
        ),
        pytest.param(
            [rank(0, *DISTRIBUTED), rank(1, still=False)],
            {"age_s": SILENT_S + 1},
            OVER,
            id="nobody writes any more, e.g. ended by a watchdog",
        ),
    ],
)
def test_what_else_is_known_of_ranks_is_said(
    written: list[Standstill], known: dict[str, Any], sentence: str
) -> None:
    """How many there are, how they ended, and when they last wrote."""
    assert said(*written, **known) == sentence
