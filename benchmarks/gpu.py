"""One GPU: operations per second against its limit, peers, heads, and jobs that share it.

``bash benchmarks/gpu.sh [--nanogpt FOLDER] [--quick] [--cpu] [--out FOLDER]``, in under 10 minutes. With
``--cpu`` the same code runs on tiny shapes and writes ``gpu_rehearsal.json``: no figure of it is a GPU's.
Warm-up and compilation are left out, and the device is waited for at both ends of what is timed.
"""

import argparse
import functools
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from benchmarks import gpu_jobs, head, measure
from benchmarks.steps import TINY, Shape, Training, autocast, batch, peak_bytes, settings, synchronize
from tielab.errors import REFUSED, RequestError

SHAPES = {
    "gpt2": Shape(50257, 768, 12, 12, 3072, 1024, 8),
    "medium": Shape(8192, 256, 6, 4, 1024, 256, 64),
}
HEAD_SIZES = ((8192, 50257, 768), (16384, 8192, 256))
PRECISION = "bf16-mixed"
PRODUCT_SIZE = 8192
STEPS_PER_TURN, ROUNDS, WARMUP_STEPS = 10, 5, 5


class Peer:
    """A model of others with its loss, trained as ours: AdamW fused, clipped, on the same batch.

    Ours is deterministic, as runs are; others are not, as their own scripts leave them.
    """

    def __init__(self, model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], shape: Shape, device: str):
        self.model, self.loss, self.device = model, loss, device
        self.batch = batch(shape, device)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), fused=True)

    def step(self) -> None:
        torch.use_deterministic_algorithms(False)
        with autocast(PRECISION, self.device):
            loss = self.loss(*self.batch)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        torch.use_deterministic_algorithms(True)


def nanogpt(folder: Path, shape: Shape, device: str, compiled: bool) -> Peer:
    """nanoGPT's model (github.com/karpathy/nanoGPT), from a folder with its ``model.py``."""
    spec = importlib.util.spec_from_file_location("nanogpt_model", folder / "model.py")
    if spec is None or spec.loader is None or not (folder / "model.py").is_file():
        raise RequestError(f"--nanogpt {folder}: no model.py there; name a checkout of nanoGPT")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclass looks itself up
    spec.loader.exec_module(module)
    config = module.GPTConfig(
        block_size=shape.block_size,
        vocab_size=shape.vocab_size,
        n_layer=shape.num_layers,
        n_head=shape.num_heads,
        n_embd=shape.embed_dim,
        dropout=0.0,
        bias=True,
    )
    model = module.GPT(config).to(device)
    forward = torch.compile(model) if compiled else model
    return Peer(model, lambda input_ids, targets: forward(input_ids, targets)[1], shape, device)


def gpt2(shape: Shape, device: str) -> Peer:
    """GPT-2 of transformers, with the loss of its own."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=shape.vocab_size,
        n_positions=shape.block_size,
        n_embd=shape.embed_dim,
        n_layer=shape.num_layers,
        n_head=shape.num_heads,
        n_inner=shape.hidden_dim,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
    )
    model: nn.Module = GPT2LMHeadModel(config)
    model.to(device)
    return Peer(model, lambda input_ids, _: model(input_ids, labels=input_ids).loss, shape, device)


def trained(
    shape: Shape, optimizer: dict[str, Any], device: str, compiled: bool, folder: Path | None
) -> dict[str, Callable[[], None]]:
    """A step of each arm. Ours is compiled only where ``compiled``, as nanoGPT is."""
    ours = functools.partial(Training, shape, optimizer, precision=PRECISION, device=device)
    found = {"ours": ours().step}
    if compiled:
        found["ours compiled"] = ours(compiled=True).step
    if folder is not None:
        found["nanoGPT compiled" if compiled else "nanoGPT"] = nanogpt(folder, shape, device, compiled).step
    if importlib.util.find_spec("transformers") is not None:
        found["transformers"] = gpt2(shape, device).step
    return found


def seconds_per_call(function: Callable[[], object], device: str, calls: int) -> float:
    synchronize(device)

    def repeat() -> None:
        for _ in range(calls):
            function()
        synchronize(device)

    return measure.seconds(repeat) / calls


def step_rows(
    name: str, shape: Shape, steps: dict[str, Callable[[], None]], flops: int, device: str, quick: bool
) -> list[dict[str, Any]]:
    """A row for each arm: tokens per second, and operations per second as a share of a product's."""
    size = 64 if quick else PRODUCT_SIZE
    left, right = torch.randn(2, size, size, device=device, dtype=torch.bfloat16)
    product = functools.partial(torch.mm, left, right)
    calls, rounds = (1, 2) if quick else (STEPS_PER_TURN, ROUNDS)
    arms: dict[str, Callable[[], float]] = {"product": lambda: seconds_per_call(product, device, calls)}
    peaks = {}
    for arm, step in steps.items():
        for _ in range(1 if quick else WARMUP_STEPS):
            step()
        peaks[arm] = peak_bytes(step, device)
        arms[arm] = functools.partial(seconds_per_call, step, device, calls)
    arms["product"]()
    found = measure.interleave(arms, rounds)
    limits = [2 * size**3 / seconds for seconds in found["product"]]
    rows = []
    for arm in steps:
        rates = [flops / seconds for seconds in found[arm]]
        rows.append(
            {
                "part": "step",
                "shape": name,
                "arm": arm,
                "seconds_per_step": measure.quartiles(found[arm]),
                "tokens_per_second": measure.quartiles([shape.tokens / second for second in found[arm]]),
                "seconds_to_ours": measure.ratios(found[arm], found["ours"]),
                "product_flops_per_second": measure.quartiles(limits),
                "share_of_product": measure.ratios(rates, limits),
                "peak_memory_bytes_beyond_state": peaks[arm],
            }
        )
    return rows


def device_name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else measure.processor()


def measure_all(given: argparse.Namespace, device: str) -> list[dict[str, Any]]:
    optimizer = settings()["optimizer"]
    rehearsed = given.quick or given.cpu
    compiled = not given.quick
    rows = []
    for name, shape in ({"tiny": TINY} if rehearsed else SHAPES).items():
        steps = trained(shape, optimizer, device, compiled, given.nanogpt)
        flops = Training(shape, optimizer).flops
        rows += step_rows(name, shape, steps, flops, device, rehearsed)
        del steps
    heads = head.heads() | (head.heads_for_gpus() if compiled else {})
    for size in [(64, 512, 16)] if rehearsed else HEAD_SIZES:
        found = head.rows_of(size, PRECISION, rehearsed, heads, device)
        rows += [{"part": "head", **row} for row in found]
    return rows + [{"part": "jobs", **row} for row in gpu_jobs.rows(device, rehearsed)]


def show(rows: list[dict[str, Any]]) -> list[Table]:
    steps = Table("shape", "arm", "tokens/s", "to ours", "of the product", "peak MiB")
    jobs = Table("jobs at a time", "wall s", "jobs/hour", "to one at a time")
    for row in rows:
        if row["part"] == "step":
            steps.add_row(
                row["shape"],
                row["arm"],
                f"{row['tokens_per_second']['median']:.0f}",
                f"{row['seconds_to_ours']['median']:.2f}",
                f"{row['share_of_product']['median']:.1%}",
                f"{row['peak_memory_bytes_beyond_state'] / 2**20:.0f}",
            )
        elif row["part"] == "jobs":
            jobs.add_row(
                str(row["jobs_at_a_time"]),
                f"{row['seconds']:.1f}",
                f"{row['jobs_per_hour']:.0f}",
                f"{row['speedup']:.2f}",
            )
    return [steps, head.show([row for row in rows if row["part"] == "head"]), jobs]


def find_device(cpu: bool) -> str:
    """Where to measure.

    Raises:
        RequestError: there is no GPU, and the CPU was not asked for.
    """
    if cpu:
        print("a rehearsal on the CPU: nothing of a GPU is measured")
        return "cpu"
    if not torch.cuda.is_available():
        raise RequestError("no GPU found on this machine, nothing was measured; --cpu rehearses without one")
    return "cuda"


def main() -> None:
    parser = measure.command_line(
        __doc__, quick="tiny shapes, two rounds, not compiled", prog="benchmarks/gpu.sh"
    )
    parser.add_argument("--nanogpt", type=Path, help="a checkout of nanoGPT to compare with")
    parser.add_argument("--cpu", action="store_true", help="rehearse on the CPU with tiny shapes")
    given = parser.parse_args()
    try:
        device = find_device(given.cpu)
        with measure.watched() as seen:
            rows = measure_all(given, device)
    except RequestError as error:
        print(error, file=sys.stderr)
        sys.exit(REFUSED)
    for table in show(rows):
        Console(width=110).print(table)
    conditions = {
        "device": device_name(device),
        "precision": PRECISION,
        "shapes": {name: vars(shape) for name, shape in SHAPES.items()},
        "peers": measure.versions(("transformers", "liger-kernel")),
        "is_of_a_gpu": device == "cuda" and not given.quick,
    }
    rehearsed = given.quick or given.cpu
    measure.write("gpu_rehearsal" if rehearsed else "gpu", rows, seen, conditions, given.out)


if __name__ == "__main__":
    main()
