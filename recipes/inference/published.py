"""What others published about inference, each read at its address.

None of it is ours, and none can be compared with ours number by number.
"""

from recipes.cases.case import PublishedFigure


CLOCK = PublishedFigure(
    figure="a clock around an operator of a GPU times its launch, unless the device is waited for",
    source="https://www.speechmatics.com/company/articles-and-news/timing-operations-in-pytorch",
    differs="theirs is a GPU; a CPU has no launch that returns early",
)
INFERENCE_MODE = PublishedFigure(
    figure="of the three modes gradients on is the slowest, then `no_grad`, then `inference_mode`",
    source="https://github.com/pytorch/rfcs/blob/25378036a5f9a6cc760fd1dbd2ef4831ee2052b2/"
    "RFC-0011-InferenceMode.md",
    differs="an order without figures, of PyTorch's developers",
)
AUTOCAST = PublishedFigure(
    figure="DLRM, ResNet-50 and ResNext-101 are 1.4× to 1.6× as fast in bf16 as in fp32, on a "
    "3rd-generation Xeon",
    source="https://pytorch.org/blog/"
    "empowering-pytorch-on-intel-xeon-scalable-processors-with-bfloat16/",
    differs="theirs are larger models, on another processor",
)
COMPILED = PublishedFigure(
    figure="Before Intel worked on it, Inductor on a CPU was slower than eager for 45 % of the "
    "models of TorchBench, 100 % of Hugging Face's and 75 % of TIMM's.",
    source="https://www.intel.com/content/www/us/en/developer/articles/technical/"
    "accelerated-cpu-inference-with-pytorch-inductor.html",
    differs="that was the first version; products go to the same library today, and the model "
    "here is one small transformer",
)
QUANTISED = PublishedFigure(
    figure="BERT on MRPC takes 160 s in fp32 and 90 s with int8 layers on one thread, 85 s and "
    "46 s on four.",
    source="https://pytorch.org/tutorials/intermediate/dynamic_quantization_bert_tutorial.html",
    differs="a MacBook Pro, and a model of some twenty times the weights",
)
HIDDEN_WAITS = PublishedFigure(
    figure="one `.cpu()` less per token of a language model: from 46–50 to 57–64 tokens/s",
    source="https://github.com/rasbt/reasoning-from-scratch/issues/177",
    differs="theirs is a language model that samples on a GPU, a small step per token",
)
BATCHING = PublishedFigure(
    figure="an Inception model behind Triton answers 73.4 requests/s at four requests at once, "
    "and 272 at eight with its dynamic batcher",
    source="https://github.com/triton-inference-server/server/blob/main/docs/user_guide/"
    "optimization.md",
    differs="theirs is a server on a GPU, with more requests at once where it gathers them",
)
EVAL_FORGOTTEN = PublishedFigure(
    figure="without `model.eval()` dropout and batch normalisation make the answers inconsistent",
    source="https://docs.pytorch.org/tutorials/beginner/basics/saveloadrun_tutorial.html",
    differs="about the answers alone, and without figures",
)
DROPOUT_LEFT_ON = PublishedFigure(
    figure="nanoGPT's attention dropped out in evaluation as well, until somebody mended it",
    source="https://github.com/karpathy/nanoGPT/pull/240",
    differs="a fault that was found, without figures of its cost",
)
GRADIENTS_LEFT_ON = PublishedFigure(
    figure="for most operators gradients cost memory, and no time: what backward needs is computed "
    "in forward anyway",
    source="https://github.com/pytorch/pytorch/issues/13658",
    differs="an answer of one of PyTorch's developers, without figures",
)
