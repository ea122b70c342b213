"""All cases of all causes."""

from support.causes import (
    broken,
    fit,
    host,
    loader,
    machine,
    needless,
    operators,
    post_training,
    ranks,
)


CASES = tuple(
    case
    for subject in (
        broken,
        fit,
        host,
        loader,
        machine,
        needless,
        operators,
        post_training,
        ranks,
    )
    for case in subject.CASES
)
