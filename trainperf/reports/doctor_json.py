"""The checkup of a run for programs."""

import msgspec

from trainperf.doctor import Checkup


def render(checkup: Checkup) -> str:
    """`{"checks": [{"id", "title", "status", "evidence", "action"}]}`, indented."""
    return msgspec.json.format(msgspec.json.encode(checkup), indent=2).decode() + "\n"
