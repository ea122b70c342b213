"""What others published about overlap, each read at its address.

None of it is ours, and none can be compared with ours number by number.
"""

from recipes.cases.case import PublishedFigure


_ROBERTA = (
    "https://discuss.pytorch.org/t/"
    "performance-collapse-under-high-concurrency-cpu-inference-thread-oversubscription/224189"
)
_NANOGPT = "https://github.com/karpathy/build-nanogpt/issues/6"

TWO_THREADS = PublishedFigure(
    figure="RoBERTa on 16 virtual processors answers about 40 requests/s for one user, and up to "
    "80 for six with `torch.set_num_threads(2)`",
    source=_ROBERTA,
    differs="theirs are whole requests of a server; ours is a chain of products on two cores",
)
FULL_CORES = PublishedFigure(
    figure="the same server drops from about 40 requests/s of one user to about 3 of six, where "
    "the threads of an operator are left at one for each processor",
    source=_ROBERTA,
    differs="theirs has six threads for sixteen processors; ours two for two, and OpenMP waits "
    "passively",
)
COPIES = PublishedFigure(
    figure="29 batches in the first second instead of 20, of a copy of 15 ms and a step of 30 ms",
    source="https://www.jpatrickpark.com/post/prefetcher/",
    differs="an illustration from given times, which names no machine",
)
PAGEABLE_COPIES = PublishedFigure(
    figure="building an index is 1.03× to 1.21× as fast with pageable copies issued one batch "
    "ahead, on an L40S",
    source="https://github.com/NVIDIA/cuvs/pull/230",
    differs="theirs hides the driver's own copying behind kernels that were launched before; ours "
    "copies before it launches",
)
COMPILED = PublishedFigure(
    figure="Inductor on one core of a CPU, geometric mean over eager: 1.29× TorchBench, 1.15× "
    "Hugging Face, 1.37× TIMM",
    source="https://dev-discuss.pytorch.org/t/torchinductor-update-5-cpu-backend-backend-"
    "performance-update-and-deep-dive-on-key-optimizations/1117",
    differs="theirs are whole models; ours is a chain of elementwise operators and nothing else",
)
MLPERF = PublishedFigure(
    figure="MLPerf training v1.0: Mask R-CNN on 272 GPUs trains 1.70× as fast with CUDA graphs, "
    "BERT on 4096 GPUs 1.12×",
    source="https://github.com/pytorch/pytorch.github.io/blob/master/_posts/"
    "2021-10-26-accelerating-pytorch-with-cuda-graphs.md",
    differs="whole trainings on many GPUs with one image or few sequences on each; here a chain of "
    "elementwise kernels on one",
)
REDUCE_OVERHEAD = PublishedFigure(
    figure="PyTorch's own benchmarks, as one of its developers reads them: `reduce-overhead` adds "
    "70 % to 100 % to the speed of plain compilation",
    source=_NANOGPT,
    differs="theirs is a mean over models, on top of compilation; ours is from eager, of a chain",
)
LARGE_KERNELS = PublishedFigure(
    figure="GPT-2 with a batch of 16 on an RTX 4090: 130,000 tokens/s compiled, 127,000 with "
    "`reduce-overhead`",
    source=_NANOGPT,
    differs="theirs is a whole training step; ours is one matrix product, captured by hand",
)
