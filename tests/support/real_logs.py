"""Logs of planted trainings, written by the frameworks' own code: fixtures of the importers.

    PYTHONPATH=.:tests python -m support.real_logs FRAMEWORK --packages DIR [--source FILE]

*DIR* is a folder that `pip install --target DIR --no-deps` filled.  A *FILE* is the framework's
module with the functions that log, where its package does not have it or cannot be imported whole:
these functions are then compiled from it alone.  What is planted stands in the function of each
framework; `tests/importers/real/README.md` says which versions wrote what.
"""

import argparse
import ast
import contextlib
import functools
import gzip
import logging
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch


OUT = Path(__file__).parents[1] / "importers" / "real"

Space = SimpleNamespace


class Arguments(SimpleNamespace):
    """Of a command line: what was not given is off."""

    def __getattr__(self, _: str) -> None:
        return None


def pass_ms(ms: float, *_: object, **__: object) -> None:
    """Let so much time pass, as exactly as the system allows."""
    _at_once()
    until = time.perf_counter() + ms / 1e3
    time.sleep(max(0.0, ms / 1e3 - 0.0003))
    while time.perf_counter() < until:
        pass


@functools.cache
def _at_once() -> None:
    """Nobody else's work delays this process from here on, where it may ask for that."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))


def passing(ms: float) -> Callable[..., None]:
    """A function that takes so long, whatever it is given."""
    return lambda *_, **__: pass_ms(ms)


def functions_of(source: Path, names: set[str], given: dict[str, Any]) -> dict[str, Any]:
    """The functions of these *names* in a module or its classes, compiled without decorators."""
    tree = ast.parse(source.read_text())
    chosen = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in names
    ]
    for node in chosen:
        node.decorator_list = []
        node.returns = None
        for argument in (*node.args.args, *node.args.kwonlyargs):
            argument.annotation = None
    name = f"{source.parent.name}/{source.name}"
    exec(compile(ast.Module(chosen, []), name, "exec"), given)  # noqa: S102 the framework's
    return {name: given[name] for name in names}


def torchtitan(source: Path, out: Path) -> None:
    """Two ranks, 30 steps: fetch 20 ms, pass 30, update 10; eval of 150 at 20."""
    for rank in (0, 1):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "support.real_logs", f"torchtitan-rank{rank}"]
            subprocess.run([*command, *sys.argv[2:], "--out", folder], check=True)
            (log,) = (Path(folder) / "structured_logs").iterdir()
            packed = gzip.compress(log.read_bytes(), mtime=0)
            (out / f"torchtitan-rank{rank}.jsonl.gz").write_bytes(packed)


def titan_rank(rank: int, source: Path, out: Path) -> None:
    """One rank, by `Trainer.train` and `Trainer.train_step`."""
    from torchtitan.observability import structured_logger as sl

    sl.init_structured_logger(source="training", output_dir=str(out), rank=rank)
    sl.log_trace_instant("structured_logger_started")
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    given = {
        "sl": sl,
        "torch": torch,
        "math": math,
        "time": Space(sleep=passing(0)),
        "timedelta": timedelta,
        "logger": Space(info=passing(0), warning=passing(0)),
        "dist_utils": Space(
            clip_grad_norm_=lambda *_, **__: torch.ones(()), set_pg_timeouts=passing(0)
        ),
        "IGNORE_INDEX": -100,
        "DataloaderExhaustedError": StopIteration,
    }
    run = functions_of(source, {"train", "train_step"}, given)

    def batches(_: object) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        labels = torch.zeros(2, 1024, dtype=torch.int64)
        labels[:, 768:] = -100
        while True:
            pass_ms(20)
            yield {"input": labels}, labels

    @sl.log_trace_span("post_dataloading_process")
    def post_dataloading_process() -> None:
        pass_ms(1)

    @sl.log_trace_span("fwd_bwd")
    def forward_backward_step(**_: object) -> torch.Tensor:
        post_dataloading_process()
        pass_ms(29)
        return torch.tensor(2.5)

    @contextlib.contextmanager
    def profiler(**_: object) -> Iterator[Space]:
        yield Space(step=passing(0))

    @sl.log_trace_span("eval")
    def validate(*_: object) -> None:
        sl.add_step_tag("eval")
        pass_ms(150)

    trainer = Space(
        step=0,
        config=Space(
            training=Space(steps=30, max_norm=1.0, disable_cuda_graphs=True),
            checkpoint=Space(load_step=-1),
            dump_folder=str(out),
            profiler=Space(build=profiler),
            validator=Space(enable=True),
            comm=Space(train_timeout_seconds=100),
        ),
        checkpointer=Space(load=passing(100), save=passing(0), maybe_wait_for_staging=passing(0)),
        validator=Space(should_validate=lambda step: step == 20, validate=validate),
        gc_handler=Space(run=passing(0)),
        batch_generator=batches,
        dataloader=None,
        optimizers=Space(zero_grad=passing(0), step=passing(10)),
        lr_schedulers=Space(get_metrics=lambda: {"lr": 1e-3}, step=passing(0)),
        metrics_processor=Space(should_log=lambda step: step % 10 == 0, log=passing(0)),
        parallel_dims=Space(
            dp_enabled=False,
            pp_enabled=False,
            dp_cp_enabled=False,
            ep_enabled=False,
            get_optional_mesh=passing(0),
        ),
        model_parts=[],
        gradient_accumulation_steps=1,
        num_pipeline_parallel_microbatches=1,
        ntokens_seen=0,
        device="cpu",
        forward_backward_step=forward_backward_step,
        should_continue_training=lambda: trainer.step < 30,
    )
    trainer.train_step = lambda batch: run["train_step"](trainer, batch)
    run["train"](trainer)


def megatron(source: Path, out: Path) -> None:
    """60 iterations, `--log-interval 5`: batch 6 ms, forward 20 with it, backward 24, update 10.

    5 ms more are in no timer; an evaluation of 200 ms after 30, a checkpoint of 100 ms after 40.
    """
    from megatron.core.timers import Timers

    if not torch.cuda.is_available():  # Megatron has no other device
        torch.cuda.synchronize = passing(0)  # type: ignore[assignment]
        torch.cuda.current_device = lambda: "cpu"  # type: ignore[assignment,return-value]
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    on_cpu = Space(**{name: getattr(torch, name) for name in ("float", "distributed")})
    on_cpu.tensor = lambda values, dtype, device: torch.tensor(values, dtype=dtype)
    timers = Timers(2, "minmax")
    args = Arguments(
        train_iters=60, log_interval=5, timing_log_level=2, micro_batch_size=2, seq_length=1024,
        data_parallel_size=1, gtp_weight_remat_size=1, world_size=1, consumed_train_samples=0,
        skipped_train_samples=0, profile_ranks=[],
    )  # fmt: skip
    with (out / "megatron.log").open("w", encoding="utf-8") as file:
        given = {
            "torch": on_cpu,
            "datetime": datetime,
            "has_rl_utils": False,
            "get_telemetry": passing(0),
            "get_args": lambda: args,
            "get_timers": lambda: timers,
            **dict.fromkeys(
                (
                    "get_tensorboard_writer",
                    "get_wandb_writer",
                    "get_one_logger",
                    "get_energy_monitor",
                ),
                passing(0),
            ),
            "get_num_microbatches": lambda: 4,
            "one_logger_utils": Space(track_app_tag=passing(0), track_e2e_metrics=passing(0)),
            "reduce_max_stat_across_model_parallel_group": lambda rate, group: rate,
            "num_floating_point_operations": lambda *_, **__: 0.0,
            "print_rank_last": lambda text: print(text, file=file),
        }
        log = functions_of(source, {"training_log"}, given)["training_log"]
        print("------------------------ arguments ------------------------", file=file)
        for name in ("micro_batch_size", "seq_length", "world_size"):
            dots = "." * (48 - len(name))
            print(f"  {name} {dots} {getattr(args, name)}", file=file)
        # As `megatron.training` has it.
        logging.basicConfig(handlers=[logging.StreamHandler(file)], level=logging.INFO)
        with contextlib.redirect_stdout(file):
            _iterations(args, timers, log)
        logging.getLogger().handlers.clear()


def _iterations(args: Space, timers: Any, log: Callable[..., Any]) -> None:
    totals: dict[str, Any] = {}
    timers("interval-time", log_level=0).start(barrier=True)
    for iteration in range(1, args.train_iters + 1):
        timers("forward-backward", log_level=1).start()
        for _ in range(2):
            timers("forward-compute", log_level=2).start()
            timers("batch-generator", log_level=2).start()
            pass_ms(3)
            timers("batch-generator").stop()
            pass_ms(7)
            timers("forward-compute").stop()
            timers("backward-compute", log_level=2).start()
            pass_ms(12)
            timers("backward-compute").stop()
        timers("forward-backward").stop()
        timers("optimizer", log_level=1).start()
        pass_ms(10)
        timers("optimizer").stop()
        pass_ms(5)
        args.consumed_train_samples += 8
        loss = {"lm loss": torch.tensor([3 - iteration / 100])}
        first = iteration == 1
        log(loss, totals, 1e-4, iteration, 1.0, False, 0, 1.5, None, None, None,
            is_first_iteration=first)  # fmt: skip
        for name, at, ms in (("evaluate", 30, 200), ("save-checkpoint", 40, 100)):
            if iteration == at:
                timers("interval-time").stop()
                timers(name, log_level=0).start(barrier=True)
                pass_ms(ms)
                timers(name).stop(barrier=True)
                timers.log([name])
                timers("interval-time").start(barrier=True)


def huggingface(source: Path, out: Path) -> None:
    """40 steps of two batches: forward 10 ms each, batch 5; five batches evaluated at 20 and 40."""
    from transformers import Trainer, TrainingArguments

    class Slow(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(8, 8)
            self.main_input_name = "input_ids"

        def forward(self, input_ids: torch.Tensor, **_: torch.Tensor) -> dict[str, torch.Tensor]:
            pass_ms(10)
            return {"loss": self.inner(input_ids.float()).square().mean()}

    class Rows(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
        def __init__(self, number: int) -> None:
            self.number = number

        def __len__(self) -> int:
            return self.number

        def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
            if place % 4 == 0:
                pass_ms(5)
            return {"input_ids": torch.ones(8, dtype=torch.int64)}

    for name, counted in (("", "no"), ("-tokens", "all")):
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                folder, per_device_train_batch_size=4, gradient_accumulation_steps=2, max_steps=40,
                logging_steps=2, eval_strategy="steps", eval_steps=20, save_strategy="no",
                per_device_eval_batch_size=4, include_num_input_tokens_seen=counted,
                report_to=[], disable_tqdm=True, use_cpu=True,
            )  # fmt: skip
            trainer = Trainer(Slow(), arguments, train_dataset=Rows(320), eval_dataset=Rows(20))
            trainer.train()
            trainer.save_state()
            state = Path(folder) / "trainer_state.json"
            (out / f"trainer_state{name}.json").write_bytes(state.read_bytes())


def deepspeed(source: Path, out: Path) -> None:
    """40 updates of two batches: forward 10 ms each, backward 15, update 8; 5 ms outside."""
    os.environ.update(DS_ACCELERATOR="cpu", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29571")
    import deepspeed as framework

    # It would compile an all-reduce for CPUs.
    sys.modules["deepspeed.comm.torch"].build_shm_op = passing(0)  # type: ignore[attr-defined]

    class Backward(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, values: torch.Tensor) -> torch.Tensor:
            pass_ms(10)
            return values.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            pass_ms(15)
            return gradient

    class Slow(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(8, 8)

        def forward(self, values: torch.Tensor) -> torch.Tensor:
            return Backward.apply(self.inner(values)).square().mean()  # type: ignore[no-any-return,no-untyped-call]

    class Sgd(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            pass_ms(8)
            return super().step(closure)

    model = Slow()
    config = {
        "train_batch_size": 8, "gradient_accumulation_steps": 2, "steps_per_print": 10,
        "wall_clock_breakdown": True, "zero_allow_untested_optimizer": True,
    }  # fmt: skip
    os.chdir(tempfile.gettempdir())
    engine, *_ = framework.initialize(
        model=model, optimizer=Sgd(model.parameters(), lr=0.01), config=config,
        dist_init_required=True,
    )  # fmt: skip
    sys.stdout.flush()
    with (out / "deepspeed.log").open("w") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())  # its logger writes there
    for _ in range(80):
        pass_ms(2.5)
        loss = engine(torch.ones(4, 8))
        engine.backward(loss)
        engine.step()


FRAMEWORKS: dict[str, Callable[[Path, Path], None]] = {
    "torchtitan": torchtitan,
    "torchtitan-rank0": lambda source, out: titan_rank(0, source, out),
    "torchtitan-rank1": lambda source, out: titan_rank(1, source, out),
    "megatron": megatron,
    "huggingface": huggingface,
    "deepspeed": deepspeed,
}


def main() -> None:
    """Write the logs of one framework."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("framework", choices=FRAMEWORKS)
    parser.add_argument("--packages", type=Path, help="where pip has installed the framework")
    parser.add_argument("--source", type=Path, default=Path(), help="its module that logs")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    if given.packages is not None:
        sys.path.insert(0, str(given.packages))
    given.out.mkdir(parents=True, exist_ok=True)
    FRAMEWORKS[given.framework](given.source, given.out)


if __name__ == "__main__":
    main()
