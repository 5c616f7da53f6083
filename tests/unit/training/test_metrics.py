"""Perplexity and bits per byte against a plain loop and against torchmetrics."""

import math

import pytest
import torch
import torchmetrics.text
from hypothesis import given, settings
from hypothesis import strategies as st

from tielab.training.metrics import BitsPerByte, NatsPerToken, Perplexity, TokenSums, WordPerplexity


def batches(num_windows=23, length=7, vocab_size=11, seed=0):
    g = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(num_windows, length, vocab_size, generator=g)
    targets = torch.randint(vocab_size, (num_windows, length), generator=g)
    scored = torch.rand(num_windows, length, generator=g) < 0.8
    num_bytes = torch.randint(1, 6, (num_windows, length), generator=g)
    return logits, targets, scored, num_bytes


def nats_of(logits, targets):
    return -logits.log_softmax(-1).gather(-1, targets[..., None]).squeeze(-1)


def scores(batch_size, kinds=(NatsPerToken, Perplexity, BitsPerByte)):
    logits, targets, scored, num_bytes = batches()
    metrics = [kind() for kind in kinds]
    for start in range(0, len(targets), batch_size):
        part = slice(start, start + batch_size)
        for metric in metrics:
            metric.update(nats_of(logits[part], targets[part]), scored[part], num_bytes[part])
    return [float(metric.compute()) for metric in metrics]


@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_equal_to_a_plain_loop_for_any_batch_size(batch_size):
    logits, targets, scored, num_bytes = batches()
    nats = tokens = size = 0.0
    for i in range(len(targets)):
        for t in range(targets.shape[1]):
            if scored[i, t]:
                row = logits[i, t].double()
                nats += float(torch.logsumexp(row, 0) - row[targets[i, t]])
                tokens += 1
                size += int(num_bytes[i, t])
    expected = [nats / tokens, math.exp(nats / tokens), nats / (math.log(2) * size)]
    assert scores(batch_size) == pytest.approx(expected, rel=1e-6)


def test_word_perplexity_by_hand():
    """'two words' in three tokens of one nat each: one and a half nats a word, and not e, the perplexity."""
    metric = WordPerplexity(num_words=len(["two", "words"]))
    scored = torch.tensor([[True, True, True, False]])
    metric.update(torch.ones(1, 4), scored, torch.tensor([[3, 1, 5, 7]]))
    assert float(metric.compute()) == pytest.approx(math.exp(1.5))


@given(st.text(alphabet="ab \n", min_size=1, max_size=40), st.integers(1, 8))
def test_word_perplexity_does_not_depend_on_the_tokenizer(text, bytes_per_token):
    """A model that gives each byte 1/256 has one word perplexity however the bytes are grouped."""
    num_words = max(1, len(text.split()))
    sizes = [len(text[i : i + bytes_per_token]) for i in range(0, len(text), bytes_per_token)]
    metric = WordPerplexity(num_words)
    nats = torch.tensor([sizes], dtype=torch.float64) * math.log(256)
    metric.update(nats, torch.ones_like(nats, dtype=torch.bool), torch.tensor([sizes]))
    assert float(metric.compute().log()) == pytest.approx(len(text) * math.log(256) / num_words)


def test_equal_to_torchmetrics():
    logits, targets, scored, _ = batches()
    reference = torchmetrics.text.Perplexity(ignore_index=-100)
    reference.update(logits, targets.masked_fill(~scored, -100))
    assert scores(7)[1] == pytest.approx(float(reference.compute()), rel=1e-5)


def test_not_the_mean_of_batch_perplexities():
    nats = torch.tensor([[1.0], [3.0]])
    metric = Perplexity()
    for row in nats:
        metric.update(row[None], torch.ones(1, 1, dtype=torch.bool), torch.ones(1, 1, dtype=torch.int64))
    assert float(metric.compute()) == pytest.approx(math.exp(2))
    assert float(metric.compute()) != pytest.approx((math.e + math.exp(3)) / 2)


def test_two_tokenizers_of_one_byte_model():
    """A model that gives each byte 1/256 has 8 bits per byte however the bytes are grouped."""
    values = []
    for bytes_per_token in (1, 4):
        num_tokens = 64 // bytes_per_token
        nats = torch.full((1, num_tokens), bytes_per_token * math.log(256), dtype=torch.float64)
        bpb, ppl = BitsPerByte(), Perplexity()
        for metric in (bpb, ppl):
            metric.update(
                nats,
                torch.ones(1, num_tokens, dtype=torch.bool),
                torch.full((1, num_tokens), bytes_per_token),
            )
        values.append((float(bpb.compute()), float(ppl.compute())))
    assert values[0][0] == pytest.approx(8)
    assert values[1][0] == pytest.approx(8)
    assert values[0][1] != pytest.approx(values[1][1])


def test_sums_do_not_lose_small_terms():
    """In float32 a sum of ten million ones and one half would forget the half."""
    metric = TokenSums()
    one = torch.ones(1, 1, dtype=torch.bool), torch.ones(1, 1, dtype=torch.int64)
    metric.update(torch.tensor([[2.0**24]]), *one)
    metric.update(torch.tensor([[0.5]]), *one)
    assert metric.compute().tolist() == [2.0**24 + 0.5, 2, 2]


def test_sums_stay_exact_in_a_module_cast_to_bfloat16():
    module = torch.nn.Module()
    module.metric = TokenSums()
    module.to(torch.bfloat16)
    one = torch.ones(1, 1, dtype=torch.bool), torch.ones(1, 1, dtype=torch.int64)
    for nats in (700_000.0, 1.25):
        module.metric.update(torch.tensor([[nats]]), *one)
    assert module.metric.compute().tolist() == [700_001.25, 2, 2]


def test_a_token_that_is_not_scored_does_not_count_even_if_infinite():
    metric = NatsPerToken()
    scored = torch.tensor([[True, False]])
    metric.update(torch.tensor([[1.0, float("inf")]]), scored, torch.ones(1, 2, dtype=torch.int64))
    assert float(metric.compute()) == 1.0


@given(st.lists(st.integers(1, 10), min_size=1, max_size=6), st.integers(0, 100))
@settings(max_examples=25, deadline=None)
def test_any_split_over_processes_gives_the_same_sums(sizes, seed):
    g = torch.Generator().manual_seed(seed)
    nats = torch.rand(sum(sizes), 3, generator=g, dtype=torch.float64)
    num_bytes = torch.randint(1, 5, nats.shape, generator=g)
    scored = torch.ones_like(nats, dtype=torch.bool)
    whole = TokenSums()
    whole.update(nats, scored, num_bytes)
    parts = torch.zeros(3, dtype=torch.float64)
    for part in torch.split(torch.arange(len(nats)), sizes):
        metric = TokenSums()
        metric.update(nats[part], scored[part], num_bytes[part])
        parts += metric.compute()
    torch.testing.assert_close(parts, whole.compute(), rtol=1e-12, atol=0)
