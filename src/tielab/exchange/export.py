"""A run's model as a Hugging Face folder, written whole or not at all. Needs no transformers."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors.torch import save_file

from tielab.errors import RequestError
from tielab.exchange.gpt2_config import CONFIG_NAME, gpt2_config
from tielab.exchange.layout import HEAD, to_gpt2
from tielab.exchange.model_card import CARD_NAME, model_card
from tielab.exchange.tokenizer_json import tokenizer_config, tokenizer_json
from tielab.record import RECORD_NAME, TOKENIZER_NAME, read_record
from tielab.sample import open_run

WEIGHTS_NAME = "model.safetensors"
EXPORT_NAME = "export"
"""The folder inside the run's, unless another is named."""


@dataclass(frozen=True)
class Export:
    """What was written."""

    folder: str
    tie_word_embeddings: bool
    num_parameters: int
    """Of the file: each of its tensors once."""
    num_bytes: int
    """Of the weights' file."""
    status: str
    """Of the run."""


def export(
    run: Path, folder: Path | None = None, checkpoint: str = "best", *, untied: bool = False
) -> Export:
    """Write the model of a run as a GPT-2 that transformers loads, with its tokenizer and a card.

    Args:
        folder: new or empty; None: ``export`` inside the run's.
        checkpoint: ``best`` or ``last``.
        untied: write the two matrices that the model computes with, even if it has one.

    Raises:
        RequestError: the folder is not empty, there is no such checkpoint, it holds values that are no
            numbers, or a GPT-2 cannot compute what the model computes.
    """
    folder = run / EXPORT_NAME if folder is None else folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RequestError(f"{folder} is not empty; name another folder")
    if not (run / RECORD_NAME).is_file():
        raise RequestError(f"{run}: no {RECORD_NAME} there; give the folder of a run that has begun training")
    record, trained = read_record(run), open_run(run, checkpoint)
    tensors = to_gpt2(trained.model, untied=untied)
    tied = HEAD not in tensors
    model_config = {**trained.config["model"], "block_size": trained.model.block_size}
    config = gpt2_config(model_config, trained.tokenizer.vocab_size, tied, trained.model.init_std)
    num_parameters = sum(tensor.numel() for tensor in tensors.values())
    texts = {
        CONFIG_NAME: _as_json(config),
        TOKENIZER_NAME: tokenizer_json(trained.tokenizer),
        "tokenizer_config.json": _as_json(tokenizer_config(trained.model.block_size)),
        CARD_NAME: model_card(record, trained, checkpoint, tied=tied, num_parameters=num_parameters),
    }
    with built_aside(folder) as aside:
        save_file(tensors, aside / WEIGHTS_NAME, metadata={"format": "pt"})
        for name, text in texts.items():
            (aside / name).write_text(text, encoding="utf-8")
        (aside / WEIGHTS_NAME).chmod(0o644)
    size = (folder / WEIGHTS_NAME).stat().st_size
    return Export(str(folder), tied, num_parameters, size, record.status)


def _as_json(values: dict[str, object]) -> str:
    return json.dumps(values, indent=2) + "\n"


@contextmanager
def built_aside(folder: Path) -> Iterator[Path]:
    """An empty folder to fill that takes the place of a missing or empty one at the end, or vanishes.

    Raises:
        RequestError: it cannot be written.
    """
    aside = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        yield aside
        aside.chmod(0o755)
        aside.rename(folder)
    except OSError as error:
        raise RequestError(f"cannot write {folder}: {error.strerror or error}; name another folder") from None
    finally:
        if aside is not None and aside.exists():
            shutil.rmtree(aside, ignore_errors=True)


def as_json(written: Export) -> str:
    """What was written, as one JSON object."""
    return json.dumps(asdict(written))
