"""Figures that others published for the same claims, each read at its address.

None of them is ours, and none can be compared with ours number by number: the sources' machines are
GPUs, and their figures are mostly of whole training runs.
"""

from recipes.cases.case import PublishedFigure


_RASCHKA = (
    "https://github.com/rasbt/LLMs-from-scratch/blob/06361583d01a650412400ce01cf2be9efaec3b99/"
    "ch05/10_llm-training-speed/README.md"
)
_WHOLE = "theirs is the training of a whole GPT-2 on an A100"


def _raschka(change: str, before: str, after: str, differs: str) -> PublishedFigure:
    return PublishedFigure(
        figure=f"{change}: from {before} to {after} tokens/s on an A100",
        source=_RASCHKA,
        differs=f"{_WHOLE}; {differs}",
    )


FUSED_CHAIN = _raschka(
    "LayerNorm and GELU written out replaced by PyTorch's own",
    "45,486",
    "55,256",
    "ours is the GELU alone",
)
FUSING_HURTS = PublishedFigure(
    figure="a compiled quantisation has 0.73× the speed at 128 × 128, 2.74× at 4096 × 4096",
    source="https://github.com/vllm-project/compressed-tensors/pull/623",
    differs="theirs is a division, an addition, a clamp and a rounding on a GPU",
)
SMALL_KERNELS = _raschka(
    "AdamW with fused=True", "27,648", "28,399", "ours is the update alone, of small tensors"
)
PADDED_MATMUL = _raschka(
    "vocabulary of 50,304 instead of 50,257",
    "112,046",
    "127,345",
    "it runs in bf16 on tensor cores, and compiled",
)
CHANNELS_LAST = PublishedFigure(
    figure="22 % faster training of ResNet50 with mixed precision on a V100",
    source="https://docs.fast.ai/callback.channelslast.html",
    differs="theirs is on tensor cores, which want the channels last; the page cites PyTorch's",
)
IM2COL = PublishedFigure(
    figure="their algorithm is 3.6× as fast as im2col with a product, and 5.3× as fast as direct "
    "convolution",
    source="https://ar5iv.labs.arxiv.org/html/2306.14320",
    differs="theirs are loops in C++ with vector instructions; our direct one is the library's",
)
BATCH_SIZE = _raschka(
    "the largest batch that is a power of two and fits",
    "127,345",
    "142,156",
    "ours is a small perceptron",
)
ITEM_EVERY_STEP = PublishedFigure(
    figure="one loss.item() less per step: 5–7 % faster on one GPU, about 10 % on two",
    source="https://github.com/openvdb/fvdb-reality-capture/pull/144",
    differs="a GPU has a queue that the read drains; a CPU has none",
)
METRICS = PublishedFigure(
    figure="metrics made optional in a Transformer: from 16.8k to 19k examples/s on one GPU",
    source="https://github.com/tensorflow/models/pull/7075",
    differs="theirs is TensorFlow, and computes no metric at all afterwards",
)
CHECKPOINTING = PublishedFigure(
    figure="training with checkpointing is ~20 % slower at the same batch size",
    source="https://huggingface.co/docs/transformers/en/grad_checkpointing",
    differs="theirs is the cost alone; ours includes what the larger batch brings",
)
DATA_PARALLEL = PublishedFigure(
    figure="DataParallel on four GPUs was slower than one GPU; one process per GPU gave 5.5–6× "
    "with eight",
    source="https://github.com/pytorch/fairseq/issues/34",
    differs="theirs are GPUs; ours are the same two schemes, threads and processes, on CPU cores",
)
PINNED = _raschka("pin_memory=True", "28,399", "28,402", "ours is the copy alone")
FRAGMENTATION = PublishedFigure(
    figure="expandable_segments:True lowers reserved memory from 126.97 GB to 96.61 GB, with "
    "60.9 GB allocated",
    source="https://github.com/nvidia-cosmos/cosmos-rl/pull/388",
    differs="theirs is the training of a model with 7 billion parameters",
)
LIBRARY_SORT = PublishedFigure(
    figure="of seven sorts written in CUDA, three of them bitonic, radix and merge sort are the "
    "fastest, whatever the input",
    source="https://github.com/darkobozidar/cpu-vs-gpu-sorting",
    differs="theirs are kernels on a GPU and none is a library's; ours is a network of tensor "
    "operators on a CPU",
)
EMPTY_CACHE = PublishedFigure(
    figure="250 steps of a fine-tuning take 65 s with empty_cache() in each step, 50 s with it in "
    "every tenth, 45 s without; the memory reserved is 19.3 GB, 19.3 GB and 23.5 GB",
    source="https://github.com/huggingface/peft/pull/2894",
    differs="theirs are batches of unlike lengths, of which more memory stays reserved without it",
)
OCCUPANCY = PublishedFigure(
    figure="a kernel with few warps reaches the speed of a full multiprocessor, where its "
    "instructions do not depend on each other",
    source="https://www.anaconda.com/blog/developer-blog/"
    "cuda-performance-maximizing-instruction-level-parallelism/",
    differs="no figure of theirs is quoted; theirs was an older GPU",
)
