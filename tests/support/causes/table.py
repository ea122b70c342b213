"""All cases of all causes."""

from support.causes import (
    broken,
    fit,
    host,
    loader,
    machine,
    needless,
    operators,
    ranks,
)


CASES = tuple(
    case
    for subject in (broken, fit, host, loader, machine, needless, operators, ranks)
    for case in subject.CASES
)
