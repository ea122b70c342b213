"""Masked language modelling on shell command histories with a small BERT."""
import json
import random
import statistics
import tempfile
import time
from dataclasses import dataclass

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

PROGRAMS = ["git", "docker", "kubectl", "tar", "ssh", "rsync", "grep", "find", "curl", "systemctl", "make", "apt"]


@dataclass
class Config:
    seed: int = 8
    num_train: int = 3200
    num_eval: int = 512
    block_size: int = 48
    num_paths: int = 4800
    hidden_size: int = 96
    layers: int = 2
    batch_size: int = 16
    learning_rate: float = 5e-4
    max_steps: int = 150
    eval_steps: int = 50
    mask_probability: float = 0.15


def make_sessions(cfg):
    rng = random.Random(cfg.seed)
    verbs = {p: [f"{p}-{s}" for s in ("list", "run", "status", "build", "copy", "remove")] for p in PROGRAMS}
    options = [f"--{a}{b}" for a in ("no-", "with-", "") for b in ("cache", "verbose", "force", "all", "quiet", "dry")]
    folders = ["src", "etc", "var", "data", "home", "logs", "build", "opt"]
    paths = [f"/{rng.choice(folders)}/{rng.choice('abcdefgh')}{n:04d}" for n in range(cfg.num_paths)]
    favourites = {p: rng.sample(paths, 60) for p in PROGRAMS}

    def command():
        program = rng.choice(PROGRAMS)
        words = [program, rng.choice(verbs[program])]
        words += rng.sample(options, rng.randint(0, 2))
        pool = favourites[program] if rng.random() < 0.7 else paths
        return words + [rng.choice(pool), ";"]

    def session():
        words = []
        while len(words) < cfg.block_size - 2:
            words += command()
        return " ".join(words[:cfg.block_size - 2])

    train = Dataset.from_dict({"text": [session() for _ in range(cfg.num_train)]})
    held_out = Dataset.from_dict({"text": [session() for _ in range(cfg.num_eval)]})
    vocabulary = PROGRAMS + [v for p in PROGRAMS for v in verbs[p]] + options + paths + [";"]
    return train, held_out, vocabulary


def build_tokenizer(vocabulary, block_size):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    table = {token: i for i, token in enumerate(special + vocabulary)}
    backend = Tokenizer(models.WordLevel(table, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[("[CLS]", table["[CLS]"]), ("[SEP]", table["[SEP]"])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
        sep_token="[SEP]", mask_token="[MASK]", model_max_length=block_size,
        model_input_names=["input_ids", "attention_mask"],
    )


def compute_metrics(prediction):
    masked = prediction.label_ids != -100
    predicted = prediction.predictions.argmax(axis=-1)
    return {
        "masked_accuracy": float((predicted == prediction.label_ids)[masked].mean()),
        "masked_tokens": int(masked.sum()),
    }


class StepClock(TrainerCallback):
    def __init__(self):
        self.stamps = []

    def on_step_end(self, args, state, control, **kwargs):
        self.stamps.append(time.perf_counter())


def main():
    began = time.perf_counter()
    cfg = Config()
    set_seed(cfg.seed)
    train, held_out, vocabulary = make_sessions(cfg)
    tokenizer = build_tokenizer(vocabulary, cfg.block_size)

    def tokenize(batch):
        return tokenizer(batch["text"], truncation=True, max_length=cfg.block_size)

    train = train.map(tokenize, batched=True, remove_columns=["text"])
    held_out = held_out.map(tokenize, batched=True, remove_columns=["text"])

    model = BertForMaskedLM(BertConfig(
        vocab_size=len(tokenizer), hidden_size=cfg.hidden_size, num_hidden_layers=cfg.layers,
        num_attention_heads=4, intermediate_size=4 * cfg.hidden_size,
        max_position_embeddings=cfg.block_size, pad_token_id=tokenizer.pad_token_id,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    ))
    print(f"{len(vocabulary)} words, {model.num_parameters() / 1e6:.2f} M parameters")
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=cfg.mask_probability)
    clock = StepClock()
    with tempfile.TemporaryDirectory() as output_dir:
        args = TrainingArguments(
            output_dir=output_dir, seed=cfg.seed, use_cpu=True, max_steps=cfg.max_steps,
            learning_rate=cfg.learning_rate, lr_scheduler_type="cosine", warmup_steps=20, weight_decay=0.01,
            per_device_train_batch_size=cfg.batch_size, per_device_eval_batch_size=16,
            eval_strategy="steps", eval_steps=cfg.eval_steps, save_strategy="no",
            logging_steps=10, report_to=[], disable_tqdm=True,
        )
        trainer = Trainer(
            model=model, args=args, train_dataset=train, eval_dataset=held_out,
            data_collator=collator, compute_metrics=compute_metrics, callbacks=[clock],
        )
        trainer.train()
    gaps = [b - a for a, b in zip(clock.stamps, clock.stamps[1:])]
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    print("RESULT " + json.dumps({
        "step_s": round(statistics.median(gaps), 5),
        "fit_s": round(time.perf_counter() - began, 3),
        "loss": round(float(losses[-1]), 5),
    }))


if __name__ == "__main__":
    main()
