"""The compiled half of the device: built once for each torch and each state of the sources."""

import functools
import hashlib
import logging
import os
import shutil
from pathlib import Path
from types import ModuleType

import torch
from torch.utils import cpp_extension


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
    directory = build_directory()
    directory.mkdir(parents=True, exist_ok=True)
    if not any(directory.glob("*.so")):
        logging.getLogger(__name__).warning("compiling the device in %s: some minutes", directory)
    module: ModuleType = cpp_extension.load(  # type: ignore[no-untyped-call]
        "threaded_device",
        [str(source) for source in sorted(SOURCES.glob("*.cpp"))],
        extra_cflags=list(FLAGS),
        build_directory=str(directory),
    )
    return module


def build_directory() -> Path:
    """Return a directory that no other torch and no other state of the sources uses."""
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for source in sorted([*SOURCES.glob("*.cpp"), *SOURCES.glob("*.h")]):
        digest.update(source.name.encode() + source.read_bytes())
    root = os.environ.get(CACHE) or str(Path.home() / ".cache" / "trainperf")
    return Path(root) / "threaded_device" / f"torch-{torch.__version__}-{digest.hexdigest()[:12]}"
