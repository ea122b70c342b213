"""Which operators of an audited step only copy?  To another layout, or to another dtype."""

from trainperf.analysis.rules.operators.audited import PASSES, Timed, short


def is_cast(row: Timed) -> bool:
    """Whether it makes the same numbers in another dtype."""
    use = row.use
    if use.part not in PASSES or use.constant or not use.dtypes:
        return False
    if short(use) == "_to_copy":
        return use.result_dtype is not None and use.result_dtype != use.dtypes[0]
    return short(use) == "copy_" and len(set(use.dtypes[:2])) == 2


def is_layout_copy(row: Timed) -> bool:
    """Whether it makes the same numbers in the same dtype, elsewhere."""
    use = row.use
    if use.part not in PASSES or use.constant or is_cast(row):
        return False
    return short(use) in ("clone", "copy_", "_to_copy", "contiguous")
