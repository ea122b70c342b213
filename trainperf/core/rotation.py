"""Size at which a file that grows all the time goes on in another part."""

import os
from pathlib import Path

from trainperf.core import spool
from trainperf.core.errors import ConfigError
from trainperf.core.spool.mirror import PART_BYTES


ROTATE_VARIABLE = "TRAINPERF_ROTATE"
"""Environment variable: size at which a record file goes on in another part; 0 for never."""

ROTATE_MB = 8.0
"""Some 50,000 steps: what a reader has to take whole, and a crash leaves unpacked."""


def rotation_bytes(run: Path) -> int:
    """The size of a part in a run directory; 0 for any.

    Raises:
        ConfigError: The environment variable holds no size.
    """
    text = os.environ.get(ROTATE_VARIABLE, "")
    try:
        megabytes = float(text or ROTATE_MB)
    except ValueError:
        megabytes = -1.0
    if not 0 <= megabytes < float("inf"):
        raise ConfigError(f"{ROTATE_VARIABLE}={text}: must be a size in MB, or 0; try 8")
    most = round(megabytes * 1e6)
    # Behind a URL a part is an object.
    return min(most, PART_BYTES) if most and spool.url_of(run) is not None else most
