"""What is planted in a real GRPO of TRL comes back in its phase, and its advice is first."""

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partialmethod
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from support.hugging_face import quiet, trainer
from support.loops import Sleeper
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, Trainer

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary.schema import Summary
from trainperf.core.steps.own_sums import AnswerFacts
from trainperf.huggingface import TrainPerfCallback
from trainperf.huggingface.post_training import METHODS


pytestmark = pytest.mark.filterwarnings("ignore")

PAD, END = "<pad>", "<eos>"
EOS, WORDS, PROMPT = 1, 64, 3
USUAL, LONGEST, ANSWERS = 8, 32, 8
"""Tokens of the answers, and answers of a rollout."""
STEPS = 45


class Policy(GPT2LMHeadModel):
    """Ends each answer after so many tokens, and has a clock of its own while it generates."""

    longest, nap_s, usual_at_s = USUAL, 0.0, 0.0
    waits_s: tuple[float, ...] = ()
    """Of each rollout, since the usual answers were over."""

    def forward(self, *args: Any, **options: Any) -> Any:
        """Logits, with the end where it is planted."""
        out = super().forward(*args, **options)
        if torch.is_grad_enabled() or options.get("past_key_values") is None:
            return out
        time.sleep(self.nap_s)
        done = options["attention_mask"].shape[1] - PROMPT + 1
        out.logits[..., EOS] = -1e4
        out.logits[int(done < self.longest) :, -1, EOS] = 1e4 if done >= USUAL else -1e4
        if done == USUAL:
            self.usual_at_s = time.perf_counter()
        elif done == self.longest:
            self.waits_s += (time.perf_counter() - self.usual_at_s,)
        return out


def tokenizer() -> PreTrainedTokenizerFast:
    """Of words that are numbers; nothing is loaded."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = [PAD, END, *(f"w{place}" for place in range(2, WORDS))]
    split = Tokenizer(models.WordLevel({w: n for n, w in enumerate(words)}, unk_token=PAD))
    split.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=split, pad_token=PAD, eos_token=END, padding_side="left"
    )


class Engine:
    """Stands in for vLLM, with the two calls that TRL makes."""

    def __init__(self, policy: Policy, transfer: Callable[[], None]) -> None:
        self.policy, self.sync_weights = policy, transfer

    def generate(
        self, *, prompts: list[list[int]], profiler: AbstractContextManager[object], **_: object
    ) -> tuple[None, list[list[int]], list[list[list[float]]], None]:
        """Answers of eight tokens, with their log-probabilities."""
        with profiler:
            answers = [[2 + place % 60] * (USUAL - 1) + [EOS] for place, _ in enumerate(prompts)]
        return None, answers, [[[-1.0]] * USUAL for _ in answers], None


def trained(
    path: Path,
    *,
    reward_ms: float = 0.0,
    transfer_ms: float = 0.0,
    token_ms: float = 0.0,
    longest: int = USUAL,
) -> tuple[Summary, Sleeper, Policy]:
    """A run of GRPO with planted costs."""
    pytest.importorskip("trl", reason="TRL is not installed: its trainers cannot be run")
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    torch.manual_seed(0)
    sleeper = Sleeper()
    policy = Policy(
        GPT2Config(vocab_size=WORDS, n_positions=64, n_embd=32, n_layer=2, n_head=2, eos_token_id=1)
    )
    policy.longest, policy.nap_s = longest, token_ms / 1e3

    def distinct(completions: list[str], **_: object) -> list[float]:
        sleeper.sleep("reward", reward_ms)
        return [float(len(set(answer.split()))) for answer in completions]

    callback = TrainPerfCallback(report=False, machine=False)
    trainer = GRPOTrainer(
        model=policy,
        args=GRPOConfig(
            output_dir=str(path),
            per_device_train_batch_size=ANSWERS,
            num_generations=4,
            max_completion_length=LONGEST,
            max_steps=STEPS,
            use_cpu=True,
            bf16=False,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            gradient_checkpointing=False,
        ),
        train_dataset=Dataset.from_dict({"prompt": [f"w{2 + n % 60} w5 w3" for n in range(64)]}),
        processing_class=tokenizer(),
        reward_funcs=[distinct],
        callbacks=[callback],
    )
    if transfer_ms:
        trainer.use_vllm, trainer._last_loaded_step = True, -1
        trainer.vllm_generation = Engine(policy, lambda: sleeper.sleep("transfer", transfer_ms))
    trainer.train()

    return summarize(Run.open(callback.run)), sleeper, policy


def steady(summary: Summary, seconds: Sequence[float]) -> float:
    """The mean in steady steps, which are the last ones."""
    return fmean(seconds[-summary.run.steady_steps :])


def first(summary: Summary) -> str:
    """Id of the finding that ranks first."""
    return summary.findings[0].id


@pytest.mark.slow
def test_a_slow_reward_comes_back(tmp_path: Path) -> None:
    """By its name; it waits, so more of it should wait at once."""
    summary, sleeper, _ = trained(tmp_path, reward_ms=50)

    slept_s = steady(summary, sleeper.naps["reward"])
    assert summary.phases_s()["reward: distinct"] == pytest.approx(slept_s, rel=0.02)
    assert (summary.named_phases["reward: distinct"].cpus or 0.0) < 0.1
    assert sum(summary.phases_s().values()) == pytest.approx(summary.value("step_mean_s"))
    assert first(summary) == "reward_functions"
    assert "async def" in summary.findings[0].action


@pytest.mark.slow
def test_one_long_answer_comes_back(tmp_path: Path) -> None:
    """Calls of the model after the usual answers were over, by the model's own clock."""
    summary, _, policy = trained(tmp_path / "long", token_ms=8, longest=LONGEST)
    capped, _, _ = trained(tmp_path / "capped", token_ms=8)

    longest = summary.findings[0]
    assert first(summary) == "longest_answer"
    assert longest.title == "75 % of the rollout waits for the longest answer"
    lost_s = longest.fraction * summary.value("step_mean_s")
    assert lost_s == pytest.approx(steady(summary, policy.waits_s), rel=0.02)
    assert summary.answers.tokens == (ANSWERS - 1) * USUAL + LONGEST
    assert "longest_answer" not in {finding.id for finding in capped.findings}


@pytest.mark.slow
def test_a_slow_transfer_of_weights_comes_back(tmp_path: Path) -> None:
    """Through the calls that TRL makes to vLLM; answers are then weighed by log-probabilities."""
    summary, sleeper, _ = trained(tmp_path, transfer_ms=40)

    slept_s = steady(summary, sleeper.naps["transfer"])
    assert summary.phases_s()["weight_transfer"] == pytest.approx(slept_s, rel=0.02)
    assert summary.phases_s()["log_probabilities"] > 0
    assert first(summary) == "weight_transfer"


def nameless(method: Callable[..., object]) -> Callable[..., object]:
    """A decorator that does not keep the name."""
    return partialmethod(method)


class Generating(Trainer):
    """Has the methods and rewards of TRL's trainers, each with a nap."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.sleeper = Sleeper()

        async def of_a_service(*_: object) -> None:
            """Of these nobody knows how long each takes."""

        self.reward_funcs: list[Any] = [self.judge, of_a_service, torch.nn.Identity()]

    @nameless
    def _generate(self) -> tuple[None, list[list[int]]]:
        self.sleeper.sleep("rollout", 6)
        self._tool_call_loop()
        return None, [[1] * 4, [1] * 10, [1] * 4]

    def _tool_call_loop(self) -> None:
        self.sleeper.sleep("environment", 5)

    def judge(self) -> None:
        """The first reward."""
        self.sleeper.sleep("reward: judge", 4)

    def _get_per_token_logps_and_entropies(self) -> None:
        self.sleeper.sleep("log_probabilities" if not torch.is_grad_enabled() else "other", 3)

    def training_step(self, *args: Any, **options: Any) -> torch.Tensor:
        """As in GRPO, and answers are weighed with gradients as well."""
        self._generate()
        self.reward_funcs[0]()
        with torch.no_grad():
            self._get_per_token_logps_and_entropies()
        self._get_per_token_logps_and_entropies()
        return super().training_step(*args, **options)


def test_methods_and_rewards_have_phases_while_the_fit_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nested ones pause those around them; afterwards each object is as it was."""
    monkeypatch.setitem(sys.modules, "trl", sys.modules[__name__])
    monkeypatch.setattr(Generating, "__module__", "trl.trainer")
    callback = quiet()
    training = trainer(tmp_path, callback, kind=Generating, max_steps=60)
    rewards = [*training.reward_funcs]
    training.train()

    found = summarize(Run.open(callback.run))
    naps, steps = training.sleeper.naps, found.run.steps
    assert len(naps.pop("other")) == steps
    spent_s = {name: found.phases_s()[name] for name in naps}
    assert spent_s == pytest.approx({n: sum(each) / steps for n, each in naps.items()}, rel=0.1)
    assert found.answers == AnswerFacts(tokens=18, number=3, longest=10, usual=4)
    assert not METHODS.keys() & vars(training).keys()
    assert training.reward_funcs == rewards
    with callback.phase("mine"):
        pass
