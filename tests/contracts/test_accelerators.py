"""Devices are asked in one room: nobody else names a backend's module."""

import ast

import pytest
import torch
from support.sources import ROOT, nodes

from trainperf.accelerators import Ability, Accelerator, accelerator_in_use, accelerator_of
from trainperf.accelerators.base import Features
from trainperf.accelerators.cuda import Cuda
from trainperf.recording.probes.selection import EVERYTHING, FACTS_OF, NEEDS, FitObjects, choose


BACKENDS = {"cuda", "xpu", "mps"}


def test_a_backend_is_named_in_its_room_only() -> None:
    """So a device that nobody has heard of is measured like any other."""
    elsewhere = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for path, node in nodes("trainperf")
        if isinstance(node, ast.Attribute)
        and node.attr in BACKENDS
        and ast.unparse(node.value) == "torch"
        and not path.is_relative_to(ROOT / "trainperf" / "accelerators")
    ]

    assert elsewhere == []


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("meta", "no queue of meta"),
        ("mps", "sends off what is queued"),
        ("xpu", "SYCL compiler 2025.0"),
    ],
)
def test_a_device_without_a_queue_to_ask_is_measured_on_the_host_only(
    kind: str, reason: str
) -> None:
    """Each fact that would need one has its reason, and no probe of it is attached."""
    chosen = choose(FitObjects(device=torch.device(kind)), EVERYTHING)
    facts = {fact for probe in chosen.probes for fact in probe.facts}
    needed = {fact for several in NEEDS.values() for fact in several}

    assert chosen.clock is None
    assert not facts & needed
    assert needed <= chosen.reasons.keys()
    assert reason in chosen.reasons["loss"]


def test_every_ability_says_what_needs_it() -> None:
    """And what needs it is a fact."""
    facts = {fact for several in FACTS_OF.values() for fact in several}

    assert NEEDS.keys() == set(Ability)
    assert {fact for several in NEEDS.values() for fact in several} <= facts


def test_a_cpu_is_its_own_host() -> None:
    """Nothing is under way there, and nothing has to be asked."""
    host = accelerator_of(torch.device("cpu"))

    assert not host.asynchronous
    assert host.unified
    assert host.lacks().keys() == set(Ability)
    host.synchronize()
    assert host.memory_stats() == {}
    assert host.peak_bytes() is None
    before = host.random_state()
    first = torch.rand(3)
    host.set_random_state(before)
    assert torch.equal(torch.rand(3), first)


def test_an_older_torch_tells_less_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it does not know is empty, and no error."""
    tells = {
        "get_device_properties": object(),
        "get_device_capability": (8, 0),
        "is_bf16_supported": True,
    }
    for name, answer in tells.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, answer=answer, **__: answer)

    assert Cuda(torch.device("cuda:0")).features() == Features(
        tf32=True, cudnn=torch.version.hip is None, capability=(8, 0)
    )


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is an accelerator here")
def test_without_an_accelerator_none_is_in_use() -> None:
    """And one that is asked for by name lacks everything."""
    assert accelerator_in_use() is None
    assert Accelerator(torch.device("meta", 0)).lacks().keys() == set(Ability)
