"""Everything that is known of a run, as a person sees it: compared whole."""

from pathlib import Path

import msgspec
from support.doctor import Planted
from support.light import CHIP, COMPUTE, MEMORY, make_audit
from support.runs import make_steps

from trainperf.analysis.summary.schema import PhaseLines, Summary
from trainperf.core.artifacts.audit import MeasuredChip
from trainperf.core.artifacts.compilation import Compilation, Compiled, GraphBreak
from trainperf.core.artifacts.memory import Holder, MemoryLedger, ModuleActivations
from trainperf.core.findings import Finding
from trainperf.reports.layout.text import as_text, text_lines
from trainperf.reports.run.document import run_document
from trainperf.reports.run.tables import of_lines


def ledger() -> MemoryLedger:
    """A million parameters under Adam, in fp32."""
    return MemoryLedger(
        step=20,
        device="cpu",
        parameters_bytes=4_000_000,
        gradients_bytes=4_000_000,
        optimizer_state_bytes={"exp_avg": 4_000_000, "exp_avg_sq": 4_000_000},
        parameters=1_000_000,
        activations_bytes=10 << 20,
        activations=(ModuleActivations(module="GPT.blocks.0", size_bytes=6 << 20),),
        peak_bytes=30 << 20,
        at_peak_bytes={"parameters": 4_000_000, "activations": 10 << 20},
        capacity_bytes=32 << 30,
        precision="16-mixed",
        held=(
            Holder(
                kind="list",
                name="GPT.losses",
                where="gpt.py:12",
                count=3,
                graphs=3,
                size_bytes=12,
            ),
        ),
    )


def compilation() -> Compilation:
    """One break, one guard that failed."""
    return Compilation(
        graphs=3,
        compile_s=4.5,
        compiled=(
            Compiled(function="forward", where="gpt.py:30", step=0, seconds=3.0, reason=None),
            Compiled(
                function="forward",
                where="gpt.py:30",
                step=41,
                seconds=1.5,
                reason="size mismatch at index 1",
            ),
        ),
        breaks=(GraphBreak(reason="call to print", where="gpt.py:33", times=2),),
    )


FOUND = Finding(
    id="data_wait",
    title="37 % of the step is spent waiting for data",
    advice="Fix the loader",
    evidence=("20.0 ms a step",),
    action="DataLoader(num_workers=3)",
    fraction=0.37,
    gain=1.23,
    gain_upper_bound=1.58,
    effort="hours",
    where="train.py:31",
    confirm="data_wait_fraction falls",
)


def summary(path: Path) -> Summary:
    """A run of which everything is known, with one finding."""
    uses = (
        msgspec.structs.replace(COMPUTE, host_s=0.020, line="gpt.py:31"),
        msgspec.structs.replace(MEMORY, host_s=0.001, part="backward"),
    )
    planted = Planted(
        steps=make_steps(200, data_wait=20, forward=14, backward=14, optimizer=2),
        documents=(
            make_audit(*uses, step=20),
            MeasuredChip(chip=CHIP),
            ledger(),
            compilation(),
        ),
    )
    return msgspec.structs.replace(planted.evidence(path / "gpt2").summary, findings=(FOUND,))


FULL = """\
trainperf · gpt2 · 2026-11-01 12:00 · 1 rank · CPU · 188 steady steps (excluded: 12 warm-up)

  Step time 50.0 ms; 40 % of it is data wait. First: fix the loader — about 1.23×, at most 1.58×.

  next  DataLoader(num_workers=3)
  where train.py:31
  first step 50.0 ms · p95 50.0 ms · p99 50.0 ms

  Where a step goes
    phase      time per step                     share
    data wait        20.0 ms  ██████▍           40.0 %
    h2d                                                 not applicable (CPU)
    forward          14.0 ms  ████▌             28.0 %
    backward         14.0 ms  ████▌             28.0 %
    optimizer         2.0 ms  ▋                  4.0 %
    callbacks         0.0 ms                     0.0 %
    loop              0.0 ms                     0.0 %
    other             0.0 ms                     0.0 %
    step 50.0 ms, mean of 188 steady steps

    time spent on launch overhead 28 % · compute 28 % · memory traffic 4.0 %
    the rest 40 % (split as the audited step)
    speed of light 2.00 ms; the step takes 25× that, most of the rest in forward · MFU 2.0 %

  What to change
    1. 37 % of the step is spent waiting for data (train.py:31)
       20.0 ms a step
       do       DataLoader(num_workers=3)
       gain     about 1.23×, at most 1.58×; takes hours
       confirm  data_wait_fraction falls

  Memory
    What fills the memory
                               size  bytes per parameter
    parameters             3.81 MiB                  4.0
    gradients              3.81 MiB                  4.0
    optimizer: exp_avg     3.81 MiB                  4.0
    optimizer: exp_avg_sq  3.81 MiB                  4.0
    activations            10.0 MiB                    –
      in GPT.blocks.0      6.00 MiB                    –
    peak of the audited step 30.0 MiB: activations 10.0 MiB, parameters 3.81 MiB
    capacity 32.0 GiB
    GPT.losses (gpt.py:12) accumulated 3 tensors, 12 B, 3 with a graph

    What would need less memory
                                                 saves at most
    half the micro-batch, twice as many of them       5.00 MiB
    estimated from the ledger, not measured with the change made

  Speed of light
    How far from the speed of light
               measured    floor    fused  measured / floor
    step        50.0 ms  2.00 ms  1.25 ms               25×
    forward     14.0 ms  1.00 ms  1.00 ms               14×
    backward    14.0 ms  1.00 ms   250 µs               14×
    optimizer   2.00 ms        –        –                 –
    peaks of planted (this test)
    1.00 GFLOP/step

    Operators of the audited step 20
    operator    where      part      bound    in    calls     time    floor   share
    mm          gpt.py:31  forward   compute  fp32      1  20.0 ms  1.00 ms  95.2 %
    add.Tensor  –          backward  memory   fp32      1  1.00 ms  1.00 ms   4.8 %

  torch.compile
    What torch.compile did
                where      times / step  why
    break       gpt.py:33  2             call to print
    recompiled  gpt.py:30  step 41       size mismatch at index 1
    3 graphs in 4.50 s, 1 graph break, 1 recompilation

  The whole fit
    fit 10.0 s = steps 10.0
"""


def test_the_full_report_is_the_one_that_was_read_and_approved(tmp_path: Path) -> None:
    """Every letter."""
    assert as_text(run_document(summary(tmp_path))) == FULL


def test_no_line_is_wider_than_the_terminal(tmp_path: Path) -> None:
    """The ends of paths stay, their beginnings give way."""
    long = msgspec.structs.replace(FOUND, where="/".join(["directory"] * 20) + "/train.py:31")
    known = msgspec.structs.replace(summary(tmp_path), findings=(long,))

    for width in (60, 80, 110):
        assert max(line.cell_len for line in text_lines(run_document(known), width)) <= width


def test_a_narrow_terminal_cuts_no_number(tmp_path: Path) -> None:
    """Columns of words give way: half a number is a wrong one."""
    wide, narrow = (
        text_lines(run_document(summary(tmp_path / str(columns))), columns) for columns in (100, 60)
    )
    ends = [
        [line.plain.split()[-4:] for line in said if line.plain.lstrip().startswith("mm ")]
        for said in (wide, narrow)
    ]

    assert ends[0] == ends[1] == [["1.00", "ms", "95.2", "%"]]


def test_lines_that_were_nowhere_in_the_users_code_have_no_table(tmp_path: Path) -> None:
    """Samples of a loop that is one call of a library."""
    nowhere = PhaseLines(slot="forward", samples=40, owner=None, lines=())

    assert of_lines(msgspec.structs.replace(summary(tmp_path), lines=(nowhere,))) == []
