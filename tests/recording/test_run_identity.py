"""Who a run is: software, hardware, model and loader."""

import multiprocessing
from collections.abc import Iterator

import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from lightning.fabric.wrappers import _FabricDataLoader
from torch.utils.data import DataLoader, TensorDataset

import trainperf
from trainperf.core.machine.limits import cpu_count, host_cpus, launched_ranks, memory_bytes
from trainperf.core.steps.codec import decode_info, encode_entry
from trainperf.core.steps.records import RunInfo
from trainperf.recording import run_identity


def loader(**settings: int) -> DataLoader:
    """A loader of four samples."""
    return DataLoader(TensorDataset(torch.zeros(4, 2)), **settings)


def test_versions_a_number_can_depend_on() -> None:
    """Ours, Python's and torch's."""
    found = run_identity.software()

    assert found["trainperf"] == trainperf.__version__
    assert found["torch"] == torch.__version__


def test_the_hardware_is_what_this_process_may_use() -> None:
    """Not what the machine has: a container sees fewer CPUs."""
    found = run_identity.hardware(torch.device("cpu"))

    assert found["cpu_count"] == cpu_count()
    assert found["host_cpus"] == host_cpus()
    assert found["device_memory_bytes"] == memory_bytes()
    assert found["threads"] == torch.get_num_threads()
    assert found["device_name"]


@pytest.mark.parametrize(("launcher", "ranks"), [("4", 4), (None, None), ("", None)])
def test_the_launcher_says_how_many_ranks_are_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, launcher: str | None, ranks: int | None
) -> None:
    """Without it nobody knows."""
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if launcher is not None:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", launcher)

    assert launched_ranks() == ranks


def test_a_model_is_its_class_and_its_size() -> None:
    """Frozen parameters are counted apart."""
    module = torch.nn.Linear(3, 2)
    module.bias.requires_grad_(requires_grad=False)

    assert run_identity.model(module) == {
        "model": "Linear",
        "parameters": 8,
        "trainable_parameters": 6,
    }


@pytest.mark.parametrize(
    "nest",
    [
        lambda source: source,
        lambda source: [source],
        lambda source: {"a": source, "b": None},
        lambda source: ({"a": [source]}, loader(batch_size=1)),
    ],
)
def test_the_first_loader_is_found_however_it_is_nested(nest: object) -> None:
    """Settings that decide how fast it can be."""
    found = run_identity.loader(nest(loader(batch_size=2, num_workers=1, prefetch_factor=5)))

    assert found == {
        "loader": "DataLoader",
        "dataset": "TensorDataset",
        "dataset_samples": 4,
        "dataset_shards": None,
        "batch_size": 2,
        "num_workers": 1,
        "worker_start": multiprocessing.get_start_method(),
        "pin_memory": False,
        "prefetch_factor": 5,
        "persistent_workers": False,
    }


def test_a_stream_is_not_counted() -> None:
    """Its length may be a guess, or take long; torch asks for it only when it ends."""

    class Stream(torch.utils.data.IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(4))

        def __len__(self) -> int:
            raise AssertionError("asked for")

    assert run_identity.loader(torch.utils.data.DataLoader(Stream()))["dataset_samples"] is None


def test_what_is_no_loader_has_a_name() -> None:
    """A generator, a list of batches."""
    assert run_identity.loader([1, 2]) == {"loader": "list", "loader_library": None}
    batches = (batch for batch in ())
    assert run_identity.loader(batches) == {"loader": "generator", "loader_library": None}


@pytest.mark.parametrize(
    ("module", "library"),
    [
        ("webdataset.compat", "WebDataset"),
        ("streaming.base.dataset", "Mosaic StreamingDataset"),
        ("grain._src.python.data_loader", "Grain"),
        ("nvidia.dali.plugin.pytorch", "DALI"),
        ("batchgenerators.dataloading.multi_threaded_augmenter", "batchgenerators"),
        ("tensorflow.python.data.ops.iterator_ops", "tf.data"),
        ("grains", None),
    ],
)
def test_a_library_with_its_own_ways_is_named(module: str, library: str | None) -> None:
    """By the module of what makes the batches; a module that only begins so is another."""
    source = type("Batches", (), {"__module__": module})()
    assert run_identity.loader(source) == {"loader": "Batches", "loader_library": library}


@pytest.mark.parametrize(
    ("module", "attribute", "shards"),
    [
        ("datasets.iterable_dataset", "num_shards", 3),
        ("datasets.formatting.dataset_wrappers.torch_iterable_dataset", "n_shards", 3),
        ("datasets.iterable_dataset", "n", None),
        ("datasets.mine", "num_shards", None),
        ("streaming.base.dataset", "num_shards", None),
        ("__main__", "num_shards", None),
    ],
)
def test_a_stream_of_datasets_tells_how_many_shards_it_has(
    module: str, attribute: str, shards: int | None
) -> None:
    """Files, ranks or a user's own may have the same name; what goes by key has no need of them."""
    own = {"__module__": module, "__iter__": lambda _: iter(range(4))}
    stream = type("Stream", (torch.utils.data.IterableDataset,), own)()
    rows = TensorDataset(torch.arange(4))
    for dataset, known in ((stream, shards), (rows, None)):
        setattr(dataset, attribute, 3)
        assert run_identity.loader(torch.utils.data.DataLoader(dataset))["dataset_shards"] == known


def test_the_batch_size_of_a_loader_that_accelerate_prepared_is_that_of_a_rank() -> None:
    """It hands its loaders a sampler, and torch then knows no batch size."""
    sampler = torch.utils.data.BatchSampler(range(4), 2, drop_last=False)
    shard = BatchSamplerShard(sampler, num_processes=2, process_index=0)
    cut = BatchSamplerShard(sampler, num_processes=2, process_index=0, split_batches=True)

    found = [
        run_identity.loader(loader(batch_sampler=each))["batch_size"]
        for each in (sampler, shard, cut)
    ]
    assert found == [2, 2, None]


def test_the_loader_that_fabric_prepared_is_known() -> None:
    """Its own is no `DataLoader`; without this nobody knows the workers."""
    found = run_identity.loader(_FabricDataLoader(loader(batch_size=2, num_workers=1)))

    assert (found["loader"], found["batch_size"], found["num_workers"]) == ("DataLoader", 2, 1)


def test_identity_survives_the_file() -> None:
    """A loader whose sampler decides has no batch size: `None`, not a word."""
    sampler = [[0, 1], [2, 3]]
    config = run_identity.loader(loader(batch_sampler=sampler))
    info = RunInfo(config=config, hardware=run_identity.hardware(torch.device("cpu")))

    assert decode_info(encode_entry(info)) == info
    assert config["batch_size"] is None
