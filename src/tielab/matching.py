"""What two arms have in common: the size or the budget of one is solved so that it meets the other's.

Tying saves V x D parameters. At equal width the arms cost the same operations per token; with the saved
parameters spent on width or depth they have equally many parameters, and other costs. Each is fair in its
own way, so what is equal is chosen, and what is not is written down. Imports no torch.
"""

import copy
import functools
import json
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tielab.config import SCHEME_DEFAULTS, computed, lookup, scale_follows_width, yaml_text
from tielab.errors import RequestError
from tielab.sizes import count_parameters, initial_std, train_flops_per_token

if TYPE_CHECKING:
    from tielab.data.prepare import Prepared

MAX_MISMATCH = 0.05
"""In parameters, as a fraction; more is no match."""

PLAIN_SCHEME = {
    key.removeprefix("model."): value for key, value in SCHEME_DEFAULTS.items() if key.startswith("model.")
}
"""The keys of ``model`` that qualify a tying scheme, where it has no qualification."""

DEPENDENCIES = ("model.", "data.", "budget.")
"""Begin the keys that a solution depends on; ``trainer.`` as well where it was measured."""
INDEPENDENT_KEYS = (
    "model.seed", "data.seed", "data.eval_stride", "data.eval_batch_size", "data.check_strides",
    "budget.num_validations",
)  # fmt: skip


def is_to_be_solved(config: dict[str, Any]) -> bool:
    """Whether matching has to choose this run's size or budget: it is of the adjusted arm, and not done."""
    matching = config["matching"]
    is_adjusted = config["model"]["tied"] == (matching["adjusted"] == "tied")
    return matching["axis"] != "width" and is_adjusted and matching["requested"] is None


def matched(config: dict[str, Any]) -> dict[str, Any]:
    """A config with its size or budget solved; the same object if there is nothing to solve.

    Which keys were solved and what they were before stands in ``matching.requested`` of the new one, what
    came out in ``matching.solution``. A size that is the nearest one already is left as it is.

    Raises:
        RequestError: no size comes within ``MAX_MISMATCH`` of the other arm's parameters.
    """
    if not is_to_be_solved(config):
        return config
    solve = {"params": _match_parameters, "flops": _match_flops, "time": _match_time}
    solved, observed = solve[config["matching"]["axis"]](config)
    requested = {key: lookup(config, key) for key in solved}
    if solved == requested:
        return config
    result = with_values(config, solved)
    result["matching"]["requested"] = requested
    result["matching"]["solution"] = {"solved": solved, **_costs(result, config), **observed}
    return result


Solution = tuple[dict[str, Any], dict[str, Any]]
"""Dotted keys with their new values, and what else is to be remembered."""


def _match_parameters(config: dict[str, Any]) -> Solution:
    model, by = config["model"], config["matching"]["by"]
    target = count_parameters(reference_of(model), vocab_size_of(config))
    sizes = _by_width(model) if by == "width" else _by_depth
    found = solve_sizes(model, vocab_size_of(config), target, sizes)
    size, count = min(found, key=lambda pair: abs(pair[1] - target))  # of equally near ones the smaller
    if abs(count / target - 1) > MAX_MISMATCH:
        raise RequestError(_no_match(config, target, found))
    return {f"model.{name}": value for name, value in _with_scale(model, size).items()}, {}


def _with_scale(model: dict[str, Any], size: dict[str, int]) -> dict[str, float]:
    """The solved sizes, and the input scale where that is the root of the width."""
    if "embed_dim" in size and scale_follows_width(model):
        return {**size, "embed_scale": size["embed_dim"] ** 0.5}
    return {**size}


Counted = tuple[dict[str, int], int]
"""Sizes, as keys of ``model``, and the parameters they come to."""


def _no_match(config: dict[str, Any], target: int, found: Sequence[Counted]) -> str:
    by, tied = config["matching"]["by"], yaml_text(config["model"]["tied"])
    nearest = [
        f"{key}={value} ({count / target - 1:+.1%})"
        for size, count in found
        for key, value in [next(iter(size.items()))]
    ]
    remedy = "fewer model.num_heads or matching.by=depth" if by == "width" else "matching.by=width"
    return (
        f"matching={config['matching']['axis']} asked for {target:,} parameters with model.tied={tied}, the "
        f"nearest are {' and '.join(dict.fromkeys(nearest))}, more than {MAX_MISMATCH:.0%} off; use {remedy}"
    )


Sizes = Callable[[int], dict[str, int]]
"""The sizes number k = 1, 2, ...: keys of ``model``, the parameters increase with k."""


def _by_width(model: dict[str, Any]) -> Sizes:
    """Widths that the heads can share and that leave hidden_dim / embed_dim as it is."""
    width, hidden = model["embed_dim"], model["hidden_dim"]
    step = math.lcm(model["num_heads"], width // math.gcd(width, hidden))
    return lambda k: {"embed_dim": k * step, "hidden_dim": k * step * hidden // width}


def _by_depth(k: int) -> dict[str, int]:
    return {"num_layers": k}


def solve_sizes(model: dict[str, Any], vocab_size: int, target: int, sizes: Sizes) -> tuple[Counted, Counted]:
    """The largest sizes with at most ``target`` parameters and the next ones, each with its count.

    Where the smallest are too large, both are these.
    """

    def count(k: int) -> int:
        return count_parameters({**model, **sizes(k)}, vocab_size)

    too_many = 1
    while count(too_many) <= target:
        too_many *= 2
    low = 0
    while too_many - low > 1:
        middle = (low + too_many) // 2
        low, too_many = (middle, too_many) if count(middle) <= target else (low, middle)
    low = max(low, 1)
    return (sizes(low), count(low)), (sizes(too_many), count(too_many))


def _match_flops(config: dict[str, Any]) -> Solution:
    sizes, _ = _match_parameters(config)
    vocab_size = vocab_size_of(config)
    ours = train_flops_per_token(with_values(config, sizes)["model"], vocab_size)
    theirs = train_flops_per_token(reference_of(config["model"]), vocab_size)
    tokens, counts = _scaled_budget(config, theirs / ours)
    totals = {"train_flops": counts["tokens"] * ours, "target_train_flops": counts["target_tokens"] * theirs}
    return {**sizes, **tokens}, {**counts, **totals}


def _match_time(config: dict[str, Any]) -> Solution:
    # At the sizes asked for: at solved ones the seconds would mix what tying costs with what width does.
    from tielab.timing import seconds_per_token

    measured = seconds_per_token(config, reference_of(config["model"]))
    ours, theirs = (measured[arm]["median"] for arm in ("adjusted", "reference"))
    tokens, counts = _scaled_budget(config, theirs / ours)
    return tokens, {**counts, "measured": measured}


def _scaled_budget(config: dict[str, Any], factor: float) -> Solution:
    """The training tokens times a factor, to the nearest optimizer step but at least one."""
    tokens_per_step = config["data"]["batch_size"] * config["data"]["block_size"]
    num_steps = -(-planned_tokens(config) // tokens_per_step)
    tokens = max(1, round(num_steps * factor)) * tokens_per_step
    counts = {"tokens": tokens, "target_tokens": num_steps * tokens_per_step}
    if tokens == counts["target_tokens"]:
        return {}, counts
    in_bytes = {"budget.bytes": None} if config["budget"].get("bytes") is not None else {}
    return {"budget.tokens": tokens, **in_bytes}, counts


def _costs(ours: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
    """How the two arms stand to each other after the solving."""
    vocab_size = vocab_size_of(asked)
    reference = reference_of(asked["model"])
    parameters, target = count_parameters(ours["model"], vocab_size), count_parameters(reference, vocab_size)
    flops = train_flops_per_token(ours["model"], vocab_size) / train_flops_per_token(reference, vocab_size)
    return {
        "parameters": parameters,
        "target_parameters": target,
        "parameter_mismatch": parameters / target - 1,
        "flops_ratio": flops,
        "init_std": initial_std(ours["model"]),
        "target_init_std": initial_std(reference),
    }


def reference_of(model: dict[str, Any]) -> dict[str, Any]:
    """The other arm's model: the same sizes, the tie flipped, and no further qualification.

    A tied arm with a map or a factorised table has the same reference as the plain tied one, so that all
    arms of a comparison meet one number.
    """
    plain = {key: value for key, value in PLAIN_SCHEME.items() if key in model}
    return {**model, **plain, "tied": not model["tied"]}


def with_values(config: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """A copy of a config with dotted keys set."""
    changed = copy.deepcopy(config)
    for key, value in values.items():
        parent, _, leaf = key.rpartition(".")
        lookup(changed, parent)[leaf] = value
    return changed


def vocab_size_of(config: dict[str, Any]) -> int:
    """Rows V of the model's tables, also where only the prepared text says them."""
    asked = config["model"]["vocab_size"]
    return int(_prepared(config).tokenizer.vocab_size if asked is None else asked)


def planned_tokens(config: dict[str, Any]) -> int:
    """Training tokens that the budget asks for, before they are rounded up to whole steps."""
    if config["budget"]["tokens"] is not None:  # needs no text
        return int(config["budget"]["tokens"])
    from tielab.data import budget

    return budget.planned_tokens(config["budget"], _prepared(config))


def _prepared(config: dict[str, Any]) -> "Prepared":
    return _prepared_once(json.dumps(config["data"], sort_keys=True))


@functools.cache
def _prepared_once(data_config: str) -> "Prepared":
    from tielab.data.prepare import prepare

    return prepare(json.loads(data_config))


def check_still_matched(config: dict[str, Any], original: dict[str, Any] | None) -> None:
    """Raise RequestError if a solved size no longer follows from the config.

    Args:
        original: the config of the run whose repetition this is, if it is one.
    """
    matching = config["matching"]
    if original is None:
        if matching["requested"] is not None:
            raise RequestError("matching.requested is written by the tool; ask with matching=AXIS alone")
        return
    if original["matching"]["requested"] is None:
        return
    old, new = ({**computed(c), **_flat_matching(c)} for c in (original, config))
    measured = ("trainer.",) if original["matching"]["axis"] == "time" else ()
    for key in dict.fromkeys([*old, *new]):
        depends = key.startswith((*DEPENDENCIES, "matching.", *measured)) and key not in INDEPENDENT_KEYS
        if depends and old.get(key) != new.get(key):
            raise RequestError(
                f"{key} was {yaml_text(old.get(key))}, is now {yaml_text(new.get(key))}: the size of this "
                "run was solved for the former; repeat its request with "
                f"matching={original['matching']['axis']} instead of its run.yaml"
            )


def _flat_matching(config: dict[str, Any]) -> dict[str, Any]:
    return {f"matching.{name}": value for name, value in config["matching"].items()}


def matching_record(config: dict[str, Any]) -> dict[str, Any] | None:
    """What a record says of the matching; None where size and budget are as asked."""
    matching = config["matching"]
    if matching["requested"] is None:
        return None
    by = None if matching["axis"] == "time" else matching["by"]
    chosen = {"axis": matching["axis"], "adjusted": matching["adjusted"], "by": by}
    return {**chosen, "requested": matching["requested"], **matching["solution"]}


def describe(config: dict[str, Any]) -> str:
    """What was solved and what is not equal, in a line; empty where nothing was."""
    matching, found = config["matching"], config["matching"]["solution"]
    if matching["requested"] is None or found is None:
        return ""
    changes = [
        f"{key} {yaml_text(matching['requested'].get(key))} -> {yaml_text(value)}"
        for key, value in found["solved"].items()
    ]
    costs = f"parameters {found['parameter_mismatch']:+.2%}, FLOPs per token x {found['flops_ratio']:.3f}"
    line = f"matching={matching['axis']}: {', '.join(changes)}; against the other arm: {costs}"
    ours, theirs = found.get("init_std"), found.get("target_init_std")  # an older solution has neither
    if ours == theirs:
        return line
    return f"{line}, init_std {ours:.4g} for {theirs:.4g} (model.init_std={theirs:.4g} keeps it)"
