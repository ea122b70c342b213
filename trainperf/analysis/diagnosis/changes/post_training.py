"""Changes of a post-training: generating answers, judging them, handing weights to an engine."""

from trainperf.analysis.diagnosis.changes.change import HF, Change


CHANGES: tuple[Change, ...] = (
    Change(
        id="no_straggling_answer",
        of=("longest_answer", "padding"),
        advice="Let no answer be much longer than the others",
        how="cap the length of an answer, or give the place of one that is done to another prompt "
        "(continuous batching), or train on one rollout while the next one is generated",
        how_in={
            HF: "a lower max_completion_length; or use_vllm=True or "
            "use_transformers_continuous_batching=True, with more prompts than fit at once"
        },
        realises=None,
        source="where the cap is, or how many prompts wait for a place, is not known",
        confirm="trainperf report: the longest answer is nearer to the median, the rollout shorter",
        costs="an answer that is cut off teaches nothing, or something else",
    ),
    Change(
        id="rewards_at_once",
        of=("reward_functions",),
        advice="Wait for all rewards at once",
        how="start what {name} waits for, a service or a process, for all answers together: "
        "asyncio.gather, or a pool of threads",
        how_in={
            HF: "write {name} as async def, awaiting all answers together (asyncio.gather): TRL "
            "then runs all such functions at the same time"
        },
        effort="hours",
        realises=None,
        source="how many waits there are in a call is not known",
        confirm="trainperf report: its phase is shorter",
    ),
    Change(
        id="rewards_in_processes",
        of=("reward_functions",),
        advice="Judge answers in several processes",
        how="share the answers of a call of {name} among the processes of a "
        "concurrent.futures.ProcessPoolExecutor that is made once",
        effort="hours",
        realises=None,
        source="what CPUs of a rank that are not busy would divide of the dearest function, where "
        "these are known and the answers are several",
        confirm="trainperf report: its phase is shorter, on more CPUs",
    ),
    Change(
        id="rarer_transfer",
        of=("weight_transfer",),
        advice="Transfer the weights more rarely, or faster",
        how="generate for several updates at once, keep the engine on the same device, or transfer "
        "only what has changed (adapters)",
        how_in={
            HF: "a larger steps_per_generation, or num_iterations=2: both mean fewer transfers "
            'per update; vllm_mode="colocate"; LoRA without merging'
        },
        realises=0.5,
        source="one transfer for two updates leaves a half",
        confirm="trainperf report: weight transfer is shorter",
        costs="answers of an older policy: watch the reward",
    ),
    Change(
        id="skip_useless_prompts",
        of=("useless_answers",),
        advice="Leave out prompts from which nothing is learned",
        how="drop prompts whose answers were all right or all wrong in the epoch before; more "
        "answers for each prompt, or a finer reward, tell answers apart",
        effort="hours",
        realises=None,
        source="which prompts will be useless is not known beforehand",
        confirm="trainperf report: fewer useless answers",
    ),
    Change(
        id="faster_rollout",
        of=("named_phase",),
        advice="Generate faster",
        how="a larger batch for each call, a cache of keys and values, an engine for inference "
        "(vLLM, SGLang)",
        how_in={
            HF: "use_vllm=True, or use_transformers_continuous_batching=True; a larger generation "
            "batch (generation_batch_size) takes hardly longer for each token"
        },
        effort="hours",
        realises=None,
        source="not measured",
        confirm="trainperf report: more generated tokens/s",
    ),
    Change(
        id="look_into_phase",
        of=("named_phase",),
        advice="Look into {name} first",
        how="{at}bracket its parts with monitor.phase(NAME), and the report divides it",
        effort="hours",
        realises=None,
        source="what runs there is the loop's own",
        confirm="trainperf report: its phase is shorter",
    ),
)
