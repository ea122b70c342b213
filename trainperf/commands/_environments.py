"""Two Python environments: which packages differ, and mixtures of the two.

Nothing is installed.  A mixture is the first environment with a folder in front of its packages
that links to some of the second's, which needs the same Python on the same system.  Packages that
pin each other's versions, or share a folder, are one change: half of them would not run.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainperf.commands._last_words import last_words
from trainperf.commands._paired_runs import TrainingCommand
from trainperf.comparison.bisection import PackageDifference, State
from trainperf.core.errors import ConfigError


_PROBE = """
import importlib.metadata as metadata, json, re, sys, sysconfig
packages = {}
for package in metadata.distributions():
    name = re.sub(r"[-_.]+", "-", package.metadata["Name"] or "").lower()
    if not name or name in packages:
        continue
    parts = {file.parts[0] for file in package.files or () if file.parts}
    packages[name] = {
        "version": package.version,
        "folder": str(package.locate_file("")),
        "parts": sorted(parts - {"..", "__pycache__", "/"}),
        "pins": re.findall(r"^([A-Za-z0-9._-]+)[^;]*==", "\\n".join(package.requires or ()), re.M),
    }
print(json.dumps({
    "python": "%s %d.%d on %s" % (
        sys.implementation.name, *sys.version_info[:2], sysconfig.get_platform()),
    "packages": packages,
}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package as it is installed."""

    version: str
    folder: str
    """That it was found in."""
    parts: tuple[str, ...]
    """Files and folders of it there."""
    pins: tuple[str, ...]
    """Packages of which it wants one version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
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
            ConfigError: It does not run, or has no trainperf.
        """
        # Not resolved: the link in a virtual environment is what makes it one.
        path = str(Path(python).absolute())
        try:
            ended = subprocess.run(  # noqa: S603 the user's own Python
                [path, "-c", _PROBE], capture_output=True, text=True, check=False
            )
        except OSError as error:
            raise ConfigError(f"--python {python}: {error.strerror}") from None
        if ended.returncode:
            raise ConfigError(f"--python {python}: does not run: {last_words(ended.stderr)}")
        facts = json.loads(ended.stdout)
        packages = {name: _package(each) for name, each in facts["packages"].items()}
        return cls(python=path, kind=facts["python"], packages=packages)

    @property
    def state(self) -> State:
        """As an end of the search."""
        return State(id=self.python, title=self.kind)

    def training(self, words: Sequence[str], overlay: Path | None = None) -> TrainingCommand:
        """The user's command by this Python, with other packages in front where there are any."""
        program, *arguments = words
        if program in {"python", "python3"}:
            command = [self.python, *arguments]
        elif program.endswith(".py"):
            if not Path(program).is_file():
                raise ConfigError(f"{program}: no such file; give the script that trains")
            command = [self.python, program, *arguments]
        else:
            beside = Path(self.python).parent / program
            if not beside.is_file():
                raise ConfigError(f"{program}: neither a Python file nor next to {self.python}")
            command = [str(beside), *arguments]
        if overlay is None:
            return TrainingCommand(words=command)
        paths = [str(overlay), os.environ.get("PYTHONPATH", "")]
        joined = os.pathsep.join(filter(None, paths))
        return TrainingCommand(words=command, environment={"PYTHONPATH": joined})


def _package(facts: dict[str, object]) -> Package:
    parts, pins = facts["parts"], facts["pins"]
    return Package(
        version=str(facts["version"]),
        folder=str(facts["folder"]),
        parts=tuple(map(str, parts)) if isinstance(parts, list) else (),
        pins=tuple(_normal(str(pin)) for pin in pins) if isinstance(pins, list) else (),
    )


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def differences(good: Environment, bad: Environment) -> tuple[PackageDifference, ...]:
    """Packages that are not in both in the same version, by name."""
    names = sorted({*good.packages, *bad.packages})
    versions = ((name, _version(good, name), _version(bad, name)) for name in names)
    return tuple(
        PackageDifference(name=name, good=before, bad=after)
        for name, before, after in versions
        if before != after
    )


def _version(environment: Environment, name: str) -> str | None:
    package = environment.packages.get(name)
    return None if package is None else package.version


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixtures:
    """The good environment with more and more packages of the bad one, in a temporary folder."""

    good: Environment
    bad: Environment
    groups: tuple[tuple[PackageDifference, ...], ...]
    """Packages that change together, in the order in which they are taken over."""
    folder: Path

    @classmethod
    def between(cls, good: Environment, bad: Environment, folder: Path) -> "Mixtures":
        """All differing packages that the bad environment has."""
        apart = [each for each in differences(good, bad) if each.bad is not None]
        groups = tuple(tuple(group) for group in _together(apart, bad))
        return cls(good=good, bad=bad, groups=groups, folder=folder)

    def states(self) -> tuple[State, ...]:
        """One for each group: with this one and all before it."""
        return tuple(
            State(id="+".join(each.name for each in group), title=", ".join(map(change, group)))
            for group in self.groups
        )

    def overlay(self, state: State) -> Path:
        """The folder that goes in front, made where it is not there yet.

        Raises:
            ConfigError: A package's files are not known.
        """
        last = [each.id for each in self.states()].index(state.id)
        target = self.folder / f"with-{last + 1}"
        if target.is_dir():
            return target
        target.mkdir()
        for each in (each for group in self.groups[: last + 1] for each in group):
            package = self.bad.packages[each.name]
            if not package.parts:
                raise ConfigError(f"{each.name}: its files are not listed: is it editable?")
            for part in package.parts:
                link = target / part
                if not link.is_symlink():
                    link.symlink_to(Path(package.folder) / part)
        return target


def change(difference: PackageDifference) -> str:
    """E.g. `torch 2.5.1 → 2.6.0`."""
    good = difference.good or "not installed"
    return f"{difference.name} {good} → {difference.bad or 'not installed'}"


def _together(
    packages: Sequence[PackageDifference], bad: Environment
) -> Iterator[list[PackageDifference]]:
    """Groups of packages that pin each other or share a folder, in the order of their names."""
    names = [each.name for each in packages]
    group_of = {name: {name} for name in names}
    for name in names:
        package = bad.packages[name]
        sharing = (other for other in names if set(package.parts) & set(bad.packages[other].parts))
        for other in (*package.pins, *sharing):
            if other in group_of and group_of[other] is not group_of[name]:
                joined = group_of[name] | group_of[other]
                group_of.update(dict.fromkeys(joined, joined))
    groups: list[set[str]] = []
    for name in names:
        if group_of[name] not in groups:
            groups.append(group_of[name])
            yield [each for each in packages if each.name in group_of[name]]
