"""Changes of operators: attention, updates, launches, chains, copies, precision."""

from trainperf.analysis.diagnosis.changes.change import HF, LIGHTNING, TWINS, Change


_AUDIT = "trainperf compare BEFORE AFTER; the next audit has fewer of these operators"

CHANGES: tuple[Change, ...] = (
    Change(
        id="fused_attention",
        of=("attention",),
        advice="Use fused attention",
        how="torch.nn.functional.scaled_dot_product_attention(q, k, v), with is_causal=True for a "
        'causal mask; in transformers attn_implementation="sdpa"',
        realises=0.9,
        source=TWINS,
        trials=("attention_sdpa", "attention_cudnn"),
        confirm="the next audit has no softmax between two bmm",
    ),
    Change(
        id="no_dropout_in_attention",
        of=("attention",),
        advice="Attend without dropout",
        how="on a CPU scaled_dot_product_attention is not fused with dropout: dropout_p=0.0, in "
        "transformers attn_pdrop=0.0 or attention_probs_dropout_prob=0.0, if the model learns as "
        "well without",
        effort="hours",
        realises=0.7,
        source=TWINS,
        costs="less regularisation: another loss",
        confirm="the next audit has no softmax between two bmm",
        option=True,
    ),
    Change(
        id="fusible_attention",
        of=("attention",),
        advice="Have attention fused",
        how="scaled_dot_product_attention runs unfused here, mostly for its mask, its dtype or the "
        "size of a head; under torch.nn.attention.sdpa_kernel(SDPBackend.FLASH_ATTENTION) it says "
        "why",
        effort="hours",
        realises=0.7,
        source=TWINS,
        confirm="the next audit has no softmax between two bmm",
    ),
    Change(
        id="keep_outputs",
        of=("compute_once",),
        advice="Compute {name} once",
        how="run it over the dataset once, before training, and keep what it gives for each sample "
        "(torch.save, an array on disk): the dataset then returns that instead of its input",
        effort="hours",
        realises=0.9,
        source="the law of the step, less what it takes to read what was kept",
        confirm="trainperf compare BEFORE AFTER in samples per second, and the same loss",
        costs="disk or memory for the outputs of all samples",
    ),
    Change(
        id="logits_of_targets",
        of=("ignored_targets",),
        advice="Compute logits only where there is a target",
        how="before the head pick the positions whose label counts: hidden[labels != -100], with "
        "their labels for the loss; in transformers logits_to_keep, where they come last",
        effort="hours",
        realises=0.9,
        source="the law of the step, less what it takes to pick the positions",
        confirm="trainperf compare BEFORE AFTER, with the same loss; peak memory falls as well",
    ),
    Change(
        id="keep_result",
        of=("computed_again",),
        advice="Compute {name} once in a forward",
        how="keep the result in a variable and use that in the loop, or the second time; for a "
        "parametrized weight wrap the forward in `with torch.nn.utils.parametrize.cached():`",
        confirm="the next audit has fewer of these calls, and the loss is the same",
        costs="memory for the result until its last use",
    ),
    Change(
        id="no_gradients",
        of=("unheld_gradients",),
        advice="Freeze {name}",
        how="requires_grad_(False) on the weights that are not to learn, before the optimizer is "
        "made: to leave them out of the optimizer is not enough",
        confirm="phase_backward_s falls by about that much; the next audit has none of it",
        costs="what is done with the gradients of all weights, e.g. clip_grad_norm_ over "
        "model.parameters(), no longer counts theirs: the norm is another one",
    ),
    Change(
        id="detach_input",
        of=("dropped_gradients",),
        advice="Keep the backward at {where} out of these weights",
        how="fake.detach() for what a discriminator is given, and no retain_graph=True; where the "
        "gradient has to pass, requires_grad_(False) on the other model's weights for that pass; "
        "for the gradient of an input loss.backward(inputs=[input])",
        confirm="phase_backward_s falls by about that much; the next audit has none of it",
    ),
    Change(
        id="sparse_gradients",
        of=("sparse_gradients",),
        advice="Give the tables sparse gradients",
        how="nn.Embedding(…, sparse=True), updated by torch.optim.SparseAdam (Adagrad and SGD take "
        "them, too) beside another optimizer for the rest",
        effort="hours",
        realises=None,
        source="an update of rows costs more for each of them, by how much differs",
        confirm="the next audit has no embedding_dense_backward",
        costs="rows that no batch looks up keep their momentum: another training",
    ),
    Change(
        id="fused_optimizer",
        of=("optimizer_not_fused",),
        advice="Fuse the optimizer",
        how="{loop.fused}",
        how_in={LIGHTNING: "{loop.fused}; in fp16 Lightning refuses gradient_clip_val with it"},
        realises=0.8,
        source=TWINS,
        trials=("optimizer_fused", "optimizer_foreach"),
        confirm="trainperf compare BEFORE AFTER: phase_optimizer_s falls",
    ),
    Change(
        id="foreach_update",
        of=("optimizer_not_fused",),
        advice="Update all parameters at once",
        how="foreach=True for an optimizer of torch.optim; in one of your own, operators on "
        "lists of parameters instead of a loop (torch._foreach_mul_, torch._foreach_add_)",
        realises=0.8,
        source=TWINS,
        trials=("optimizer_foreach",),
        confirm="trainperf compare BEFORE AFTER: phase_optimizer_s falls",
    ),
    Change(
        id="one_operator",
        of=("launch_bound",),
        advice="Do in one operator what the loop does",
        how="at {where} one operator over all rows, time steps, heads or experts instead of the "
        "loop and those around it: nn.LSTM or nn.GRU for cells, bmm or einsum for heads, indexing "
        "with a tensor for items",
        realises=0.85,
        source=TWINS,
        confirm="trainperf compare BEFORE AFTER in samples per second",
    ),
    Change(
        id="one_product",
        of=("equal_modules",),
        advice="Compute all modules of {name} at once",
        how="keep their weights in one tensor (number, inputs, outputs) and multiply by "
        "torch.baddbmm or einsum: one product instead of one for each; where each has rows of its "
        "own, sorted rows and a grouped product",
        effort="hours",
        realises=0.85,
        source="two layers of 32 experts of 64 by 128: 0.87 of it went (trainperf prove, two cores "
        "of a Xeon), and of the update, of 14 in place of 262 tensors, most came on top",
        bounded=False,
        confirm="trainperf compare BEFORE AFTER in samples per second",
    ),
    Change(
        id="one_pass",
        of=("equal_passes",),
        advice="Call {name} once for all {number}",
        how="at {where} one batch instead of the loop: torch.stack or torch.cat what it is called "
        "with; where each sample needs a gradient of its own, torch.func.vmap over "
        "torch.func.grad of a loss by torch.func.functional_call",
        realises=0.9,
        source="gradients of 64 patients one by one: 4.5 times as fast by it, 4.41 with vmap; a "
        "batch of 32 rows: 2.85, and 3.26 (two cores of a Xeon)",
        bounded=False,
        confirm="trainperf compare BEFORE AFTER in samples per second, and the same loss",
        costs="memory for the activations of all",
    ),
    Change(
        id="compile_step",
        of=("launch_bound", "elementwise_chain"),
        advice="Compile the model",
        how="{loop.compiled}{device.graphs}",
        how_in={
            HF: "{loop.compiled}{device.graphs_option}",
        },
        realises=None,
        source="differs from model to model: the trial tells",
        bounded=False,
        trials=("compile",),
        costs="a first step of a minute or more",
        confirm="trainperf compare BEFORE AFTER in samples per second",
    ),
    Change(
        id="compile_dynamic",
        of=("launch_bound",),
        advice="Compile the model for shapes that vary",
        how="{loop.compiled}, with dynamic=True or batches of a few fixed lengths, and without "
        "a mode that records a graph for each shape",
        realises=None,
        source="differs from model to model: the trial tells",
        bounded=False,
        trials=("compile",),
        costs="a first step of a minute or more",
        confirm="trainperf compare BEFORE AFTER in samples per second",
    ),
    Change(
        id="larger_batch",
        of=("launch_bound",),
        advice="Use a larger batch",
        how="a batch twice as large: twice the samples with as many launches",
        effort="hours",
        realises=0.5,
        source="twice the batch halves the launches of a sample",
        bounded=False,
        costs="memory, and another loss for the same number of steps",
        confirm="trainperf compare BEFORE AFTER in samples per second",
        option=True,
    ),
    Change(
        id="compute_on_cpu",
        of=("launch_bound",),
        advice="Try it on the CPU",
        how='model.to("cpu"), and batches left there: a step is so little work that a core may do '
        "it sooner than it launches it",
        how_in={
            LIGHTNING: 'Trainer(accelerator="cpu"): a step is so little work that a core may do it '
            "sooner than it launches it",
            HF: "TrainingArguments(use_cpu=True): a step is so little work that a core may do it "
            "sooner than it launches it",
        },
        realises=None,
        source="depends on the core and on the operators",
        bounded=False,
        confirm="trainperf prove BEFORE AFTER, the one on the device and the other on the CPU",
    ),
    Change(
        id="larger_micro_batches",
        of=("small_micro_batches", "launch_bound"),
        advice="Take larger micro-batches",
        how="a micro-batch {number} times as large, without {loop.accumulation}: the same samples "
        "in each update",
        how_in={
            HF: "TrainingArguments(per_device_train_batch_size={rows}, "
            "gradient_accumulation_steps=1): the same samples in each update"
        },
        realises=None,
        source="of all micro-batches' launches those of one are left",
        bounded=False,
        costs="memory",
        confirm="trainperf compare BEFORE AFTER in samples per second",
    ),
    Change(
        id="fuse_chain",
        of=("elementwise_chain",),
        advice="Fuse the elementwise operators",
        how="one operator of torch instead of a formula, e.g. torch.nn.functional.gelu(x, "
        'approximate="tanh"); where there is none, torch.compile the function that has the formula',
        realises=0.6,
        source=TWINS,
    ),
    Change(
        id="register_buffer",
        of=("constant_rebuilt",),
        advice="Build the constants once",
        how='in __init__ self.register_buffer("mask", …, persistent=False), made for the longest '
        "input; in forward a slice of it",
        realises=0.95,
        source=TWINS,
        confirm=_AUDIT,
    ),
    Change(
        id="convert_once",
        of=("autocast_casts",),
        advice="Convert once",
        how="make the tensor in the dtype in which it is used, and drop .to(dtype) after it",
        realises=0.9,
        source=TWINS,
        confirm=_AUDIT,
    ),
    Change(
        id="keep_dtype",
        of=("autocast_casts",),
        advice="Convert once",
        how="have masks and labels in the dtype in which they are used: convert them in the "
        "dataset, or keep a constant in self.register_buffer(…)",
        realises=0.9,
        source=TWINS,
        confirm=_AUDIT,
    ),
    Change(
        id="weights_in_half",
        of=("autocast_casts",),
        advice="Convert once",
        how="weights are converted in every micro-batch: take fewer and larger ones, or keep the "
        "weights in bf16, {loop.bf16_weights}",
        realises=0.8,
        source=TWINS,
        confirm=_AUDIT,
    ),
    Change(
        id="fp32_instead",
        of=("autocast_casts",),
        advice="Train without autocast",
        how="no torch.autocast: by the peaks of this chip its conversions take longer than the "
        "products save; or keep the weights in bf16, too, {loop.bf16_weights}",
        how_in={
            LIGHTNING: 'Trainer(precision="32-true"): by the peaks of this chip the conversions '
            "take longer than the products save; or {loop.bf16_weights}",
            HF: "TrainingArguments(bf16=False, fp16=False): by the peaks of this chip the "
            "conversions take longer than the products save; or {loop.bf16_weights}",
        },
        realises=None,
        source="conversions against what the products save, by the peaks of the chip",
        bounded=False,
        costs="memory for activations",
        confirm="trainperf prove with and without autocast, in samples per second",
    ),
    Change(
        id="one_layout",
        of=("layout_copies",),
        advice="Keep one memory layout",
        how="have the dataset make the batch in the layout that the model wants; drop contiguous() "
        "and clone() where the next operator works without",
        realises=1.0,
        source=TWINS,
        trials=("channels_last",),
        confirm=_AUDIT,
    ),
    Change(
        id="no_cudnn_benchmark",
        of=("convolution_search",),
        advice="Let cuDNN search no more",
        how="torch.backends.cudnn.benchmark = False, or pad and crop to a few sizes",
        how_in={LIGHTNING: "Trainer(benchmark=False), or pad and crop to a few sizes"},
        trials=("cudnn_benchmark",),
    ),
    Change(
        id="single_precision",
        of=("matmul_precision",),
        advice="Compute in fp32",
        how="model.float(), and batches in dtype=torch.float32: float64 is the default of numpy",
        realises=0.9,
        source=TWINS,
        confirm="the next audit has no fp64",
    ),
    Change(
        id="tf32_products",
        of=("matmul_precision",),
        advice="Use the tensor cores",
        how='torch.set_float32_matmul_precision("high"); more with {loop.bf16}',
        trials=("matmul_precision", "autocast_bf16"),
        costs="digits of products",
        confirm="faster, and the loss still matches",
    ),
    Change(
        id="bf16_products",
        of=("matmul_precision",),
        advice="Multiply in bf16",
        how="{loop.bf16}",
        effort="hours",
        trials=("autocast_bf16", "matmul_precision"),
        costs="digits of products",
        confirm="faster, and the loss still matches",
        option=True,
    ),
    Change(
        id="fp16_products",
        of=("matmul_precision",),
        advice="Multiply in fp16",
        how="torch.autocast(device, dtype=torch.float16) with a GradScaler",
        how_in={
            LIGHTNING: 'Trainer(precision="16-mixed")',
            HF: "TrainingArguments(fp16=True)",
        },
        effort="hours",
        trials=("matmul_precision",),
        costs="digits of products; a loss scale",
        confirm="faster, and the loss still matches",
        option=True,
    ),
    Change(
        id="loss_in_fp32",
        of=("half_sensitive",),
        advice="Compute the loss in fp32",
        how="logits.float() before the loss; torch.autocast computes losses in fp32 by itself",
        confirm="compare the loss curves; the next audit has them in fp32",
    ),
    Change(
        id="sums_in_fp32",
        of=("half_sensitive",),
        advice="Compute norms and softmax in fp32",
        how="{loop.bf16}; torch.autocast computes norms and softmax in fp32 by itself, in fp16 too",
        confirm="compare the loss curves; the next audit has them in fp32",
    ),
    Change(
        id="keep_activations",
        of=("recompute",),
        advice="Keep the activations",
        how="no torch.utils.checkpoint around the blocks, or around fewer of them; in transformers "
        "model.gradient_checkpointing_disable()",
        how_in={
            HF: "TrainingArguments(gradient_checkpointing=False), and no "
            "model.gradient_checkpointing_enable()"
        },
        realises=1.0,
        source=TWINS,
        trials=("no_checkpointing",),
        costs="memory for the activations",
        confirm="phase_backward_s falls; the comparison shows the peak, too",
    ),
    Change(
        id="inference_mode",
        of=("gradients_on",),
        advice="Answer under torch.inference_mode()",
        how="with torch.inference_mode(): around the loop, or @torch.inference_mode() on the "
        "function that answers",
        confirm="this finding is gone; the step is no slower, and the memory peak lower",
    ),
)
"""In the order in which they are listed."""
