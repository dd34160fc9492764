"""The Hugging Face Trainer with its default output folder: trainer_output/checkpoint-N/."""

from pathlib import Path

import torch
from shared import Words, hold
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.manual_seed(0)
config = GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=1)
arguments = TrainingArguments(max_steps=4, save_steps=2, report_to=[], use_cpu=True, per_device_train_batch_size=2)
trainer = Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=Words())
trainer.train()
hold(*map(str, Path("trainer_output").rglob("*")))
