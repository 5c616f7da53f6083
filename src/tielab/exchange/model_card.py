"""The README of an exported model: what it is, the numbers of its run, how to load and how to repeat it."""

import re
from typing import Any

from tielab.data.tokenizer import Tokenizer
from tielab.errors import RequestError, printable
from tielab.folder import run_yaml
from tielab.models.tying import is_tied
from tielab.publish import portable_config
from tielab.record import Record, Validation
from tielab.report.arms import arm_name
from tielab.sample import TrainedRun
from tielab.training.task import CHECKPOINT_KEY

CARD_NAME = "README.md"


def model_card(
    record: Record, trained: TrainedRun, checkpoint: str, *, tied: bool, num_parameters: int
) -> str:
    """Markdown with the front matter that the Hugging Face Hub reads.

    Args:
        checkpoint: which of the run's.
        tied: whether the file holds one matrix.
        num_parameters: in the file.
    """
    return "\n".join(
        [
            "---",
            "library_name: transformers",
            "pipeline_tag: text-generation",
            "tags:",
            "- gpt2",
            "- tielab",
            "---",
            "",
            f"# {_cell(record.run_id)}",
            "",
            *_summary(record, trained, checkpoint, tied=tied),
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {_cell(value)} |" for name, value in _rows(record, trained, num_parameters)),
            "",
            *_use(trained),
            "",
            *_repeat(trained),
            "",
        ]
    )


def _summary(record: Record, trained: TrainedRun, checkpoint: str, *, tied: bool) -> list[str]:
    lines = [
        "A GPT-2-shaped language model, trained by Tielab to compare tied with untied token embeddings. In "
        f"this folder token embedding and LM head are {'one matrix' if tied else 'two matrices'} "
        f"(`tie_word_embeddings: {str(tied).lower()}`). The run's arm was `{arm_name(record.config)}`; these "
        f"are the weights of its {checkpoint} checkpoint, in float32."
    ]
    if is_tied(trained.model) and not tied:
        lines += [
            "",
            "The trained model has one matrix for both ends. What is written here are the matrices that it "
            "looks ids up and scores with: the same function, more parameters than were trained.",
        ]
    if not record.finished:
        lines += ["", f"**The run did not finish:** its record says {record.status}."]
    return lines


def _rows(record: Record, trained: TrainedRun, num_parameters: int) -> list[tuple[str, str]]:
    return [
        *_scores(record, trained),
        *_sizes(record, trained, num_parameters),
        ("tied, as configured / as observed", f"{record.tied} / {record.tie_observed}"),
        *_started_from(record),
        ("corpus", f"{record.data.get('corpus')}, hash `{record.data.get('corpus_hash')}`"),
        ("tokenizer hash", f"`{record.data.get('tokenizer_hash')}`"),
        ("config hash", f"`{record.config_hash}`"),
        (
            "code",
            f"commit `{record.commit}`{' with changes' if record.dirty else ''}, hash `{record.code_hash}`",
        ),
    ]


def _scores(record: Record, trained: TrainedRun) -> list[tuple[str, str]]:
    """Of exactly these weights, on the whole validation split."""
    tokens = trained.checkpoint[CHECKPOINT_KEY].get("tokens_seen")
    rows = [("training tokens seen", f"{tokens:,}" if isinstance(tokens, int) else "unknown")]
    score = validation_at(trained.checkpoint[CHECKPOINT_KEY])
    if score is None:
        return [("validation", "none at the step of this checkpoint"), *rows]
    words = [("word perplexity", f"{score.word_perplexity:.2f}")] if score.word_perplexity else []
    return [
        ("bits per byte", f"{score.bits_per_byte:.4f}"),
        ("perplexity (of this tokenizer)", f"{score.perplexity:.2f}"),
        *words,
        (
            "scored",
            f"{score.num_tokens:,} tokens, {score.num_bytes:,} bytes of the validation split, "
            f"hash `{score.content_hash}`",
        ),
        *rows,
    ]


def validation_at(kept: dict[str, Any]) -> Validation | None:
    """The validation of the weights in a checkpoint, if they were scored at its very step.

    Args:
        kept: what the checkpoint says of its run.
    """
    try:
        passes = [Validation(**values) for values in kept["validations"]]
        return next((one for one in reversed(passes) if one.tokens_seen == kept["tokens_seen"]), None)
    except (KeyError, TypeError):
        return None


def _sizes(record: Record, trained: TrainedRun, num_parameters: int) -> list[tuple[str, str]]:
    counts = record.parameters
    rows = [("parameters in the file", f"{num_parameters:,}")]
    if counts.get("total"):
        ends = counts.get("token_embedding", 0) + counts.get("head", 0)
        share = f"{ends:,} ({ends / counts['total']:.1%})"
        rows += [("parameters trained", f"{counts['total']:,}"), ("of them embedding and head", share)]
    model = trained.model
    shape = f"{len(model.blocks)} blocks, width {model.position_embed.embedding_dim}"
    return [*rows, ("shape", f"{shape}, {model.vocab_size:,} ids, {model.block_size} positions")]


def _started_from(record: Record) -> list[tuple[str, str]]:
    if record.init is None:
        return []
    files = ", ".join(f"{name} sha256 `{digest}`" for name, digest in record.init["files"].items())
    return [("started from", f"{files}; tie: {record.init['tie']}")]


def _use(trained: TrainedRun) -> list[str]:
    prompt, num_positions = _prompt(trained.tokenizer), trained.model.block_size
    num_new = max(1, min(32, num_positions - len(trained.tokenizer.encode(prompt))))
    return [
        "## Use",
        "",
        "```python",
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        'model = AutoModelForCausalLM.from_pretrained("FOLDER").eval()',
        'tokenizer = AutoTokenizer.from_pretrained("FOLDER")',
        f'ids = tokenizer("{prompt}", return_tensors="pt").input_ids',
        f"print(tokenizer.decode(model.generate(ids, max_new_tokens={num_new}, do_sample=True)[0]))",
        "```",
        "",
        f"The model reads at most {num_positions} tokens and knows no token that ends a text.",
    ]


def _prompt(tokenizer: Tokenizer) -> str:
    """A short text that the tokenizer accepts."""
    for prompt in ("The city", "the", "a"):
        try:
            tokenizer.encode(prompt)
        except RequestError:
            continue
        return prompt
    return next(piece for piece in tokenizer.pieces if piece).decode("utf-8", errors="replace")


def _repeat(trained: TrainedRun) -> list[str]:
    text = run_yaml(portable_config(trained.config))
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [
        "## Repeat",
        "",
        "Save this as `run.yaml` in a folder and train it again from a checkout of Tielab at that commit: "
        "`python train.py --config-dir FOLDER --config-name run`",
        "",
        "<details><summary>run.yaml</summary>",
        "",
        f"{fence}yaml",
        text.rstrip("\n"),
        fence,
        "",
        "</details>",
    ]


def _cell(value: str) -> str:
    return printable(value).replace("|", "\\|")
