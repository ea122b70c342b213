"""Post-training: waits for the longest answer, rewards, transfers of weights, named phases."""

from support.accounts import Seen, on_gpu, seen, step
from support.causes.case import CauseCase as Case
from support.causes.host import lines

from trainperf.analysis.diagnosis.account import DeviceAccount
from trainperf.analysis.diagnosis.cause import Use
from trainperf.analysis.summary.schema import HostShare
from trainperf.core.loop_kind import HUGGING_FACE, LoopKind
from trainperf.core.readings import STEP_MEAN_S
from trainperf.core.steps.own_sums import AnswerFacts, NamedPhase


HOST = HostShare(ranks=1, cpus_per_rank=8.0, threads=1, workers=0)


def generates(
    reward: float = 5.0,
    transfer: float = 1.0,
    loop: LoopKind = HUGGING_FACE,
    cpus: float | None = None,
    phase: str = "reward: accuracy",
    device: DeviceAccount | None = None,
    **answers: float,
) -> Seen:
    """Steps of 200 ms in which 16 answers are generated, the longest of 160 tokens."""
    slots = {"rollout": 100.0, phase: reward, "weight_transfer": transfer}
    usual = {"number": 16.0, "tokens": 1700.0, "longest": 160.0, "usual": 100.0}
    return seen(
        step(**slots, forward=200.0 - sum(slots.values()), device=device),
        named_phases={n: NamedPhase(seconds=ms / 1e3, cpus=cpus) for n, ms in slots.items()},
        answers=AnswerFacts(**usual | answers),
        readings={STEP_MEAN_S: 0.2},
        loop=loop,
        host=HOST,
    )


def named(ms: float, name: str = "planning", **known: object) -> Seen:
    """Steps of 100 ms, of which a phase with a name of the loop's own takes so many."""
    phase = NamedPhase(seconds=ms / 1e3, cpus=0.2)
    return seen(step(forward=100 - ms, **{name: ms}), named_phases={name: phase}, **known)


CASES = (
    Case(
        "longest_answer",
        "60 of the 160 tokens come after the median answer is done, in three eighths of 100 ms",
        generates(),
        0.0375,
        "no_straggling_answer",
        (generates(usual=150.0), generates(longest=0.0), seen(step(forward=100))),
        words=(
            "38 % of the rollout waits for the longest answer",
            "the longest of 16 answers has 160 tokens, the median 100",
            "a lower max_completion_length",
        ),
    ),
    Case(
        "padding",
        "of answers that were generated: no loader can sort them",
        seen(
            step(forward=100),
            readings={"padding_fraction": 0.5},
            answers=AnswerFacts(),
            loop=HUGGING_FACE,
        ),
        0.050,
        "no_straggling_answer",
        words=("a lower max_completion_length",),
    ),
    Case(
        "reward_functions",
        "it waits: 0.1 of a CPU",
        generates(reward=50.0, cpus=0.1),
        0.050,
        "rewards_at_once",
        (generates(reward=9.0), seen(step(forward=100))),
        words=("rewards take 25 % of the step", "accuracy: 50.0 ms per step, on 0.1 CPUs", "async"),
    ),
    Case(
        "reward_functions",
        "it computes on one CPU",
        generates(reward=50.0, cpus=1.0),
        0.050,
        "rewards_in_processes",
        (
            generates(reward=50.0, cpus=8.0),  # all CPUs are busy
            generates(50.0, phase="reward", device=on_gpu(), cpus=1.0),  # a model
        ),
        words=("on 1.0 CPUs", "ProcessPoolExecutor"),
        shows={
            "changes": (
                Use(change="rewards_in_processes", values={"name": "accuracy"}, realises=7 / 8),
            )
        },
    ),
    Case(
        "weight_transfer",
        "all of it",
        generates(transfer=40.0),
        0.040,
        "rarer_transfer",
        (generates(transfer=9.0),),
        words=("the transfer of weights takes 20 % of the step", "steps_per_generation"),
    ),
    Case(
        "useless_answers",
        "a quarter of the answers",
        generates(useless=0.25),
        None,
        "skip_useless_prompts",
        (generates(useless=0.05), generates()),
        words=("nothing is learned from 25 % of the answers",),
        shows={"severity": "low"},
    ),
    Case(
        "named_phase",
        "nobody knows what it may gain",
        named(60, **lines("planning")),
        None,
        "look_into_phase",
        (named(40), named(60, "update")),
        words=("planning takes 60 % of the step", "0.2 CPUs busy", "on_batch_end at hooks.py:3"),
        shows={"where": "hooks.py:3"},
    ),
    Case(
        "named_phase",
        "answers are generated for half of the step",
        generates(),
        None,
        "faster_rollout",
        words=("rollout takes 50 % of the step", "8,500 generated tokens/s", "use_vllm=True"),
    ),
)
