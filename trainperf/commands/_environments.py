"""Two Python environments: which packages differ, and mixtures of the two.

Nothing is installed.  A mixture is the first environment with a folder in front of its packages
that links to some of the second's, which needs the same Python on the same system.  Packages that
pin each other's versions, or share a folder, are one change: half of them would not run.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

from trainperf.commands._last_words import last_words
from trainperf.commands._trainings import TrainingCommand
from trainperf.comparison.bisection import PackageDifference, State
from trainperf.core.errors import ConfigError


_PROBE = """
import importlib.metadata as metadata, json, re, sys, sysconfig
normal = lambda name: re.sub(r"[-_.]+", "-", name).lower()
packages = {}
for package in metadata.distributions():
    name = normal(package.metadata["Name"] or "")
    if not name or name in packages:
        continue
    parts = {file.parts[0] for file in package.files or () if file.parts}
    pins = re.findall(r"^([A-Za-z0-9._-]+)[^;]*==", "\\n".join(package.requires or ()), re.M)
    packages[name] = {
        "version": package.version,
        "folder": str(package.locate_file("")),
        "parts": sorted(parts - {"..", "__pycache__", "/"}),
        "pins": list(map(normal, pins)),
    }
kind = "%s %d.%d on %s" % (
    sys.implementation.name, *sys.version_info[:2], sysconfig.get_platform())
print(json.dumps({"python": sys.argv[1], "kind": kind, "packages": packages}))
"""


class Package(msgspec.Struct, frozen=True, kw_only=True):
    """A package as it is installed."""

    version: str
    folder: str
    """That it was found in."""
    parts: tuple[str, ...]
    """Files and folders of it there."""
    pins: tuple[str, ...]
    """Packages of which it wants one version."""


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """One Python, and its packages."""

    python: str
    """Its path."""
    kind: str
    """Implementation, version and system: what a compiled package is made for."""
    packages: dict[str, Package]

    @classmethod
    def of(cls, python: str) -> "Environment":
        """By running it.

        Raises:
            ConfigError: It does not run.
        """
        # Not resolved: the link in a virtual environment is what makes it one.
        path = str(Path(python).absolute())
        try:
            ended = subprocess.run(  # noqa: S603 the user's own Python
                [path, "-c", _PROBE, path], capture_output=True, text=True, check=False
            )
        except OSError as error:
            raise ConfigError(f"--python {python}: {error.strerror}") from None
        if ended.returncode:
            raise ConfigError(f"--python {python}: does not run: {last_words(ended.stderr)}")
        return msgspec.json.decode(ended.stdout, type=cls)

    def training(self, words: Sequence[str]) -> TrainingCommand:
        """The user's command by this Python.

        Raises:
            ConfigError: There is no such program.
        """
        program, *arguments = words
        beside = Path(self.python).parent / program
        if program in {"python", "python3"}:
            return TrainingCommand(words=[self.python, *arguments])
        if program.endswith(".py"):
            if not Path(program).is_file():
                raise ConfigError(f"{program}: no such file; give the script that trains")
            return TrainingCommand(words=[self.python, program, *arguments])
        if not beside.is_file():
            raise ConfigError(f"{program}: neither a Python file nor next to {self.python}")
        return TrainingCommand(words=[str(beside), *arguments])


def differences(good: Environment, bad: Environment) -> tuple[PackageDifference, ...]:
    """Packages that are not in both in the same version, by name."""
    versions = [
        {name: package.version for name, package in each.packages.items()} for each in (good, bad)
    ]
    return tuple(
        PackageDifference(name=name, good=versions[0].get(name), bad=versions[1].get(name))
        for name in sorted({*good.packages, *bad.packages})
        if versions[0].get(name) != versions[1].get(name)
    )


Group = tuple[PackageDifference, ...]
"""Packages that change together."""


def grouped(packages: Sequence[PackageDifference], bad: Environment) -> list[Group]:
    """Those that pin each other or share a folder together, in the order of their names.

    Packages that the bad environment does not have are left out.
    """
    groups: list[list[PackageDifference]] = []
    for each in packages:
        if each.bad is None:
            continue
        tied = [group for group in groups if any(_tied(each, other, bad) for other in group)]
        groups = [group for group in groups if group not in tied]
        groups.append([*(member for group in tied for member in group), each])
    by_name = (tuple(sorted(group, key=lambda each: each.name)) for group in groups)
    return sorted(by_name, key=lambda group: group[0].name)


def _tied(package: PackageDifference, other: PackageDifference, bad: Environment) -> bool:
    first, second = bad.packages[package.name], bad.packages[other.name]
    pinned = other.name in first.pins or package.name in second.pins
    return pinned or not set(first.parts).isdisjoint(second.parts)


def state_of(group: Group) -> State:
    """With these packages, and all that come before them."""
    return State(id="+".join(each.name for each in group), title=", ".join(map(_change, group)))


def _change(difference: PackageDifference) -> str:
    """E.g. `torch 2.5.1 → 2.6.0`."""
    return f"{difference.name} {difference.good or 'not installed'} → {difference.bad}"


def overlay(groups: Sequence[Group], bad: Environment, folder: Path) -> dict[str, str]:
    """Environment variables of a Python with the packages of the bad one in front of its own.

    Args:
        groups: Packages that are taken from there.
        bad: That environment.
        folder: Where links to them are put.

    Raises:
        ConfigError: A package's files are not known.
    """
    folder.mkdir(exist_ok=True)
    for each in (each for group in groups for each in group):
        package = bad.packages[each.name]
        if not package.parts:
            raise ConfigError(f"{each.name}: its files are not listed: is it editable?")
        for part in package.parts:
            link = folder / part
            if not link.is_symlink():
                link.symlink_to(Path(package.folder) / part)
    paths = [str(folder), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
