"""Detectors of a post-training: waits for the longest answer, rewards, transfers of weights."""

from trainperf.analysis.diagnosis.account import Claim, StepAccount, of_slots
from trainperf.analysis.diagnosis.cause import Cause, Use, worth
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.core.choice import texts_of
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import count, duration, share, words
from trainperf.core.post_training import REWARD, ROLLOUT, UPDATE, WEIGHT_TRANSFER
from trainperf.core.steps.own_sums import AnswerFacts, NamedPhase


def _cpus(facts: Facts, phase: str) -> float | None:
    """CPUs that the process kept busy in a phase; `None` where that was not measured."""
    return facts.summary.named_phases.get(phase, NamedPhase(seconds=0.0)).cpus


@worth(LIMITS.worth)
def longest_answer(account: StepAccount, facts: Facts) -> Cause | None:
    """A rollout goes on for its longest answer, long after half of the answers are done.

    Answers that are generated together take as many calls of the model as the longest one has
    tokens.  What comes after the median is lost to at least half of the places in the batch, which
    continuous batching, or a limit, would give back.  In an imported log the mean takes the place
    of the median: the share is then an upper bound.

    Wrong where: the engine gives places that are free to other prompts (vLLM with more prompts than
    fit at once).
    To confirm: a run with a lower limit on the length.
    """
    answers, rollout_s = facts.summary.answers or AnswerFacts(), account.spent(ROLLOUT)
    waits = 1.0 - answers.usual / answers.longest if answers.longest else 0.0
    most = "up to " if answers.usual_is == "mean" else ""
    of = f" of {count(answers.number)} answers" if answers.number else " answer"
    return Cause(
        id="longest_answer",
        title=f"{most}{share(waits)} of the rollout waits for the longest answer",
        evidence=(
            (
                f"the longest{of} has {count(answers.longest)} tokens, the {answers.usual_is} "
                f"{count(answers.usual)}"
            ),
            f"{duration(rollout_s)} of rollout per step",
        ),
        changes=(Use(change="no_straggling_answer"),),
        claim=Claim(owns_s={ROLLOUT: waits * rollout_s}, removes_s=waits * rollout_s),
    )


@worth(LIMITS.worth)
def reward_functions(account: StepAccount, facts: Facts) -> Cause | None:
    """Judging the answers is a notable part of the step: each function with its time and CPUs.

    One that waits, for a service or another process, has use for waits at the same time; one that
    computes, for more CPUs: nothing is said where it keeps all busy, or where a model computes on a
    device, which has no phase of its own.

    Wrong where: it computes in processes of its own, whose CPUs are not counted.
    To confirm: `trainperf prove` with a reward that returns a constant.
    """
    slots = [slot for slot in account.loop_s if slot.split(": ")[0] == REWARD]
    claim = of_slots(account, *slots)
    dearest = max(slots, key=account.spent, default=REWARD)
    cpus = _cpus(facts, dearest)
    computes = cpus is not None and cpus >= LIMITS.mostly
    owner, name = facts.summary.owner(dearest), dearest.removeprefix(f"{REWARD}: ")
    free = max(0.0, 1.0 - max(1.0, cpus or 0.0) / (facts.cpus or 1))
    part = account.spent(dearest) / (claim.removes_s or 1.0)
    divides = part * free if computes and facts.cpus else None
    by_model = computes and dearest == REWARD and account.device is not None
    if by_model or (divides is not None and divides < LIMITS.notable):
        return None
    return Cause(
        id="reward_functions",
        title=f"rewards take {share(account.share(claim.removes_s))} of the step",
        evidence=tuple(
            f"{slot.removeprefix(f'{REWARD}: ')}: {duration(account.spent(slot))} per step"
            + ("" if (used := _cpus(facts, slot)) is None else f", on {used:.1f} CPUs")
            for slot in sorted(slots, key=account.spent, reverse=True)[:4]
            if account.share(account.spent(slot)) >= LIMITS.trifle
        ),
        changes=(
            Use(
                change="rewards_in_processes" if computes else "rewards_at_once",
                values={"name": name},
                realises=divides,
            ),
        ),
        claim=claim,
        where="" if owner is None else owner.where,
    )


@worth(LIMITS.worth)
def weight_transfer(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 its seconds
    """Handing the weights to the engine that generates is a notable part of the step.

    Removed is all of it; with half as many transfers half of that is left.

    Wrong where: the engine is asleep until then: waking it up is in it.
    To confirm: a run with fewer transfers (in TRL `steps_per_generation`).
    """
    claim = of_slots(account, WEIGHT_TRANSFER)
    return Cause(
        id="weight_transfer",
        title=f"the transfer of weights takes {share(account.share(claim.removes_s))} of the step",
        evidence=(f"{duration(claim.removes_s)} of {duration(account.step_s)} per step",),
        changes=(Use(change="rarer_transfer"),),
        claim=claim,
    )


def useless_answers(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 a share of answers
    """Many answers teach nothing: all of their group are rewarded alike, or they are cut off.

    It costs no time of a step, but steps: as much is learned with fewer answers.

    Wrong where: the reward is still zero for all answers, as at the beginning of a training.
    To confirm: the reward over the steps with and without these prompts.
    """
    useless = (facts.summary.answers or AnswerFacts()).useless or 0.0
    if useless < LIMITS.notable:
        return None
    return Cause(
        id="useless_answers",
        title=f"nothing is learned from {share(useless)} of the answers",
        evidence=("all answers of their group have the same reward, or they were cut off",),
        changes=(Use(change="skip_useless_prompts"),),
        severity="medium" if useless >= LIMITS.mostly else "low",
    )


def named_phase(account: StepAccount, facts: Facts) -> Cause | None:
    """A phase that the loop has named itself takes most of the step.

    What it may gain nobody knows: it is named with its line, and with the CPUs that it keeps busy.

    Wrong where: it is the work that the training is there for.
    To confirm: phases inside of it.
    """
    named = [n for n in account.loop_s if n in facts.summary.named_phases and n != UPDATE]
    name = max(named, key=account.spent, default="")
    spent_s, cpus = account.spent(name), _cpus(facts, name)
    if account.share(spent_s) < LIMITS.mostly:
        return None
    owner, tokens_per_s = facts.summary.owner(name), facts.summary.generated_tokens_per_s()
    at = "" if owner is None else f"{owner.subject} at {owner.where}; "
    return Cause(
        id="named_phase",
        title=f"{words(name)} takes {share(account.share(spent_s))} of the step",
        evidence=(
            f"{duration(spent_s)} of {duration(account.step_s)} per step",
            *texts_of(
                cpus is not None and f"the process keeps {cpus:.1f} CPUs busy in it",
                name == ROLLOUT and tokens_per_s and f"{count(tokens_per_s)} generated tokens/s",
            ),
        ),
        changes=(
            Use(
                change="faster_rollout" if name == ROLLOUT else "look_into_phase",
                values={"name": words(name), "at": at},
            ),
        ),
        where="" if owner is None else owner.where,
        confidence="medium",
        severity="medium",
    )
