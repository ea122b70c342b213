"""Fine-tune a small BERT on product reviews (synthetic), Hugging Face Trainer."""
import json
import random
import tempfile
import time

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

SEED = 19
MAX_LENGTH = 128
N = 2000
GOOD = "great lovely solid superb happy quick sturdy perfect recommend pleasant".split()
BAD = "broken poor awful slow refund useless cheap noisy disappointing leaking".split()
FILLER = ("the a this it was and then after some days of use my order parcel phone cable box lamp kettle arrived with "
          "very quite rather not really too but also for in on at from we they she he bought again never always").split()


def make_reviews(n):
    rng = random.Random(SEED)
    texts, labels = [], []
    for _ in range(n):
        label = rng.randrange(2)
        length = int(min(90, max(8, rng.lognormvariate(3.2, 0.45))))
        words = [rng.choice(FILLER) for _ in range(length)]
        for _ in range(max(2, length // 8)):
            pool = (GOOD, BAD)[label if rng.random() > 0.2 else 1 - label]
            words[rng.randrange(length)] = rng.choice(pool[::-1])
        texts.append(" ".join(words))
        labels.append(1 - label)
    return texts, labels


def make_tokenizer():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"] + sorted(set(GOOD + BAD + FILLER))
    vocab = {w: i for i, w in enumerate(words)}
    tok = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    tok.pre_tokenizer = pre_tokenizers.Whitespace()
    tok.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tok, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


class Reviews(Dataset):
    def __init__(self, tokenizer, texts, labels):
        self.enc = tokenizer(texts, padding="max_length", truncation=True, max_length=MAX_LENGTH)
        self.labels = labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {
            "input_ids": self.enc["input_ids"][i],
            "attention_mask": self.enc["attention_mask"][i],
            "labels": self.labels[i],
        }


class StepClock(TrainerCallback):
    """Wall time per optimizer step, pauses for evaluation and saving left out."""

    def __init__(self):
        self.paused = 0.0
        self.steps = 0

    def on_step_end(self, args, state, control, **kwargs):
        self.mark = self.last = time.perf_counter()
        self.steps = state.global_step
        self.paused_last = self.paused
        if self.steps == 20:
            self.t20, self.paused20 = self.last, self.paused

    def _pause(self, args, state, control, **kwargs):
        now = time.perf_counter()
        self.paused += now - self.mark
        self.mark = now

    on_evaluate = on_save = _pause

    def result(self, fit_s, history):
        busy = self.last - self.t20 - (self.paused_last - self.paused20)
        losses = [h["loss"] for h in history if "loss" in h]
        return {"step_s": busy / (self.steps - 20), "fit_s": fit_s, "loss": float(losses[-1])}

def main():
    set_seed(SEED)
    tokenizer = make_tokenizer()
    train = Reviews(tokenizer, *make_reviews(N))
    model = BertForSequenceClassification(BertConfig(
        vocab_size=len(tokenizer), hidden_size=128, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=256, max_position_embeddings=MAX_LENGTH, num_labels=2,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    ))
    clock = StepClock()
    with tempfile.TemporaryDirectory() as tmp:
        args = TrainingArguments(
            output_dir=tmp, num_train_epochs=1, per_device_train_batch_size=8, learning_rate=5e-4,
            logging_steps=50, save_strategy="no", report_to="none", use_cpu=True, disable_tqdm=True,
            dataloader_pin_memory=False, seed=SEED,
        )
        trainer = Trainer(
            model=model, args=args, train_dataset=train, callbacks=[clock],
            data_collator=DataCollatorWithPadding(tokenizer),
        )
        start = time.perf_counter()
        trainer.train()
        fit_s = time.perf_counter() - start
    print("RESULT " + json.dumps(clock.result(fit_s, trainer.state.log_history)))


if __name__ == "__main__":
    main()
