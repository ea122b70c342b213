"""Convolutions in bf16 are given their images channels first."""

from pathlib import Path

import msgspec
from support.light import make_use

from faults.base import Script
from faults.recorded_by_hand import write_run
from trainperf.core.artifacts.audit import OperatorUse


def _train(out: Path, *, fixed: bool) -> None:
    write_run(out, _convolution(channels_last=fixed))


def _convolution(*, channels_last: bool) -> OperatorUse:
    use = make_use(
        name="aten.convolution.default",
        flops=2 * 10**12,
        memory=10**9,
        kind="matmul",
        precision="bf16",
    )
    return msgspec.structs.replace(
        use, dtypes=("bf16", "bf16"), channels_last=channels_last, calls=50, line="model.py:12"
    )


SCRIPT = Script(expected=("channels_last",), train=_train, same_work=False)
