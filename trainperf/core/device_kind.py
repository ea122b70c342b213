"""Kinds of device, and what reports say of the time on them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceKind:
    """Words for a device beside the host; those of the host itself differ."""

    no_copies: str = ""
    """In place of the time for copies to it, where nothing is copied."""
    copies: str = ""
    """What a loop does where it copies, if not that."""
    host_time: str = " (host time)"
    """After phases in which the host only hands its work out."""
    idle: str = "device idle for {share}"
    """While the loader makes it wait, beside the host's own wait."""


HOST = DeviceKind(
    no_copies="not applicable (CPU)",
    copies="hooks only: nothing is copied",
    host_time="",
    idle="",
)


def device_kind_of(device: str) -> DeviceKind:
    """The kind of a type of device, as torch names it."""
    return {"cpu": HOST}.get(device, DeviceKind())
