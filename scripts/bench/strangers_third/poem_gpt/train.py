"""A small GPT on rhymed lines; prints a few poems now and then to see how it gets on."""
import argparse
import json
import tempfile
import time

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--poems", type=int, default=640)
    p.add_argument("--length", type=int, default=64)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--sample-every", type=int, default=20)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=19)
    return p.parse_args()


class Poems(Dataset):
    """Lines of eight words; the last words of two lines rhyme."""

    def __init__(self, n, length, seed):
        g = torch.Generator().manual_seed(seed)
        step = torch.randint(1, 9, (n, 1), generator=g)
        first = torch.randint(900, (n, 1), generator=g)
        self.ids = (first + step * torch.arange(length)) % 900 + 2
        rhyme = 902 + torch.randint(90, (n, length // 16), generator=g)
        self.ids[:, 7::16], self.ids[:, 15::16] = rhyme, rhyme

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


class Stopwatch(TrainerCallback):
    def __init__(self):
        self.begin, self.spans = 0.0, []

    def on_step_begin(self, args, state, control, **kwargs):
        self.begin = time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        self.spans.append(time.perf_counter() - self.begin)


class ShowPoems(TrainerCallback):
    def __init__(self, prompts, every, length):
        self.prompts, self.every, self.length = prompts, every, length

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step % self.every:
            return
        model.eval()
        poems = model.generate(
            self.prompts,
            attention_mask=torch.ones_like(self.prompts),
            max_new_tokens=self.length - self.prompts.size(1),
            do_sample=False,
            use_cache=False,
            pad_token_id=0,
        )
        model.train()
        rhymes = (poems[:, 7::16] == poems[:, 15::16]).float().mean().item()
        print(f"step {state.global_step} rhymes {rhymes:.2f} first {poems[0, :12].tolist()}", flush=True)


def main():
    args = get_args()
    set_seed(args.seed)
    dataset = Poems(args.poems, args.length, args.seed)
    config = GPT2Config(
        vocab_size=1000, n_positions=args.length, n_embd=128, n_layer=3, n_head=4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
    )
    watch = Stopwatch()
    show = ShowPoems(dataset.ids[:24, :4], args.sample_every, args.length)
    training = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="poem_"),
        per_device_train_batch_size=args.batch,
        num_train_epochs=1,
        learning_rate=args.lr,
        logging_steps=10,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        seed=args.seed,
    )
    trainer = Trainer(model=GPT2LMHeadModel(config), args=training, train_dataset=dataset, callbacks=[watch, show])
    start = time.perf_counter()
    trainer.train()
    fit_s = time.perf_counter() - start
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    print("RESULT " + json.dumps({
        "step_s": sum(watch.spans[10:]) / (len(watch.spans) - 10),
        "fit_s": fit_s,
        "loss": float(losses[-1]),
    }), flush=True)


if __name__ == "__main__":
    main()
