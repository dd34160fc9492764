"""The Hugging Face Trainer, with its checkpoints' state and TensorBoard: a callback hears what it logs."""

import json

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments


class Words(torch.utils.data.Dataset):
    """Rows of token numbers."""

    def __len__(self):
        """64 rows."""
        return 64

    def __getitem__(self, index):
        """One row."""
        row = torch.arange(index, index + 16) % 64
        return {"input_ids": row, "labels": row}


class Own(TrainerCallback):
    """Keeps what is logged."""

    def __init__(self):
        self.told = {}

    def on_log(self, args, state, control, logs=None, **_):
        """Each number by its name."""
        for name, value in logs.items():
            self.told.setdefault(name, []).append([state.global_step, float(value)])


arguments = TrainingArguments(
    max_steps=40, save_steps=10, logging_steps=2, eval_strategy="steps", eval_steps=5, report_to=["tensorboard"],
    use_cpu=True, per_device_train_batch_size=2, disable_tqdm=True, output_dir="out",
)  # fmt: skip
config = GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=1)
own = Own()
trainer = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=Words(), eval_dataset=Words(), callbacks=[own])
trainer.train()
trainer.save_state()
with open("own.json", "w") as file:
    json.dump(own.told, file)
