"""All cases of all causes."""

from support.causes import broken, fit, host, loader, machine, operators, ranks


CASES = tuple(
    case
    for subject in (broken, fit, host, loader, machine, operators, ranks)
    for case in subject.CASES
)
