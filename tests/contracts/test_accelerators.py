"""Devices are asked in one room: nobody else names a backend's module."""

import ast

import pytest
import torch
from support.sources import ROOT, nodes

from trainperf.accelerators import Ability, Accelerator, accelerator_in_use, accelerator_of
from trainperf.accelerators.base import Features
from trainperf.accelerators.cuda import Cuda
from trainperf.core.machine.backends import backend_of
from trainperf.loop.monitor import no_device_copy
from trainperf.meters import Measure
from trainperf.recording.probes.selection import EVERYTHING, FACTS_OF, NEEDS, FitObjects, choose


BACKENDS = {"cuda", "xpu", "mps"}

DEVICE_PAGES = [
    "docs/index.md",
    *(
        f"docs/concepts/{name}.md"
        for name in (
            *("benchmarks", "captures", "compile", "data-wait", "devices", "how-it-works"),
            *("loader", "machine", "memory", "ranks", "remedies", "trials"),
        )
    ),
    *(
        f"docs/how-to/{name}.md"
        for name in (
            *("is-the-gpu-waiting-for-the-host", "is-the-loader-the-bottleneck"),
            *("where-did-the-memory-go", "which-line-synchronises", "who-is-the-straggler"),
        )
    ),
    *(f"docs/research/{name}.md" for name in ("accuracy", "captures", "gpu-check", "overhead")),
]
"""What of them is measured on a device was not run on a GPU."""


def test_a_backend_is_named_in_its_room_only() -> None:
    """So a device that nobody has heard of is measured like any other."""
    elsewhere = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for path, node in nodes("trainperf")
        if not path.is_relative_to(ROOT / "trainperf" / "accelerators")
        and {f"torch.{backend}" for backend in BACKENDS}.intersection(names_in(node))
    ]

    assert elsewhere == []


def names_in(node: ast.AST) -> list[str]:
    """What an attribute or an import names, with the packages it is in."""
    match node:
        case ast.Attribute():
            return [ast.unparse(node)]
        case ast.Import():
            return [".".join(each.name.split(".")[:2]) for each in node.names]
        case ast.ImportFrom(module=module):
            inside = [f"{module}.{each.name}" for each in node.names]
            return [".".join(name.split(".")[:2]) for name in inside]
    return []


@pytest.mark.parametrize(
    "source",
    [
        "import torch.cuda.nvtx",
        "from torch import xpu",
        "from torch.mps import x",
        "torch.cuda",
    ],
)
def test_a_backend_that_is_imported_is_named_as_well(source: str) -> None:
    """As by an attribute."""
    named = [name for node in ast.walk(ast.parse(source)) for name in names_in(node)]

    assert {f"torch.{backend}" for backend in BACKENDS}.intersection(named)


def test_the_device_of_the_tests_and_the_package_do_not_know_each_other() -> None:
    """It is one of many to the package, and what it does depends on nothing that is measured."""
    device = ROOT / "tests" / "support" / "device"
    machinery = ("frontend.py", "plants.py", "collectives.py", "build.py")
    sources = [*device.glob("*.cpp"), *device.glob("*.h"), *(device / name for name in machinery)]
    cache = "TRAINPERF_CACHE", 'trainperf"'  # where what was compiled is kept
    for source in sources:
        text = source.read_text("utf-8")
        for name in cache:
            text = text.replace(name, "")
        assert "trainperf" not in text, source
    assert not [p for p in (ROOT / "trainperf").rglob("*.py") if "threaded_device" in p.read_text()]


STATE = "ested on a simulated asynchronous device and on recorded traces; not yet on a GPU"


def test_every_page_of_what_is_measured_on_a_device_says_how_far_it_was_tried() -> None:
    """In the same words."""
    pages = [*DEVICE_PAGES, "README.md"]

    assert [
        page for page in pages if STATE not in " ".join((ROOT / page).read_text().split())
    ] == []


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


def test_a_device_with_the_hosts_memory_has_no_copy_to_measure() -> None:
    """A batch crosses no link there: the facts of a copy say so, and no other reason takes over."""
    device = torch.device("mps")
    chosen = choose(FitObjects(device=device), EVERYTHING)
    copies = FACTS_OF[Measure.H2D]

    assert chosen.accelerator.unified
    assert chosen.accelerator.asynchronous
    assert not {fact for probe in chosen.probes for fact in probe.facts} & {*copies}
    assert {chosen.reasons[fact] for fact in copies} == {
        "not applicable: the device has the host's memory, so a batch crosses no link"
    }
    assert no_device_copy(device) == {}
    assert no_device_copy(torch.device("meta")).keys() == {"h2d_device_ns"}


def test_a_backend_has_the_hosts_memory_in_a_run_as_in_a_process() -> None:
    """What probes leave out while it runs and what advice leaves out afterwards are the same."""
    for name in sorted(BACKENDS):
        accelerator = accelerator_of(torch.device(name))
        assert accelerator.unified is backend_of(name, {}).unified


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


def test_on_rocm_numbers_of_amd_are_not_those_of_nvidia(monkeypatch: pytest.MonkeyPatch) -> None:
    """An MI300 says 9.4, which is no compute capability: no TF32 by it, and no cuDNN."""
    monkeypatch.setattr(torch.version, "hip", "6.2.0")
    tells = {
        "get_device_properties": object(),
        "get_device_capability": (9, 4),
        "is_bf16_supported": True,
    }
    for name, answer in tells.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, answer=answer, **__: answer)

    assert Cuda(torch.device("cuda:0")).features() == Features()


@pytest.mark.parametrize("allocator", ["cudaMallocAsync", "native"])
def test_retries_that_an_allocator_does_not_count_are_not_measured(
    monkeypatch: pytest.MonkeyPatch, allocator: str
) -> None:
    """`cudaMallocAsync` reports 0 always: no retries were measured then, and none has its fact."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: allocator)
    counts = allocator == "native"
    cuda = Cuda(torch.device("cuda:0"))

    assert (Ability.RETRIES not in cuda.lacks()) is counts
    assert counts or allocator in cuda.lacks()[Ability.RETRIES]


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is an accelerator here")
def test_without_an_accelerator_none_is_in_use() -> None:
    """And one that is asked for by name lacks everything."""
    assert accelerator_in_use() is None
    assert Accelerator(torch.device("meta", 0)).lacks().keys() == set(Ability)
