#!/usr/bin/env python
"""Topic classification of long documents with a small RoBERTa (Hugging Face Trainer)."""
import json
import logging
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    HfArgumentParser,
    RobertaConfig,
    RobertaForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

logger = logging.getLogger(__name__)


@dataclass
class DataArguments:
    train_documents: int = field(default=1600)
    eval_documents: int = field(default=96)
    max_length: int = field(default=160, metadata={"help": "tokens of a document that are used"})
    vocabulary: int = field(default=3000)
    topics: int = field(default=6)


@dataclass
class ModelArguments:
    hidden_size: int = field(default=128)
    layers: int = field(default=4)
    heads: int = field(default=4)


class Documents(Dataset):
    """Bags of Zipfian words with topic words mixed in; every document is longer than max_length."""

    CLS, PAD, SEP, FIRST = 0, 1, 2, 3

    def __init__(self, n, args, seed):
        rng = np.random.default_rng(seed)
        words = args.vocabulary - self.FIRST
        zipf = 1.0 / np.arange(1, words + 1)
        zipf /= zipf.sum()
        topic_words = np.random.default_rng(7).choice(words, (args.topics, 60), replace=False)
        label = rng.integers(0, args.topics, n)
        body = rng.choice(words, (n, args.max_length - 2), p=zipf)
        marked = rng.random(body.shape) < 0.3
        body = np.where(marked, topic_words[label[:, None], rng.integers(0, 60, body.shape)], body) + self.FIRST
        edge = np.ones((n, 1), dtype=body.dtype)
        self.ids = torch.from_numpy(np.concatenate([edge * self.CLS, body, edge * self.SEP], 1))
        self.labels = torch.from_numpy(label)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.labels[i]}


class WallClock(TrainerCallback):
    def __init__(self):
        self.durations = []

    def on_step_begin(self, args, state, control, **kwargs):
        now = time.perf_counter()
        if state.global_step > 10:
            self.durations.append(now - self.previous)
        self.previous = now


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def training_config(output_dir):
    return {
        "output_dir": output_dir,
        "max_steps": 72,
        "per_device_train_batch_size": 8,
        "per_device_eval_batch_size": 32,
        "gradient_checkpointing": False,
        "learning_rate": 1e-3,
        "warmup_steps": 10,
        "weight_decay": 0.01,
        "logging_steps": 15,
        "save_strategy": "no",
        "eval_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "seed": 52,
    }


def main():
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    with tempfile.TemporaryDirectory() as tmp:
        model_args, data_args, training_args = parser.parse_dict(training_config(tmp))
        set_seed(training_args.seed)
        config = RobertaConfig(
            vocab_size=data_args.vocabulary, hidden_size=model_args.hidden_size,
            num_hidden_layers=model_args.layers, num_attention_heads=model_args.heads,
            intermediate_size=4 * model_args.hidden_size, max_position_embeddings=data_args.max_length + 2,
            num_labels=data_args.topics, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )
        model = RobertaForSequenceClassification(config)
        logger.info("%.2f M parameters", model.num_parameters() / 1e6)
        clock = WallClock()
        trainer = Trainer(
            model=model, args=training_args,
            train_dataset=Documents(data_args.train_documents, data_args, 1),
            eval_dataset=Documents(data_args.eval_documents, data_args, 2),
            compute_metrics=accuracy, callbacks=[clock],
        )
        t0 = time.perf_counter()
        trainer.train()
        fit_s = time.perf_counter() - t0
        logger.info("evaluation: %s", trainer.evaluate())
        trainer.save_model(os.path.join(tmp, "final"))
    losses = [h["loss"] for h in trainer.state.log_history if "loss" in h]
    print("RESULT " + json.dumps({
        "step_s": float(np.mean(clock.durations)), "fit_s": fit_s, "loss": float(np.mean(losses[-2:]))}))


if __name__ == "__main__":
    main()
