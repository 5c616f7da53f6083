"""GPT2LMHeadModel in the Trainer of ``transformers``, its fused AdamW, nothing reported."""

import tempfile
from typing import Any

from common import ENDLESS, Windows, arguments, stamp
from torch import Tensor
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments


class Examples(Dataset[dict[str, Tensor]]):
    """Windows as the model takes them; it moves the labels itself."""

    def __init__(self, windows: Windows):
        self.windows = windows

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        ids = self.windows[index][:-1]
        return {"input_ids": ids, "labels": ids}


class Stamps(TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        stamp(state.global_step)


asked = arguments()
config = GPT2Config(
    vocab_size=asked.vocab_size,
    n_positions=asked.block_size,
    n_embd=asked.embed_dim,
    n_layer=asked.num_layers,
    n_head=asked.num_heads,
    resid_pdrop=0.0,
    embd_pdrop=0.0,
    attn_pdrop=0.0,
    use_cache=False,
    bos_token_id=0,
    eos_token_id=0,
)
settings = TrainingArguments(
    output_dir=tempfile.gettempdir(),
    per_device_train_batch_size=asked.batch_size,
    max_steps=ENDLESS,
    learning_rate=1e-3,
    adam_beta1=0.9,
    adam_beta2=0.95,
    weight_decay=0.1,
    max_grad_norm=1.0,
    optim="adamw_torch_fused",
    report_to="none",
    save_strategy="no",
    disable_tqdm=True,
    use_cpu=True,
    dataloader_pin_memory=False,
    torch_compile=asked.compile,
)
examples = Examples(Windows(asked.tokens, asked.block_size))
Trainer(GPT2LMHeadModel(config), settings, train_dataset=examples, callbacks=[Stamps()]).train()
