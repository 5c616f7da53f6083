"""MiniGPT of the course library ``dnnlpy``, its fast attention, in the plain loop of its notes."""

import torch
from common import Windows, arguments, stamp
from dnnlpy.models.gpt import MiniGPT
from torch.utils.data import DataLoader

asked = arguments()
model = MiniGPT(
    vocab_size=asked.vocab_size,
    block_size=asked.block_size,
    embed_dim=asked.embed_dim,
    num_layers=asked.num_layers,
    num_heads=asked.num_heads,
    hidden_dim=4 * asked.embed_dim,
    weight_tying=True,
    fast=True,
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
loss_of = torch.compile(model.loss) if asked.compile else model.loss
loader = DataLoader(Windows(asked.tokens, asked.block_size), batch_size=asked.batch_size)
for step, ids in enumerate(loader):
    loss = loss_of(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    stamp(step)
