"""What besides the code decides how fast a run is, and that nothing else of it is read."""

import os
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from trainperf.core.machine.surroundings import (
    PACKAGES,
    VARIABLES,
    cpu_governor,
    cpu_model,
    driver,
    packages,
    variables,
)


PAGE = Path(__file__).parents[3] / "docs/reference/settings.md"


def planted(root: Path, path: str, content: str) -> None:
    """A file of the system."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(content)


def test_of_the_environment_only_the_listed_variables_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A token is none of them, whatever it is called."""
    given = {"OMP_NUM_THREADS": "4", "HF_TOKEN": "secret", "NCCL_DEBUG": "INFO"}
    given |= {"WANDB_API_KEY": "secret", "AWS_SECRET_ACCESS_KEY": "secret", "NCCL_MY_KEY": "secret"}

    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)

    assert variables() == {"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "4"}


def test_no_listed_variable_is_named_like_a_credential() -> None:
    """The list is short enough to be read; this is for whoever adds to it."""
    suspicious = re.compile(r"TOKEN(?!IZERS)|SECRET|PASS|KEY|CRED|AUTH|COOKIE|URL|PROXY")

    assert [name for name in VARIABLES if suspicious.search(name)] == []


def test_the_documented_lists_are_the_lists() -> None:
    """In one place in the code, and in one of the documentation."""
    page = PAGE.read_text(encoding="utf-8")
    section = page.partition("## What it was run on")[2]
    named = [
        tuple(re.findall(r"`([^`]+)`", section.partition(f"**{title}**")[2].partition(".\n")[0]))
        for title in ("Packages", "Environment variables")
    ]

    assert named == [PACKAGES, VARIABLES]


def test_versions_are_those_of_packages_that_the_training_has_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that merely lies there makes nothing slow; one without a version is left out."""
    given = {"numpy": np, "os": os, "apex": ModuleType("apex")}
    for name in PACKAGES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    without = packages()
    for name, module in given.items():
        monkeypatch.setitem(sys.modules, name, module)

    assert (without, packages().keys()) == ({}, {"numpy"})


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56", "550.54.15"),
        # The open driver has more words before the number.
        ("NVIDIA UNIX Open Kernel Module for x86_64  560.35.03  Release Build", "560.35.03"),
    ],
)
def test_processor_clock_policy_and_driver_are_the_systems(
    line: str, version: str, tmp_path: Path
) -> None:
    """As Linux shows them; a virtual machine sets no clock, and a laptop has no such driver."""
    assert (cpu_governor(tmp_path), driver(tmp_path)) == (None, None)
    planted(tmp_path, "proc/cpuinfo", "processor\t: 0\nmodel name\t: AMD EPYC 9654 96-Core\n")
    planted(tmp_path, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n")
    planted(tmp_path, "proc/driver/nvidia/version", f"NVRM version: {line}\n")

    assert cpu_model(tmp_path) == "AMD EPYC 9654 96-Core"
    assert cpu_governor(tmp_path) == "powersave"
    assert driver(tmp_path) == version
