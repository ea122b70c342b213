"""The compiled half of the device: built once for each torch and each state of the sources."""

import functools
import hashlib
import importlib.machinery
import importlib.util
import logging
import os
import shutil
import tempfile
from pathlib import Path
from types import ModuleType

import torch
from torch.utils import cpp_extension


SOURCES = Path(__file__).parent
MODULE = "threaded_device"
FLAGS = ("-O1", "-Wall")

CACHE = "TRAINPERF_CACHE"
"""The variable that names the directory of what tests keep between sessions."""


class NoCompilerError(RuntimeError):
    """What the device is compiled with is not on this machine."""


@functools.cache
def extension() -> ModuleType:
    """Load the compiled half, and build it before where no one did."""
    library = library_path()
    if not library.exists():
        build(library)
    spec = importlib.util.spec_from_file_location(MODULE, library)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(library: Path) -> None:
    """Compile apart and move the result into its place, so that nobody loads half of it."""
    if missing := missing_tools():
        raise NoCompilerError(missing)
    library.parent.mkdir(parents=True, exist_ok=True)
    logging.getLogger(__name__).warning("compiling %s: some minutes", library)
    with tempfile.TemporaryDirectory(dir=library.parent) as apart:
        cpp_extension.load(
            MODULE,
            [str(source) for source in sorted(SOURCES.glob("*.cpp"))],
            extra_cflags=list(FLAGS),
            build_directory=apart,
            is_python_module=False,
        )
        Path(apart, f"{MODULE}.so").rename(library)


def missing_tools() -> str:
    """Say what is not there to compile with; empty where nothing is missing."""
    missing = [tool for tool in ("g++", "ninja") if shutil.which(tool) is None]
    return f"{' and '.join(missing)} not found: install to test on the device" if missing else ""


def library_path() -> Path:
    """Return a place that no other torch, Python or state of the sources uses."""
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for source in sorted([*SOURCES.glob("*.cpp"), *SOURCES.glob("*.h")]):
        digest.update(source.name.encode() + source.read_bytes())
    root = os.environ.get(CACHE) or str(Path.home() / ".cache" / "trainperf")
    state = f"torch-{torch.__version__}-{digest.hexdigest()[:12]}"
    return Path(root) / MODULE / state / f"{MODULE}{importlib.machinery.EXTENSION_SUFFIXES[0]}"
