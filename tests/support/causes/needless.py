"""Gradients that nobody needs: of weights that no optimizer holds, and of whole tables."""

from support.accounts import Seen, audit_of, light, on_gpu, region, seen, step
from support.causes.case import CauseCase as Case

from trainperf.analysis.diagnosis.account import Claim, DeviceAccount, Region
from trainperf.core.loop_kind import OUTSIDE


OWN = region("mm", 30, ideal=30, part="backward", kind="matmul", module="Net.0", line="net.py:9")


def sixty(*rows: Region) -> Seen:
    """Sixty milliseconds: these operators, and 30 of products in backward."""
    account = step(*rows, OWN, forward=20, backward=30, optimizer=10)
    return seen(account, documents=audit_of(*rows, OWN), light=light())


def of_teacher(ms: float, *, part: str = "backward", unheld: str = "Net.teacher") -> Region:
    """Operators of a model that no optimizer holds."""
    inside = {"module": "Net.teacher.layers.0", "line": "net.py:40", "unheld": unheld}
    return region("mm", ms, python=1, part=part, kind="matmul", **inside)


def dropped(ms: float) -> Region:
    """Products of a generator, in a backward that was not for it."""
    inside = {"part": "backward", "module": "Net.0", "line": "net.py:40", "dropped": "gan.py:61"}
    return region("mm", ms, python=1, kind="matmul", **inside)


HANDED_ON = of_teacher(12, unheld="")


def table(looked_up: int, ms: float = 10, **fields: object) -> Region:
    """The gradient of a table of 60,000 rows of 64 numbers, of which a batch looks some up."""
    moves = {"read_bytes": looked_up * (64 * 4 + 8), "written_bytes": 60_000 * 64 * 4, **fields}
    return region(
        "embedding_dense_backward",
        ms,
        part="backward",
        line="net.py:31",
        shapes=((looked_up, 64), (looked_up,)),
        dtypes=("fp32", "int64"),
        calls=1,
        **moves,
    )


def update(*shapes: tuple[int, ...], ms: float = 10) -> Region:
    """An update of weights of these shapes."""
    return region("_foreach_addcdiv_", ms, part="optimizer", line="fit.py:3", shapes=shapes)


TABLE = (60_000, 64)


def frozen(
    ms: float,
    *rows: Region,
    device: DeviceAccount | None = None,
    part: float | None = None,
    **known: object,
) -> Seen:
    """Forty milliseconds, of which an encoder takes so many between update and forward."""
    settings = {
        "frozen_part": part,
        "frozen_modules": "Encoder.body, Text",
        "frozen_s": ms / 1e3,
        "frozen_slot": "data_wait",
        "frozen_again": 0.5,
    }
    account = step(*rows, between=20, data_wait=2, forward=8, backward=10, device=device)
    return seen(account, settings={} if not ms else settings, **{"loop": OUTSIDE, **known})


INSIDE = region("mm", 6, module="Encoder.body.0", line="net.py:3")


def of_keys(ms: float, *, part: str = "forward", again: int = 0, calls: int = 12) -> Region:
    """Keys that a decoder projects in each of its twelve steps."""
    place = {"module": "Net.cross", "line": "net.py:20"}
    return region("mm", ms, part=part, again=again, calls=calls, **place)


POSITIONS, CLASSES = 100, 5_000
LOGITS = POSITIONS, CLASSES


AS_WIDE = (
    region("_foreach_norm", 4, part="backward", shapes=((CLASSES, POSITIONS),)),
    region(
        "embedding_dense_backward",
        4,
        part="backward",
        shapes=((POSITIONS, POSITIONS), (POSITIONS,)),
        written_bytes=2_000_000,
        calls=1,
    ),
)
"""Of a table whose rows have as many numbers as there are positions."""


def scored(ignored: float, *table: Region, **readings: float) -> Seen:
    """A vocabulary's logits for a hundred positions, of which the loss ignores so many."""
    head = {"kind": "matmul", "line": "net.py:60", "calls": 1}
    rows = (
        region("mm", 8, shapes=((POSITIONS, 64), (64, CLASSES)), written_bytes=2_000_000, **head),
        region("mm", 12, part="backward", shapes=(LOGITS, (CLASSES, 64)), **head),
        region("nll_loss_forward", 2, shapes=(LOGITS, (POSITIONS,)), ignored=ignored),
        region("mm", 6, shapes=((POSITIONS, 64), (64, 256)), written_bytes=102_400),
        *table,
    )
    account = step(*rows, OWN, forward=20, backward=45, optimizer=15)
    return seen(account, readings=readings, documents=audit_of(*rows, OWN), light=light())


CASES = (
    Case(
        "ignored_targets",
        "tokens of a prompt",
        scored(0.9, *AS_WIDE),
        0.9 * 0.022,
        "logits_of_targets",
        (scored(0.3), scored(0.0), scored(0.5, padding_fraction=0.45)),
        words=(
            "the loss ignores 90 % of the positions that have logits",
            "22.0 ms of 80.0 ms per step in the logits of 100 positions and 5,000 classes",
        ),
        shows={"where": "net.py:60"},
    ),
    Case(
        "ignored_targets",
        "padding is counted where it is",
        scored(0.9, padding_fraction=0.5),
        0.8 * 0.022,
        "logits_of_targets",
    ),
    Case(
        "computed_again",
        "keys of three memories, and their backward",
        sixty(of_keys(8, again=9), of_keys(8, part="backward", again=9)),
        0.012,
        "keep_result",
        (
            sixty(of_keys(8), of_keys(8, part="backward")),
            sixty(of_keys(8, again=3), of_keys(8, part="backward", again=3)),
            sixty(of_keys(7, again=9), of_keys(8, part="backward")),
            # A loop over a hundred pieces, whose masks each of six layers makes anew.
            sixty(of_keys(10, again=500, calls=600), of_keys(20, calls=1200)),
        ),
        words=(
            "20 % of the step repeats what the same forward has computed",
            "9 calls are given the same values again",
            "Compute Net.cross once in a forward",
        ),
        shows={"where": "net.py:20"},
    ),
    Case(
        "compute_once",
        "of an encoder that is called between update and forward",
        frozen(12),
        0.012,
        "keep_outputs",
        (frozen(3.9), frozen(0)),
        words=(
            "Encoder.body, Text, which does not learn, takes 30 % of the step",
            "50 % of the inputs looked at had been there before",
        ),
        shows={"claim": Claim(owns_s={"between": 0.012}, removes_s=0.012)},
    ),
    Case(
        "compute_once",
        "on a device by the operators of an audit",
        frozen(1, INSIDE, device=on_gpu()),
        0.006,
        "keep_outputs",
        (frozen(12, device=on_gpu()),),
    ),
    Case(
        "compute_once",
        "a quarter of the time in its calls is for what the model has made",
        frozen(1, INSIDE, device=on_gpu(), part=0.75),
        0.0045,
        "keep_outputs",
    ),
    Case(
        "unheld_gradients",
        "a teacher's backward; its forward makes the graph",
        sixty(of_teacher(11), of_teacher(8, part="forward")),
        0.012,
        "no_gradients",
        (
            sixty(of_teacher(11, unheld="")),
            sixty(of_teacher(11, part="forward")),
            sixty(of_teacher(4)),
        ),
        words=(
            "20 % of the step computes gradients of weights that no optimizer holds",
            "Freeze Net.teacher",
            "net.py:40: 12.0 ms per step",
        ),
        shows={"where": "net.py:40"},
    ),
    Case(
        "unheld_gradients",
        "of two layers amid others, which hand gradients on",
        sixty(of_teacher(7, unheld="Net.0.base"), of_teacher(5, unheld="Net.1.base"), HANDED_ON),
        0.014,
        "no_gradients",
        (sixty(HANDED_ON),),
        words=("23 % of the step computes gradients", "Freeze Net.0.base and 1 other"),
    ),
    Case(
        "dropped_gradients",
        "a generator in the backward of its discriminator's loss",
        sixty(dropped(11), of_teacher(8, unheld="")),
        0.012,
        "detach_input",
        (sixty(dropped(4)), sixty(of_teacher(11, unheld=""))),
        words=(
            "20 % of the step computes gradients that are dropped before any update",
            "12.0 ms of 60.0 ms per step in the backward of gan.py:61, zeroed or freed unread",
            "Keep the backward at gan.py:61 out of these weights",
        ),
        shows={"where": "gan.py:61"},
    ),
    Case(
        "sparse_gradients",
        "a fiftieth of the rows is looked up, and the update walks over all",
        sixty(table(1_200), update(TABLE, (256, 80))),
        0.98 * (0.010 + 0.010 * 60_000 * 64 / (60_000 * 64 + 256 * 80)),
        "sparse_gradients",
        (
            sixty(table(45_000), update(TABLE)),  # a batch that looks most of them up
            sixty(table(1_200, ms=1), update((4_000, 2_000), TABLE)),  # other weights are larger
            sixty(update(TABLE)),  # a gradient that is not made of a table
            sixty(table(6_400, written_bytes=2_000 * 64 * 4, read_bytes=51_456), update(TABLE)),
            sixty(table(0, read_bytes=0), update(TABLE)),  # nothing was looked up in this step
        ),
        words=("33 % of the step", "a step leaves 98 % of such a table's rows as they are"),
        shows={"where": "net.py:31"},
    ),
    Case(
        "sparse_gradients",
        "the last batch is a short one, so a mean one has less than the audited",
        sixty(table(1_200, written_bytes=60_000 * 64 * 3, resized=0.75), update(TABLE)),
        0.98 * 0.020,
        "sparse_gradients",
    ),
)
