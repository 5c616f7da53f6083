"""Runs as they lie in their folders, with random weights instead of trained ones."""

import torch
import yaml

from running import TINY, config_of
from tielab.config import config_hash
from tielab.data.tokenizer import CharTokenizer
from tielab.fit import build_model, run_identity
from tielab.folder import run_yaml
from tielab.models.accounting import parameter_ledger
from tielab.models.tying import untie
from tielab.record import Record, write_record

T = 16
LETTERS = "abcdefghijklmnopqrstuvwxyz \n.,ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-é"
TOKENIZER = CharTokenizer(LETTERS, byte_fallback=False)


def score(tokens_seen, bits):
    return {
        "nats": 1.0, "num_tokens": 100, "num_bytes": 120, "perplexity": 2**bits, "bits_per_byte": bits,
        "content_hash": "c0ffee", "tokens_seen": tokens_seen, "num_words": 20, "word_perplexity": 9.5,
    }  # fmt: skip


def make_run(folder, *overrides, tokenizer=TOKENIZER, split=False, change=None, status="finished", seen=4096):
    """The folder of a run that has ended; returns its model.

    Args:
        split: the model was untied in the training.
        change: what the training did to the model beside.
    """
    config = config_of(*TINY, "data.paths=[some.txt]", *overrides)
    model = build_model(config["model"], tokenizer)
    if split:
        untie(model)
    with torch.no_grad():  # as after a training: no bias is zero, no norm is one
        generator = torch.Generator().manual_seed(1)
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
        if change is not None:
            change(model)
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "run.yaml").write_text(run_yaml(config))
    (folder / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    checkpoint = {
        "tielab": {
            "identity": run_identity(config, tokenizer),
            "tokens_seen": seen,
            "validations": [score(2048, 3.25), score(4096, 3.125)],
        },
        "state_dict": {f"model.{name}": tensor for name, tensor in model.state_dict().items()},
    }
    for name in ("best", "last"):
        torch.save(checkpoint, folder / "checkpoints" / f"{name}.ckpt")
    write_record(
        folder,
        Record(
            run_id=folder.name, status=status, config=config, config_hash=config_hash(config), seed=0,
            tied=config["model"]["tied"], tie_observed=config["model"]["tied"],
            parameters=parameter_ledger(model), data={"corpus": "text", "corpus_hash": "abc"},
        ),
    )  # fmt: skip
    return model.eval()


def ids(vocab_size, length=T):
    return torch.randint(vocab_size, (3, length), generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def assert_same_logits(ours, theirs, length=T):
    x = ids(ours.vocab_size, length)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x).logits, atol=1e-5, rtol=0)


def edit_config(path, **changes):
    """Change keys of a YAML or JSON file."""
    values = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**values, **changes}, default_flow_style=path.suffix == ".json"))
