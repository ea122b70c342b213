"""What besides the code decides how fast a run is, and that nothing else of it is read."""

import re
import time
from pathlib import Path

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


def test_of_the_environment_only_the_listed_variables_are_read() -> None:
    """A token is none of them, whatever it is called."""
    given = {"OMP_NUM_THREADS": "4", "HF_TOKEN": "secret", "NCCL_DEBUG": "INFO"}
    given |= {"WANDB_API_KEY": "secret", "AWS_SECRET_ACCESS_KEY": "secret", "NCCL_MY_KEY": "secret"}

    assert variables(given) == {"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "4"}


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


def test_versions_are_those_of_packages_that_the_training_has_imported() -> None:
    """One that merely lies there makes nothing slow; one without a version is left out."""
    assert packages(["numpy", "os", "apex"]).keys() == {"numpy"}
    assert packages([]) == {}


def test_processor_clock_policy_and_driver_are_the_systems(tmp_path: Path) -> None:
    """As Linux shows them."""
    planted(tmp_path, "proc/cpuinfo", "processor\t: 0\nmodel name\t: AMD EPYC 9654 96-Core\n")
    planted(tmp_path, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n")
    nvidia = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56\n"
    planted(tmp_path, "proc/driver/nvidia/version", nvidia)

    assert cpu_model(tmp_path) == "AMD EPYC 9654 96-Core"
    assert cpu_governor(tmp_path) == "powersave"
    assert driver(tmp_path) == "550.54.15"


def test_the_open_driver_is_named_too(tmp_path: Path) -> None:
    """Its line has more words before the number."""
    nvidia = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  560.35.03  Release Build\n"
    planted(tmp_path, "proc/driver/nvidia/version", nvidia)

    assert driver(tmp_path) == "560.35.03"


def test_what_a_system_does_not_tell_is_not_known(tmp_path: Path) -> None:
    """A virtual machine sets no clock; a laptop has no such driver."""
    assert cpu_governor(tmp_path) is None
    assert driver(tmp_path) is None


def test_reading_all_of_it_takes_a_moment() -> None:
    """Hundreds of variables and packages would not be read before every fit."""
    began = time.perf_counter()
    variables()
    packages()
    cpu_model()

    assert time.perf_counter() - began < 2.0
