"""Artifacts: what was examined once in a fit, as one JSON file each in its run directory.

Records are written step by step; a document is written whole, and again when it is known better.
One file here per kind of document.
"""

from typing import ClassVar, TypeVar

import msgspec

from trainperf.core.errors import RunError
from trainperf.core.paths import AnyPath, reread
from trainperf.core.run_directory import write_atomically


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of one such file; a subclass names it and its version."""

    file: ClassVar[str]
    """Its name in the run directory."""
    version: ClassVar[int] = 1
    schema: int = 1
    """The version that a file was written with."""


D = TypeVar("D", bound=Document)


def write_document(document: Document, run: AnyPath) -> AnyPath:
    """Write it into a run directory, whole or not at all.

    Raises:
        OSError: The file cannot be written.
    """
    path = run / document.file
    write_atomically(path, msgspec.json.encode(document) + b"\n")
    return path


def read_document(kind: type[D], run: AnyPath) -> D | None:
    """The one of that kind in a run directory; `None` if there is none.

    Raises:
        RunError: The file cannot be read, is damaged or of another version.
    """
    try:
        content = reread((run / kind.file).read_bytes)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunError(f"{kind.file}: cannot be read ({error.strerror or error})") from None
    try:
        document = msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RunError(
            f"{kind.file}: damaged ({error}); delete it, the next fit writes its own"
        ) from None
    if document.schema != kind.version:
        raise RunError(
            f"{kind.file}: version {document.schema}, this trainperf reads version {kind.version}; "
            "install the release that wrote it"
        )
    return document
