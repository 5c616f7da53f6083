"""A tied model is split when asked, with its optimizer state, and goes on after a stop."""

import lightning.pytorch as L
import pytest
import torch
from torch import nn

from fits import OPTIMIZER, Fit, batches
from tielab.models.tying import BrokenTieError, is_tied
from tielab.training.untie import split, untie_step

STEPS, AT = 8, 0.5  # split after step 4


def fit(untie_at=AT, accumulate=1, **settings):
    return Fit(
        STEPS,
        scheme={"untie_at": untie_at},
        num_validations=2,
        accumulate=accumulate,
        dropout=0.1,
        **settings,
    )


class Watch(L.Callback):
    """Whether the model was tied in each step, and both matrices after it."""

    def __init__(self):
        self.tied, self.matrices = [], []

    def on_before_zero_grad(self, trainer, task, optimizer):
        self.tied.append(is_tied(task.model))

    def on_train_batch_end(self, trainer, task, *_):
        ends = (task.model.token_embed.weight, task.model.lm_head.weight)
        self.matrices.append([end.detach().clone() for end in ends])


@pytest.mark.parametrize(
    ("share", "num_steps", "expected"),
    [
        (None, 8, None),
        (1, 8, None),
        (1.0, 8, None),
        (0, 8, 0),
        (0.5, 8, 4),
        (0.667, 30, 20),
        (0.99, 8, 7),
        (0.5, 1, 0),
    ],
)
def test_the_step_of_the_split(share, num_steps, expected):
    assert untie_step(share, num_steps) == expected


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize(("share", "num_tied"), [(0.0, 0), (0.5, 4), (1.0, 8)])
def test_a_model_is_tied_for_its_share_of_the_steps(share, num_tied, accumulate):
    watch = Watch()
    found = fit(share, accumulate, extra=[watch]).run()
    assert watch.tied == [True] * num_tied + [False] * (STEPS - num_tied)
    assert found.guard.observed is True
    assert found.guard.num_checks == 1 + 1 + 1 + 2 + 1


def test_up_to_the_split_it_is_the_tied_run_bit_for_bit():
    split_run, tied_run = Watch(), Watch()
    fit(extra=[split_run]).run()
    fit(1.0, extra=[tied_run]).run()
    for step in range(4):
        assert all(map(torch.equal, split_run.matrices[step], tied_run.matrices[step])), step
    for step in range(4, STEPS):
        embedding, head = split_run.matrices[step]
        assert not torch.equal(embedding, head), step


def one_split(**rates):
    """A task's model and optimizer after three tied steps, and the optimizer's state of the shared matrix."""
    found = Fit(3, scheme={"untie_at": 1.0, "output_bias": True}, rates=rates).run()
    model, optimizer = found.task.model, found.task.trainer.optimizers[0]
    before = {k: v.clone() for k, v in optimizer.state[model.token_embed.weight].items()}
    split(model, optimizer, {**OPTIMIZER, **rates})
    return model, optimizer, before


def test_the_optimizers_state_is_copied_exactly_and_then_belongs_to_one():
    model, optimizer, before = one_split()
    embedding, head = model.token_embed.weight, model.lm_head.weight
    assert before.keys() == {"step", "exp_avg", "exp_avg_sq"}
    for key, value in before.items():
        for parameter in (embedding, head):
            assert torch.equal(optimizer.state[parameter][key], value), key
        assert optimizer.state[head][key] is not optimizer.state[embedding][key]
    optimizer.zero_grad()
    head.grad = torch.ones_like(head)
    optimizer.step()
    assert torch.equal(optimizer.state[embedding]["exp_avg"], before["exp_avg"])
    assert not torch.equal(optimizer.state[head]["exp_avg"], before["exp_avg"])
    assert (optimizer.state[head]["step"], optimizer.state[embedding]["step"]) == (4, 3)


def test_the_head_gets_the_group_and_the_rate_it_would_have_had_from_the_start():
    for rates, group, scale in (
        ({}, "embeddings", 1.0),
        ({"embedding_learning_rate_scale": 3.0}, "embeddings", 1.0),
        ({"head_learning_rate_scale": 0.5}, "lm_head", 0.5),
    ):
        model, optimizer, _ = one_split(**rates)
        (found,) = (g for g in optimizer.param_groups if any(p is model.lm_head.weight for p in g["params"]))
        assert found["name"] == group
        assert found["initial_lr"] == pytest.approx(OPTIMIZER["learning_rate"] * scale)
        assert found["lr"] == pytest.approx(optimizer.param_groups[0]["lr"] * scale)


class Stop(L.Callback):
    """Writes a checkpoint after a step and ends the fit."""

    def __init__(self, step, path):
        self.step, self.path = step, path

    def on_train_batch_end(self, trainer, task, *_):
        if trainer.global_step == self.step and not trainer.fit_loop.epoch_loop._should_accumulate():
            trainer.save_checkpoint(self.path)
            raise KeyboardInterrupt


def state(found):
    model, optimizer = found.task.model, found.task.trainer.optimizers[0]
    kept = {
        f"{name} {key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state[parameter].items()
    }
    return {**model.state_dict(), **kept}


RATES = {"head_learning_rate_scale": 0.5, "embedding_learning_rate_scale": 2.0}


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch")
@pytest.mark.parametrize(
    ("stop", "rates", "accumulate"),  # before, at, just after and long after the split
    [(3, {}, 1), (3, RATES, 2), (4, {}, 1), (4, RATES, 2), (5, {}, 2), (5, RATES, 1), (7, {}, 1)],
)
def test_stopped_and_resumed_it_is_the_uninterrupted_run_bit_for_bit(stop, rates, accumulate, tmp_path):
    path = tmp_path / "last.ckpt"
    with pytest.raises(SystemExit):
        fit(accumulate=accumulate, rates=rates, extra=[Stop(stop, path)]).run()
    saved = torch.load(path, weights_only=True)
    assert ("model.lm_head.weight" in saved["state_dict"]) is (stop > 4)
    whole = fit(accumulate=accumulate, rates=rates).run()
    train = batches(STEPS * accumulate)  # this loader begins at its first batch whatever has been seen
    rest = train[stop * accumulate :] + train[: stop * accumulate]
    resumed = fit(accumulate=accumulate, rates=rates, train=rest).run(path)
    expected, found = state(whole), state(resumed)
    assert expected.keys() == found.keys()
    assert any(name.startswith("lm_head.weight exp_avg") for name in expected)
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), name
    assert whole.task.validations[-1] == resumed.task.validations[-1]
    assert resumed.guard.observed is True


def tie_again(model):
    model.lm_head = type(model)(64, 8, 32, 1, 4, 32).lm_head
    object.__setattr__(model.lm_head, "_embedding", model.token_embed)


def untie_early(model):
    model.lm_head = nn.Linear(32, 64, bias=False)


@pytest.mark.parametrize(
    ("step", "breakage", "message"),
    [
        (2, untie_early, r"at step 2: model\.tied=true, but lm_head\.weight and token_embed\.weight are two"),
        (6, tie_again, r"at step 6, after the split: .*token_embed\.weight"),
    ],
)
def test_one_matrix_after_the_split_and_two_before_it_fail_the_fit(step, breakage, message):
    class Break(L.Callback):
        def on_train_batch_end(self, trainer, task, *_):
            if trainer.global_step == step:
                breakage(task.model)

    found = fit(extra=[Break()])
    # The task would split it once more before the next step: the guard comes first.
    with pytest.raises(BrokenTieError, match=message):
        found.run()
    assert found.guard.observed is False


def test_the_penalty_is_trained_on_and_in_no_loss_that_is_reported():
    def run(weight):
        scheme = {"head_map": "linear", "head_map_penalty": weight}
        # The same batches once more, so that a penalty in the loss would be seen in it.
        return Fit(6, scheme=scheme, log_every=1, train=batches(1) * 6).run()

    without, with_it = run(0.0), run(1.0)
    first, second = (found.logger.rows for found in (without, with_it))
    assert first[0]["train/loss"] == second[0]["train/loss"]
    assert first[0]["gradient_norm"] != second[0]["gradient_norm"]
    norms = [torch.linalg.matrix_norm(found.task.model.head_map.matrix) for found in (without, with_it)]
    assert norms[1] < norms[0]
    assert with_it.task.initial_loss < 4.5  # ln 64 + ||I|| would be 9.8
    assert with_it.task.validations[-1].perplexity < 70


def test_a_frozen_table_keeps_its_bits_and_has_no_optimizer_entry():
    found = Fit(4, tied=False, scheme={"embed_frozen": True}, rates={"embedding_weight_decay": 0.5})
    before = found.task.model.token_embed.weight.detach().clone()
    head = found.task.model.lm_head.weight.detach().clone()
    found.run()
    model = found.task.model
    assert torch.equal(model.token_embed.weight, before)
    assert not torch.equal(model.lm_head.weight, head)
    entries = [p for g in found.task.trainer.optimizers[0].param_groups for p in g["params"]]
    assert all(p is not model.token_embed.weight for p in entries)
    assert found.guard.observed is False


def test_a_frozen_table_in_the_optimizer_is_a_broken_tie():
    class Enter(L.Callback):
        def on_fit_start(self, trainer, task):
            trainer.optimizers[0].param_groups[1]["params"].append(task.model.token_embed.weight)

    with pytest.raises(
        BrokenTieError, match=r"has 1 optimizer entries and lm_head\.weight 1, expected 0 and 1"
    ):
        Fit(2, tied=False, scheme={"embed_frozen": True}, extra=[Enter()]).run()


def test_each_end_learns_at_its_own_rate():
    """Adam's first step is the learning rate, whatever the gradient."""
    rates = {"embedding_learning_rate_scale": 3.0, "head_learning_rate_scale": 0.25}
    found = Fit(1, tied=False, rates=rates, log_every=1)
    model = found.task.model
    ends = {"token_embed": 3.0, "lm_head": 0.25, "position_embed": 1.0}
    before = {name: model.get_parameter(f"{name}.weight").detach().clone() for name in ends}
    found.run()
    for name, scale in ends.items():
        moved = (model.get_parameter(f"{name}.weight") - before[name]).abs().max().item()
        assert moved == pytest.approx(1e-2 * scale, rel=1e-3), name
    (logged,) = {row["learning_rate"] for row in found.logger.rows if "learning_rate" in row}
    assert logged == pytest.approx(1e-2)
