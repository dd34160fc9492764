"""The Hugging Face Trainer on the ranks that torchrun started: a tiny GPT-2 learns to count, and resumes.

torchrun --nproc-per-node 2 hf_trainer.py --epochs 2
muster deploy -H a,b --folder examples --restarts 3 hf_trainer.py --epochs 2
"""

import argparse

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from muster.transformers import OrderlyStop

WORDS, LENGTH = 50, 16


class Counting(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Rows such as 3, 4, 5, ...: the next number can be learned."""

    def __len__(self) -> int:
        return 512

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        tokens = (torch.arange(LENGTH) + row) % WORDS
        return {"input_ids": tokens, "labels": tokens}


class Lines(TrainerCallback):
    """Prints one line for each rank and epoch; the loss is the mean of all ranks."""

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: dict[str, float]
    ) -> None:
        if "loss" in (logs := more["logs"]):
            epoch, rank, world = round(state.epoch or 0), args.process_index, args.world_size
            print(f"rank {rank} of {world}: epoch {epoch} loss {logs['loss']:.6f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--save", default="", help="where rank 0 writes the model")
    args = parser.parse_args()

    settings = TrainingArguments(
        output_dir="checkpoints",
        num_train_epochs=args.epochs,
        learning_rate=args.lr,
        per_device_train_batch_size=32,
        logging_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        report_to="none",
        disable_tqdm=True,
        ddp_find_unused_parameters=False,
        # Otherwise each rank on a host without GPUs would train alone.
        use_cpu=not torch.cuda.is_available(),
    )
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=WORDS, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    )
    trainer = Trainer(model=model, args=settings, train_dataset=Counting(), callbacks=[Lines(), stop := OrderlyStop()])
    trainer.train(resume_from_checkpoint=stop.newest)
    if args.save and trainer.is_world_process_zero():
        torch.save(model.state_dict(), args.save)


if __name__ == "__main__":
    main()
