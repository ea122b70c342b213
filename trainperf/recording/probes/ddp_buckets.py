"""Gradient buckets of DDP, from its own statistics, read without waiting for them.

`DistributedDataParallel._get_ddp_logging_data` is not a public interface: where it is gone nothing
is said.  DDP fills it in its first ten steps, and then in every hundredth.
"""

from collections.abc import Mapping

from torch.nn.parallel import DistributedDataParallel

from trainperf.core.steps.records import Scalar


def buckets(module: DistributedDataParallel) -> dict[str, Scalar]:
    """`ddp_buckets`, the number of them, and `ddp_unused_bytes`, parameters without a gradient.

    The latter is `None` unless DDP was told to look for them.  Torch 2.6 adds it up over steps:
    there only whether it is 0 means something.
    """
    read = getattr(module, "_get_ddp_logging_data", None)
    data: Mapping[str, object] = read() if read is not None else {}
    sizes = str(data.get("rebuilt_bucket_sizes") or data.get("bucket_sizes") or "")
    unused = data.get("unused_parameter_size")
    looked = module.find_unused_parameters and isinstance(unused, int)
    return {
        "ddp_buckets": len(sizes.split(",")) if sizes else None,
        "ddp_unused_bytes": int(str(unused)) if looked else None,
    }
