"""Record files that the manifest of a merged run names, as they are now."""

from collections.abc import Mapping
from functools import cache

from trainperf.core.artifacts import read_document
from trainperf.core.artifacts.manifest import Manifest
from trainperf.core.errors import RunError
from trainperf.core.places import AnyPath, ListedFile, listed, path_of
from trainperf.core.run_directory import is_packed, packed_part


_GONE = "no longer there"


def manifest_files(directory: AnyPath) -> tuple[list[ListedFile], list[str]] | None:
    """The record files that the manifest in a run directory names, and what has become of others.

    `None` if it has no manifest.

    Raises:
        RunError: The manifest is damaged, or nothing that it names is left.
    """
    manifest = read_document(Manifest, directory)
    if manifest is None:
        return None
    listing = cache(_listing)
    files: list[ListedFile] = []
    problems: list[str] = []
    for records in manifest.records:
        paths = [path_of(part) for part in records.parts]
        parts = [_file(path, listing(path.parent)) for path in paths]
        present = [part for part in parts if isinstance(part, ListedFile)]
        # What stands behind a part that is gone would be taken for the rest of the part before.
        whole = present[: next((i for i, part in enumerate(parts) if isinstance(part, str)), None)]
        files += whole
        problems += [part for part in parts if isinstance(part, str)]
        size_bytes = sum(part.size_bytes for part in present)
        packed = any(is_packed(part.path.name) for part in present)
        if len(present) == len(parts) and size_bytes < records.size_bytes and not packed:
            problems.append(f"{records.parts[0]}: shorter than when the run was merged")
    if not files:
        raise RunError(
            f"{directory}: nothing that its {Manifest.file} names is left: {problems[0]}"
        )
    return files, problems


def _file(path: AnyPath, listing: Mapping[str, ListedFile] | str) -> ListedFile | str:
    """What is at a path, or why it cannot be read."""
    if isinstance(listing, str):
        return f"{path}: {listing}"
    return listing.get(packed_part(path).name) or listing.get(path.name) or f"{path}: {_GONE}"


def _listing(folder: AnyPath) -> dict[str, ListedFile] | str:
    try:
        return {file.path.name: file for file in listed(folder)}
    except FileNotFoundError:
        return _GONE
    except OSError as error:
        return f"cannot be read ({error.strerror or error})"
