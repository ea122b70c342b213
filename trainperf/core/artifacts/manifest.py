"""Contents of `manifest.json`: where the files of a merged run are, if not in its directory."""

from typing import ClassVar

import msgspec

from trainperf.core.artifacts import Document


class ManifestRecords(msgspec.Struct, frozen=True, kw_only=True):
    """The record file of one rank and attempt."""

    rank: int
    attempt: int
    parts: tuple[str, ...]
    """Paths or URLs in their order; most have a single one."""
    size_bytes: int
    """Of all parts, when the manifest was written."""


class Manifest(Document, frozen=True, kw_only=True):
    """Where the files of a merged run are."""

    file: ClassVar[str] = "manifest.json"
    version: ClassVar[int] = 1
    schema: int = version
    records: tuple[ManifestRecords, ...]
    traces: tuple[str, ...] = ()
    """Original traces, which are not read with the run."""
