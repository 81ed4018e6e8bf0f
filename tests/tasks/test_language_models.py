"""Masked and causal language models: targets, contrasts, continuations, generation; causal attribution is causal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import whence
from tests import architectures
from tests.tasks import matrix

AGREEMENT = "the keys to the cabinet [MASK] on the table ."
PROMPT = "the film was a"
LINEAR = ["attnlrp", "cat", "attcat"]  # methods that are linear in the scalar


@pytest.fixture(scope="module")
def masked() -> whence.Explainer:
    return whence.load(architectures.model("bert", task="masked-lm"), architectures.tokenizer())


@pytest.fixture(scope="module")
def causal() -> whence.Explainer:
    return whence.load(architectures.model("gpt2", task="causal-lm"), architectures.tokenizer(framed=False))


# ---- masked ---------------------------------------------------------------------------------------------------------


def test_a_contrast_is_a_difference(masked: whence.Explainer) -> None:
    contrast = masked.explain(AGREEMENT, LINEAR, contrast=("are", "is"))
    this, that = (masked.explain(AGREEMENT, LINEAR, target=word) for word in ("are", "is"))
    for name in LINEAR:
        np.testing.assert_allclose(contrast[name].scores, this[name].scores - that[name].scores, rtol=1e-7, atol=1e-10)
    e = contrast["cat"]
    assert (e.target, e.contrast) == ("are", "is")
    assert e.probability == pytest.approx(this["cat"].probability / (this["cat"].probability + that["cat"].probability))
    np.testing.assert_allclose(
        masked.explain(AGREEMENT, "cat", target="are", contrast="is").scores, e.scores, rtol=1e-9
    )
    both = masked.explain([AGREEMENT] * 2, "cat", contrast=[("are", "is"), ("is", "are")])
    np.testing.assert_allclose(both[0].scores, -both[1].scores, rtol=1e-9)


def test_relevance_of_a_contrast_is_the_difference_of_relevances(masked: whence.Explainer) -> None:
    """Rules that rescale by sums would lose everything: what starts with as much for as against sums to nothing."""
    contrast = masked.explain(AGREEMENT, "lrp", contrast=("are", "is"), rules="deep-taylor")
    this, that = (masked.explain(AGREEMENT, "lrp", target=w, rules="deep-taylor") for w in ("are", "is"))
    np.testing.assert_allclose(contrast.scores, this.scores - that.scores, rtol=1e-9, atol=1e-12)
    assert contrast.options["relevance_kept"] is None
    assert np.abs(contrast.scores).max() > 1e-4


def test_the_mask_is_the_question_not_the_evidence(masked: whence.Explainer) -> None:
    e = masked.explain(AGREEMENT, "attcat")
    at = e.tokens.index("[MASK]")
    assert e.special[at]
    assert "[MASK]" not in [w.text for w in e.words()]
    assert masked.explain(AGREEMENT, "raw-attention").scores.sum() == pytest.approx(1)  # the row of the mask
    assert "[MASK]" in e.to_text(color=False)
    assert e.to_text(color=False).count("[MASK]") == 1


def test_several_masks_together_or_apart(masked: whence.Explainer) -> None:
    text = "the [MASK] sat on the [MASK] ."
    joint = masked.explain(text, "cat")
    first, second = masked.explain(text, "cat", place="all")
    np.testing.assert_allclose(joint.scores, first.scores + second.scores, rtol=1e-9, atol=1e-12)
    assert joint.target == f"{first.target} {second.target}"
    only = masked.explain(text, "cat", place=1)
    np.testing.assert_allclose(only.scores, second.scores, rtol=1e-9)
    words = masked.explain(text, "cat", target=("film", "table"))
    assert words.target == "film table"
    with pytest.raises(whence.InputError, match="1 word as target for 2"):
        masked.explain(text, "cat", target="film")
    with pytest.raises(whence.InputError, match="give 0 to 1"):
        masked.explain(text, "cat", place=2)


@pytest.mark.parametrize(
    ("text", "asked", "message"),
    [
        ("the keys are cold", {}, r"write \[MASK\] where"),
        ("[MASK]", {}, "nothing but"),
        (AGREEMENT, {"target": "films"}, r"reads as film ##s.*one \[MASK\] per piece"),
        (AGREEMENT, {"target": "zzz"}, "no single token"),
        (AGREEMENT, {"target": 9999}, "outside the model's vocabulary"),
        (AGREEMENT, {"contrast": ("is", "are", "was")}, "one target or a pair"),
        (AGREEMENT, {"target": "is", "contrast": ("is", "are")}, "leave target= out"),
        (AGREEMENT, {"continuation": "x"}, "causal language models"),
        ("the film " * 60 + "[MASK]", {}, "after cutting it"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*longer than")
def test_masked_errors(masked: whence.Explainer, text: str, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(whence.InputError, match=message):
        masked.explain(text, "cat", **asked)


def test_the_embedded_masked_lm_agrees_with_its_subject() -> None:
    ex = whence.load("masked-lm")
    e = ex.explain(AGREEMENT, "attnlrp", contrast=("are", "is"))
    assert e.probability > 0.5
    scores = {w.text: w.score for w in e.words()}
    assert scores["keys"] == max(scores.values())


# ---- causal ---------------------------------------------------------------------------------------------------------


def test_next_token_and_continuation(causal: whence.Explainer) -> None:
    model, tokenizer = causal.model, causal.tokenizer
    ids = tokenizer(PROMPT)["input_ids"]
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, -1]
    answer = causal.predict(PROMPT)
    assert answer.index == int(logits.argmax())
    assert answer.probability == pytest.approx(float(logits.softmax(-1).max()))
    assert len(answer.alternatives) == 20
    e = causal.explain(PROMPT, "cat")
    assert (e.target, e.probability) == (answer.label, pytest.approx(answer.probability))
    assert len(e) == len(ids)

    words = tokenizer("charming journey")["input_ids"]
    with torch.no_grad():
        log_p = model(torch.tensor([ids + words])).logits[0].log_softmax(-1)
    expected = sum(float(log_p[len(ids) - 1 + k, word]) for k, word in enumerate(words))
    whole = causal.explain(PROMPT, "cat", continuation="charming journey")
    assert np.log(whole.probability) == pytest.approx(expected)
    assert whole.segments == (0,) * 4 + (1,) * 2
    assert (whole.text, whole.pair) == (PROMPT, "charming journey")


def test_a_continuation_is_explained_by_the_gradient_of_its_log_probability(causal: whence.Explainer) -> None:
    ids = causal.tokenizer(PROMPT + " charming journey")["input_ids"]
    embeddings = causal.model.get_input_embeddings()(torch.tensor([ids])).detach().requires_grad_()
    log_p = causal.model(inputs_embeds=embeddings).logits[0].log_softmax(-1)
    (log_p[3, ids[4]] + log_p[4, ids[5]]).backward()
    expected = (embeddings.grad * embeddings)[0].sum(-1).detach().numpy()
    e = causal.explain(PROMPT, "gradient-x-input", continuation="charming journey", aggregate="sum")
    np.testing.assert_allclose(e.scores, expected, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("architecture", architectures.DECODERS)
def test_no_score_on_what_comes_later(architecture: str) -> None:
    ex = matrix.explainer("causal LM", architecture)
    runs = [m for m in matrix.METHODS if not matrix.excluded("causal LM", m, architecture)]
    options = {"head_mask": matrix.OPTIONS["head_mask"], "progress": False}
    found = ex.explain("the film was a film", runs, continuation="the film was", place="all", **options)
    for name, explanations in found.items():
        assert len(explanations) == 3
        for k, e in enumerate(explanations):
            assert not np.any(e.scores[5 + k :]), name
    # a question's answer is read at its own token, and a decoder does not look ahead of it
    ex = matrix.explainer("question answering", architecture)
    item = {"question": "is it good ?", "context": matrix.CONTEXT, "answer": "charming"}
    for name in ("grads", "attention-gradcam", "attcat", "random", "transatt"):
        e = ex.explain(item, name, target="start")
        assert not np.any(e.scores[e.target_index + 1 :]), name


@pytest.mark.parametrize("architecture", architectures.DECODERS)
def test_padding_on_either_side_changes_nothing(architecture: str) -> None:
    ex = matrix.explainer("causal LM", architecture)
    prompts = [PROMPT, "the", "the plot is slow and the music is very"]
    methods = ["attcat", "gae", "attnlrp", "gradient-x-input", "rollout", "alti"]
    alone = [ex.explain(p, methods, continuation="good film") for p in prompts]
    for side in ("left", "right"):
        tokenizer = architectures.tokenizer(framed=False)
        before, tokenizer.padding_side = tokenizer.padding_side, side
        try:
            together = ex.explain(prompts, methods, continuation="good film")
            padded = tokenizer(prompts, padding=True)
        finally:
            tokenizer.padding_side = before
        rows = [
            {"input_ids": i, "attention_mask": m}
            for i, m in zip(padded["input_ids"], padded["attention_mask"], strict=True)
        ]
        given = ex.explain(rows, methods, continuation="good film")
        for name in methods:
            for i in range(3):
                np.testing.assert_allclose(together[name][i].scores, alone[i][name].scores, rtol=1e-7, atol=1e-11)
                assert given[name][i].tokens == alone[i][name].tokens
                np.testing.assert_allclose(given[name][i].scores, alone[i][name].scores, rtol=1e-7, atol=1e-11)
        assert [a.index for a in ex.predict(rows)] == [ex.predict(p).index for p in prompts]
        assert (
            ex.generate(rows[1], "cat", max_new_tokens=2).tokens == ex.generate("the", "cat", max_new_tokens=2).tokens
        )


def test_why_this_rather_than_that(causal: whence.Explainer) -> None:
    single = causal.explain(PROMPT, "cat", target="good", contrast="bad")
    pair = causal.explain(PROMPT, "cat", contrast=("good", "bad"))
    np.testing.assert_allclose(pair.scores[:4], single.scores, rtol=1e-9)
    longer = causal.explain(PROMPT, "cat", contrast=("very good film", "very bad film"))
    assert (longer.target, longer.contrast) == ("very good film", "very bad film")
    assert longer.target_index == causal.tokenizer("good")["input_ids"][0]
    assert np.abs(longer.scores[4]) > 0  # "very" is evidence; "good" itself is not
    assert not np.any(longer.scores[5:])
    with pytest.raises(whence.InputError, match="never part"):
        causal.explain(PROMPT, "cat", contrast=("good", "good film"))


def test_chat_templates() -> None:
    tokenizer = architectures.tokenizer(framed=False)
    ex = whence.load(architectures.model("llama", task="causal-lm"), tokenizer)
    messages = {"messages": [{"role": "user", "content": "the film is good"}]}
    with pytest.raises(whence.InputError, match="no chat template"):
        ex.explain(messages, "cat")
    tokenizer.chat_template = "{% for m in messages %}[CLS]{{ m.content }}{% endfor %}[SEP]"
    try:
        e = ex.explain(messages, "cat", continuation="good")
    finally:
        tokenizer.chat_template = None
    assert e.tokens == ("[CLS]", "the", "film", "is", "good", "[SEP]", "good")
    assert list(np.flatnonzero(e.special)) == [0, 5]


def test_generation_is_explained_token_by_token() -> None:
    model = architectures.build("gpt2", task="causal-lm", eos_token_id=None)
    causal = whence.load(model, architectures.tokenizer(framed=False))
    written = causal.generate(PROMPT, "attnlrp", max_new_tokens=4)
    assert written.matrix.shape == (4, 7)
    assert not np.any(np.triu(written.matrix[:, 4:]))
    assert len(written) == len(written.tokens) == 4
    assert (
        written.explanations[0].prediction == written.explanations[0].target
    )  # greedy: what it predicts is what it writes
    assert written.to_text(color=False).count("attnlrp") == 4
    assert whence.Generation.from_dict(written.to_dict()).explanations == written.explanations
    again = causal.generate(PROMPT, ["cat", "attnlrp"], max_new_tokens=4, sample=True, seed=3)
    assert set(again) == {"cat", "attnlrp"}
    assert again["cat"].tokens == causal.generate(PROMPT, "cat", max_new_tokens=4, sample=True, seed=3).tokens
    with pytest.raises(whence.InputError, match="max_new_tokens"):
        causal.generate(PROMPT, "cat", max_new_tokens=0)
    assert len(causal.generate(PROMPT, "cat", max_new_tokens=np.int64(2)).tokens) == 2
    for given in ({"continuation": " door"}, {"place": 1}):
        with pytest.raises(whence.InputError, match="so it takes no"):
            causal.generate(PROMPT, "cat", **given)
    with pytest.raises(whence.NotSupported, match="only causal language models"):
        whence.load("sentiment").generate("good")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"continuation": ""}, "not empty"),
        ({"continuation": "good", "target": "bad"}, "not both"),
        ({"continuation": "good", "place": 3}, "give 0 to 0"),
        ({"place": 0}, "give continuation= too"),
        ({"target": "films"}, "continuation='films'"),
        ({"contrast": "good", "target": "good"}, "the target itself"),
        ({"continuation": [PROMPT]}, "a list of continuations"),
    ],
)
def test_causal_errors(causal: whence.Explainer, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(whence.InputError, match=message):
        causal.explain(PROMPT, "cat", **asked)


def test_long_prompts_lose_their_beginning_aloud(causal: whence.Explainer) -> None:
    with pytest.warns(UserWarning, match="1 of 1 prompts .* lost their beginning"):
        e = causal.explain("good " * 100 + PROMPT, "cat", continuation="charming journey")
    assert (len(e), e.truncated) == (64, True)
    assert e.tokens[-2:] == ("charming", "journey")
    with pytest.raises(whence.InputError, match="on_long='truncate'"):
        causal.explain("good " * 100, "cat", on_long="error")


def test_a_prompt_of_4096_tokens_runs_with_the_gradient_family(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=100, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=8192, pad_token_id=0,
    )  # fmt: skip
    ex = whence.load(LlamaForCausalLM(config).eval())
    row = {"input_ids": [5 + i % 90 for i in range(4096)]}
    found = ex.explain(row, ["gradient", "gradient-x-input", "simple", "cat", "grad-cam", "attnlrp"])
    assert all(e.scores.shape == (4096,) and np.abs(e.scores).max() > 0 for e in found.values())
    monkeypatch.setattr("whence.run.session.free_memory", lambda device: 10**8)
    for method in ("attcat", "alti", "transatt", "deeplift"):
        with pytest.raises(
            whence.ModelError, match=r"4096 tokens takes about \d+ GB, and 0 GB are free.*gradient-x-input"
        ):
            ex.explain(row, method)


# ---- a model whose reasons are known ----------------------------------------------------------------------------------

MARKER, COPIED, NOISE = 1, 2, 3
FAITHFUL = [
    "rollout", "lrp", "attnlrp", "norms", "globenc", "alti", "gradient-x-input", "decoded-simple",
    "integrated-gradients", "deeplift", "occlusion", "lime", "shapley", "kernel-shap",
]  # fmt: skip
FROM_THE_IDENTITY = ["gae", "transatt"]  # R starts as I: the token that is read out begins with 1, whatever it did


@pytest.fixture(scope="module")
def copier() -> whence.Explainer:
    """A two-layer GPT-2 taught to write the first two tokens of a prompt again after a marker."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=16, n_positions=8, n_embd=32, n_layer=2, n_head=2, n_inner=64, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, bos_token_id=None, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(400):
        words = torch.randint(4, 16, (64, COPIED + NOISE))
        rows = torch.cat([words, torch.full((64, 1), MARKER), words[:, :COPIED]], 1)
        logits = model(rows).logits[:, COPIED + NOISE : -1]
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, 16), words[:, :COPIED].reshape(-1))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if loss.item() < 0.01:
            break
    assert loss.item() < 0.1
    return whence.load(model.eval())


@pytest.mark.parametrize("place", range(COPIED))
def test_a_copied_token_gets_the_highest_score(copier: whence.Explainer, place: int) -> None:
    generator = torch.Generator().manual_seed(1)
    rows = [(torch.randperm(12, generator=generator) + 4)[: COPIED + NOISE].tolist() for _ in range(20)]
    inputs = [{"input_ids": [*row, MARKER]} for row in rows]
    continuations = [tuple(row[:COPIED]) for row in rows]
    found = copier.explain(
        inputs,
        FAITHFUL + FROM_THE_IDENTITY,
        continuation=continuations,
        place=place,
        baseline="pad",
        replace="pad",
        progress=False,
    )
    for name, explanations in found.items():
        tokens = COPIED + NOISE if name in FROM_THE_IDENTITY else None
        best = [int(np.argmax(e.scores[:tokens])) for e in explanations]
        assert best.count(place) >= 18, (name, best)  # nine of ten: training is never quite the same
