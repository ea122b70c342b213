"""A text classifier under the Trainer, in the style of transformers' `run_glue.py`."""

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from trainperf.huggingface import TrainPerfCallback  # trainperf


VOCABULARY, LONGEST = 100, 32


def rows(number: int) -> list[dict[str, torch.Tensor]]:
    """Sentences of different lengths, padded to the longest, with a label each."""
    random = torch.Generator().manual_seed(0)
    made_up = []
    for _ in range(number):
        length = int(torch.randint(8, LONGEST + 1, (1,), generator=random))
        mask = torch.arange(LONGEST) < length
        words = torch.randint(1, VOCABULARY, (LONGEST,), generator=random) * mask
        label = words.sum() % 2
        made_up.append({"input_ids": words, "attention_mask": mask.long(), "labels": label})
    return made_up


def main() -> None:
    """Train two epochs."""
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
    )
    args = TrainingArguments(
        output_dir="runs/hugging_face",
        per_device_train_batch_size=8,
        num_train_epochs=2,
        learning_rate=2e-4,
        logging_steps=10,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=args,
        train_dataset=rows(240),
        callbacks=[TrainPerfCallback()],  # trainperf
    )
    trainer.train()


if __name__ == "__main__":
    main()
