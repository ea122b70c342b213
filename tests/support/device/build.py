"""The compiled half of the device: built once for each torch and each state of the sources."""

import functools
import hashlib
import importlib.util
import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import torch
from torch.utils import cpp_extension


NAME = "threaded_device"
SOURCES = Path(__file__).parent
FLAGS = ("-O1", "-Wall")

CACHE = "TRAINPERF_CACHE"
"""The variable that names the directory of what tests keep between sessions."""


class NoCompilerError(RuntimeError):
    """What the device is compiled with is not on this machine."""


@functools.cache
def extension() -> ModuleType:
    """Load the compiled half, and build it before where no one did."""
    missing = [tool for tool in ("g++", "ninja") if shutil.which(tool) is None]
    if missing:
        raise NoCompilerError(f"{' and '.join(missing)} not found: install to test on the device")
    library = library_file()
    if not library.is_file():
        _build(library)
    spec = importlib.util.spec_from_file_location(NAME, library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _build(library: Path) -> None:
    """Compile in a directory of its own: processes that build at once do not wait for each other.

    None is left behind that is half done, whenever a process is killed.
    """
    logging.getLogger(__name__).warning("compiling the device into %s: some minutes", library)
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        cpp_extension.load(  # type: ignore[no-untyped-call]
            NAME,
            [str(source) for source in sorted(SOURCES.glob("*.cpp"))],
            extra_cflags=list(FLAGS),
            build_directory=folder,
            is_python_module=False,
        )
        Path(folder, f"{NAME}.so").replace(library)


def library_file() -> Path:
    """Return a file that no other torch, Python and state of the sources uses."""
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for source in sorted([*SOURCES.glob("*.cpp"), *SOURCES.glob("*.h")]):
        digest.update(source.name.encode() + source.read_bytes())
    root = os.environ.get(CACHE) or str(Path.home() / ".cache" / "trainperf")
    version = f"torch-{torch.__version__}-{sys.implementation.cache_tag}"
    return Path(root, NAME, f"{version}-{digest.hexdigest()[:12]}.so")
