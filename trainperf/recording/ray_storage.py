"""Storage of a Ray Train run: the place of run directories that workers on every node can reach.

Ray Train copies nothing out of a worker's own folder, and a local one is gone with its node.
"""

import sys


_ADDRESSES = {"local": "", "s3": "s3://", "gcs": "gs://", "abfs": "abfs://", "hdfs": "hdfs://"}
"""File systems of pyarrow, as they call themselves, to how a path there begins."""


def ray_storage() -> str | None:
    """The folder or URL of the Ray Train run that this process works for.

    `None` where it is no worker of one, or the storage is a file system of the user's own.
    """
    try:
        storage = sys.modules["ray.train"].get_context().get_storage()
    except (KeyError, RuntimeError, DeprecationWarning):  # no Ray, a driver, or Ray Tune's function
        return None
    # Ray Train's first version has none outside of its workers.
    system = getattr(storage, "storage_filesystem", None)
    address = _ADDRESSES.get(getattr(system, "type_name", ""))
    return None if address is None else f"{address}{storage.experiment_fs_path}"
