"""What a model reads is tried, not believed: where classifiers answer, who looks ahead, what padding and masks do."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import whence
from tests import architectures
from whence.errors import InputError, NotSupported
from whence.models import Reads, reads_forward, reads_of
from whence.tasks import Scalar, Term

LONG, SHORT = [2, 17, 23, 9, 41, 30, 12, 8, 3], [2, 19, 44, 7, 3]
TWO_PART = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "decoder_start_token_id": 3,
}
FRAME = {"cls_token_id": 2, "sep_token_id": 3}
XLM = {"emb_dim": 32, "n_layers": 2, "n_heads": 4, "pad_index": 0, "n_langs": 1}
SMALL = {"n_layer": 2, "n_head": 4, "n_embd": 32, "n_positions": 64}
# name: model type, what differs from architectures.COMMON
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "bart": ("bart", TWO_PART),
    "t5": ("t5", {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}),
    "modernbert mean": ("modernbert", {**FRAME, "classifier_pooling": "mean", "local_attention": 8}),
    "modernbert-decoder": ("modernbert-decoder", FRAME),
    "eurobert late": ("eurobert", {"classifier_pooling": "late"}),
    "eurobert bos": ("eurobert", {"classifier_pooling": "bos"}),
    "xlnet": ("xlnet", {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48}),
    "xlm": ("xlm", XLM),
    "xlm mean": ("xlm", {**XLM, "summary_type": "mean"}),
    "fnet": ("fnet", {}),
    "convbert": ("convbert", {"embedding_size": 32}),
    "nystromformer": ("nystromformer", {"num_landmarks": 4, "segment_means_seq_len": 4}),
    "ctrl": ("ctrl", {**SMALL, "dff": 48}),
    "bloom": ("bloom", SMALL),
    "openai-gpt": ("openai-gpt", SMALL),
    "diffllama": ("diffllama", {"num_key_value_heads": 2}),
    "mamba": ("mamba", {"state_size": 4}),
    "ibert": ("ibert", {"type_vocab_size": 1}),
    "longformer": ("longformer", {"attention_window": 4, "type_vocab_size": 1}),
    "funnel": ("funnel", {"d_model": 32, "block_sizes": [1, 1, 1], "n_head": 4, "d_head": 8, "d_inner": 48}),
}
CLASSIFIER = "sequence-classification"


def build(name: str, task: str = CLASSIFIER, **implementation: Any) -> PreTrainedModel:
    kind, changes = MODELS[name]
    if kind not in CONFIG_MAPPING:
        pytest.skip(f"this transformers has no {kind}")
    left_out = {"funnel": ("bos_token_id", "num_hidden_layers"), "xlnet": ("max_position_embeddings",)}.get(kind, ())
    common = {**architectures.COMMON, "max_position_embeddings": 80}
    common = {key: value for key, value in common.items() if key not in left_out}
    torch.manual_seed(0)
    model = architectures.AUTO[task].from_config(CONFIG_MAPPING[kind](**{**common, **changes}), **implementation)
    architectures.draw_weights(model)
    return model.double().eval()  # type: ignore[no-any-return]


def loaded(name: str, task: str = CLASSIFIER) -> whence.Explainer:
    return whence.load(build(name, task), task=task)


def row(ids: list[int]) -> dict[str, list[int]]:
    return {"input_ids": ids}


def logit(model: Any, ids: list[int], target: int = 1) -> float:
    with torch.no_grad():
        return float(
            model(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)).long()).logits[0, target]
        )


# ---- what is found --------------------------------------------------------------------------------------------------


def test_the_listed_families(architecture: str) -> None:
    decoder = architecture in architectures.DECODERS
    expected = Reads(forward=decoder, at="last" if decoder else "first", by_id=decoder)
    assert reads_of(architectures.model(architecture)) == expected


@pytest.mark.parametrize(
    ("name", "at", "forward", "padding"),
    [
        ("bart", "elsewhere", False, False),
        ("t5", "elsewhere", False, False),
        ("modernbert mean", "every", False, False),
        ("modernbert-decoder", "last", True, False),
        ("eurobert late", "every", False, False),
        ("eurobert bos", "first", False, False),
        ("xlnet", "last", False, True),
        ("xlm", "first", False, False),
        ("xlm mean", "every", False, True),
        ("fnet", "first", False, True),
        ("convbert", "first", False, True),
        ("nystromformer", "first", False, True),
        ("ctrl", "last", True, False),
        ("bloom", "last", True, False),
        ("longformer", "first", False, False),
    ],
)
def test_other_families(name: str, at: str, forward: bool, padding: bool) -> None:
    model = build(name)
    found = reads_of(model)
    assert (found.at, found.forward, found.padding) == (at, forward, padding)
    assert reads_of(model) is found  # once


@pytest.mark.parametrize("name", ["bloom", "openai-gpt", "mamba", "diffllama", "ctrl"])
def test_decoders_that_do_not_say_so(name: str) -> None:
    assert reads_forward(build(name, "causal-lm"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_in_other_precisions(dtype: torch.dtype) -> None:
    for name, expected in (("bert", (False, "first")), ("gpt2", (True, "last"))):
        found = reads_of(architectures.build(name, dtype))
        assert (found.forward, found.at, found.padding, found.mask) == (*expected, False, False)


class Pooled(BertForSequenceClassification):
    """A classifier that reads every token, by one rule or another."""

    how = "mean"

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **more: Any) -> SequenceClassifierOutput:
        states = self.bert(input_ids, attention_mask=attention_mask).last_hidden_state
        real = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        weights = real.to(states.dtype)
        if self.how == "fading":
            weights = weights / torch.arange(1, input_ids.shape[1] + 1)
        pooled = (states * weights[:, :, None]).sum(1) / weights.sum(1, keepdim=True)
        return SequenceClassifierOutput(logits=self.classifier(pooled))


def pooled(how: str, *, silent: bool = False) -> Pooled:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=60, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, num_labels=3
    )
    model = Pooled(config).double().eval()
    model.how = how
    if silent:
        nn.init.zeros_(model.classifier.weight)  # equal logits whatever is read, until somebody trains it
    return model


def test_pooling_of_somebody_s_own() -> None:
    assert reads_of(pooled("mean")).at == "every"
    assert reads_of(pooled("mean", silent=True)).at == "every"
    assert reads_of(pooled("fading")).at == "elsewhere"


# ---- how it is found ------------------------------------------------------------------------------------------------


def test_the_try_leaves_no_trace() -> None:
    model = build("ctrl").train()
    heard: list[Any] = []
    handle = model.register_forward_hook(lambda *_: heard.append(1))
    table: Any = model.get_input_embeddings()
    before = table.register_forward_pre_hook(lambda *_: heard.append(2))
    state, weights = torch.get_rng_state(), pickle.dumps(model.state_dict())
    with torch.inference_mode():
        assert reads_of(model).at == "last"
    assert heard == []
    assert torch.equal(torch.get_rng_state(), state)
    assert pickle.dumps(model.state_dict()) == weights
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    assert all(module.training for module in model.modules())
    model.eval()
    model(torch.tensor([SHORT]))
    assert heard == [2, 1]
    handle.remove()
    before.remove()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


class Particular(BertForSequenceClassification):
    """A classifier that cannot be tried on ids alone."""

    def forward(self, input_ids: Tensor, *, token_type_ids: Tensor, **more: Any) -> SequenceClassifierOutput:  # type: ignore[override]
        return super().forward(input_ids, token_type_ids=token_type_ids, **more)  # type: ignore[return-value]


def test_a_model_that_cannot_be_tried_is_taken_at_its_word() -> None:
    shared = architectures.model("bert")
    model = Particular(shared.config).double().eval()
    model.load_state_dict(shared.state_dict())
    assert reads_of(model) == Reads(False, None, False)
    found = whence.load(model, architectures.tokenizer(), task="classification").explain("a good film", "rollout")
    np.testing.assert_array_equal(
        found.scores, whence.load(shared, architectures.tokenizer()).explain("a good film", "rollout").scores
    )


def test_weights_that_are_no_numbers_say_nothing() -> None:
    model = build("modernbert mean")
    table: Any = model.get_input_embeddings()
    kept = table.weight.detach().clone()
    with torch.no_grad():
        table.weight.fill_(torch.nan)
    assert reads_of(model).at is None
    with torch.no_grad():
        table.weight.copy_(kept)
    assert reads_of(model).at == "every"


# ---- where answers are read -----------------------------------------------------------------------------------------


def test_scores_of_an_encoder_and_decoder_are_not_cut() -> None:
    explainer = loaded("bart")
    found = explainer.explain(row(LONG), "occlusion", target=1, replace="pad")
    changed = [[*LONG[:k], 0, *LONG[k + 1 :]] for k in range(1, 8)]
    wanted = [logit(explainer.model, LONG) - logit(explainer.model, ids) for ids in changed]
    np.testing.assert_allclose(found.scores[1:-1], wanted, atol=1e-12)
    assert np.abs(found.scores[1:-1]).min() > 1e-6


@pytest.mark.parametrize("name", ["modernbert-decoder", "ctrl", "modernbert mean", "eurobert late"])
def test_gradients_are_those_of_autograd(name: str) -> None:
    explainer = loaded(name)
    table: Any = explainer.model.get_input_embeddings()
    x = table.weight[LONG][None].detach().requires_grad_(True)
    seen = torch.ones(1, len(LONG), dtype=torch.long)
    (gradient,) = torch.autograd.grad(explainer.model(inputs_embeds=x * 1, attention_mask=seen).logits[0, 1], x)
    found = explainer.explain(row(LONG), "gradient-x-input", target=1, aggregate="sum").scores
    np.testing.assert_allclose(found, (gradient * x).sum(-1)[0].detach(), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(
    "name", ["modernbert mean", "eurobert late", "xlm mean", "xlnet", "modernbert-decoder", "ctrl"]
)
def test_rows_of_attention_where_the_answer_is_read(name: str) -> None:
    """By hand, from transformers' own eager attention."""
    with torch.no_grad():
        shown = build(name, attn_implementation="eager")(torch.tensor([LONG]), output_attentions=True).attentions
    maps = [a[0].mean(0) for a in shown]
    product, eye = torch.eye(len(LONG)).double(), torch.eye(len(LONG)).double()
    for a in maps:
        product = (a + eye) / (a + eye).sum(-1, keepdim=True) @ product
    read = slice(-1, None) if reads_of(build(name)).at == "last" else slice(None)
    explainer = loaded(name)
    for method, matrix in (("raw-attention", maps[-1]), ("rollout", product)):
        wanted = matrix[read].mean(0)
        np.testing.assert_allclose(explainer.explain(row(LONG), method, target=1).scores, wanted, atol=1e-6)
        _, other = explainer.explain([row(SHORT), row(LONG)], method, target=1)
        np.testing.assert_allclose(other.scores, wanted, atol=1e-6)


def test_a_mean_over_tokens_is_the_mean_of_the_rows_of_each() -> None:
    """Also of gradients: `gae`, with its matrices written out, from a plain forward of eager attention."""
    model = build("modernbert mean", attn_implementation="eager")
    output = model(torch.tensor([SHORT]), output_attentions=True)
    gradients = torch.autograd.grad(output.logits[0, 2], output.attentions)
    relevance = torch.eye(len(SHORT)).double()
    for a, g in zip(output.attentions, gradients, strict=True):
        relevance = relevance + (a * g)[0].clamp(min=0).mean(0) @ relevance
    explainer = loaded("modernbert mean")
    single = explainer.explain(row(SHORT), "gae", target=2).scores
    np.testing.assert_allclose(single, relevance.mean(0).detach(), atol=1e-6)
    batched = explainer.explain([row(LONG), row(SHORT)], "gae", target=2)[1].scores
    np.testing.assert_allclose(batched, single, rtol=1e-6)
    every = explainer.explain(row(SHORT), "gae", target="all")
    np.testing.assert_allclose(every[2].scores, single, rtol=1e-6)


def test_a_mean_leaves_out_what_a_row_hides() -> None:
    explainer = loaded("modernbert mean")
    hidden = {"input_ids": [*SHORT, 7, 7], "attention_mask": [1] * len(SHORT) + [0, 0]}
    for method in ("gae", "raw-attention"):
        found = explainer.explain(hidden, method, target=2).scores
        np.testing.assert_allclose(
            found[: len(SHORT)], explainer.explain(row(SHORT), method, target=2).scores, rtol=1e-6
        )
        np.testing.assert_allclose(found[len(SHORT) :], 0, atol=1e-12)


def test_shares_of_a_scalar() -> None:
    terms = [Term((0,), (1,), (0, 1, 2), shares=(1 / 3,) * 3), Term((0,), (2,), (1,))]
    scalar = Scalar.stack(terms, torch.device("cpu"))
    assert scalar.positions() == [[0, 1, 2], [1]]
    assert scalar.shared_positions() == [[(0, 1 / 3), (1, 1 / 3), (2, 1 / 3)], [(1, 1.0)]]
    assert scalar.take(torch.tensor([1])).shared_positions() == [[(1, 1.0)]]
    plain = Scalar.stack([Term((0,), (1,), (4,))] * 2, torch.device("cpu"))
    assert plain.share is plain.weight
    nowhere = Scalar.stack([Term((0,), (1,), (), shares=())], torch.device("cpu"))
    with pytest.raises(NotSupported, match="does not read its answer at one token"):
        nowhere.positions()


def test_where_nobody_knows_the_row_methods_that_follow_none_go_on() -> None:
    explainer = whence.load(pooled("fading"), task=CLASSIFIER)
    for method in ("raw-attention", "rollout", "gae", "attention-gradcam", "attention-flow", "alti"):
        with pytest.raises(NotSupported, match="does not read its answer at one token"):
            explainer.explain(row(SHORT), method)
    found = explainer.explain(row(SHORT), ["attcat", "attgrads", "gradient-x-input", "occlusion", "random"])
    assert all(np.abs(e.scores).sum() > 0 for e in found.values())


# ---- padding and masks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fnet", "convbert", "nystromformer", "xlm mean", "xlnet"])
def test_a_model_that_reads_padding_is_given_none(name: str) -> None:
    explainer = loaded(name)
    alone, _, together = (explainer.predict(rows) for rows in (row(SHORT), row(LONG), [row(LONG), row(SHORT)]))
    assert isinstance(together, list)
    np.testing.assert_allclose(together[1].probabilities, alone.probabilities, rtol=1e-9)  # type: ignore[union-attr]
    methods = ["occlusion"] if name == "xlnet" else ["occlusion", "gradient-x-input", "integrated-gradients"]
    single = explainer.explain(row(SHORT), methods, target=1)
    batched = explainer.explain([row(LONG), row(SHORT), row(LONG[:7])], methods, target=1)
    for method in methods:
        np.testing.assert_allclose(batched[method][1].scores, single[method].scores, rtol=1e-6, atol=1e-12)


def test_a_model_that_guesses_its_mask_is_given_one() -> None:
    explainer, ids = loaded("xlm"), [2, 17, 0, 9, 41]
    assert reads_of(explainer.model).mask
    alone, together = explainer.predict(row(ids)), explainer.predict([row(LONG), row(ids)])
    assert isinstance(together, list)
    np.testing.assert_allclose(together[1].probabilities, alone.probabilities, rtol=1e-9)  # type: ignore[union-attr]
    found = explainer.explain(row(SHORT), "occlusion", target=1, replace="pad").scores
    wanted = [
        logit(explainer.model, SHORT) - logit(explainer.model, [*SHORT[:k], 0, *SHORT[k + 1 :]]) for k in (1, 2, 3)
    ]
    np.testing.assert_allclose(found[1:-1], wanted, atol=1e-12)


def test_a_config_without_a_first_token() -> None:
    assert loaded("funnel").explain(row(SHORT), "occlusion", target=1).scores.shape == (5,)


# ---- tokens after the one explained ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bloom", "openai-gpt", "mamba"])
def test_no_score_lies_after_what_is_explained(name: str) -> None:
    explainer = loaded(name, "causal-lm")
    methods = ["random", "gradient-x-input"] + ([] if name == "mamba" else ["grads"])
    found = explainer.explain(row(LONG[:6]), methods, continuation=(12, 8, 9), place=0)
    for method in methods:
        assert not found[method].scores[6:].any()
        assert method == "grads" or found[method].scores[:6].any()  # which are cut at 0


# ---- what cannot be tapped ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "task", "method", "message"),
    [
        ("bart", CLASSIFIER, "gradient-x-input", "does not look its tokens up once"),
        ("bart", CLASSIFIER, "gae", "does not look its tokens up once"),
        ("t5", "token-classification", "gradient", "does not look its tokens up once"),
        ("xlnet", CLASSIFIER, "gradient", "does not look its tokens up once"),
        ("xlnet", CLASSIFIER, "attcat", "does not look its tokens up once|do not hand on one vector"),
        ("xlm", CLASSIFIER, "cat", "the layers of .* cannot be told"),
        ("longformer", CLASSIFIER, "rollout", "not a map of all pairs"),
        ("diffllama", "causal-lm", "rollout", "has 3 layers and attends 6 times"),
        ("diffllama", "causal-lm", "attcat", "has 3 layers and attends 6 times"),
        ("mamba", "causal-lm", "gae", "lets nobody see its attention"),
        ("fnet", CLASSIFIER, "rollout", "lets nobody see its attention"),
    ],
)
def test_what_is_not_as_believed_is_refused(name: str, task: str, method: str, message: str) -> None:
    explainer = loaded(name, task)
    place = {"place": 2} if task == "token-classification" else {}
    with pytest.raises(NotSupported, match=message):
        explainer.explain([row(LONG)] * len(LONG), method, **place)  # as many rows as tokens: shapes alone do not tell


def test_rows_in_company_are_those_alone_where_embeddings_come_with_more() -> None:
    """I-BERT's come with a scale, CTRL writes into its own, OpenAI's layers hand on lists."""
    for name in ("ibert", "ctrl", "openai-gpt"):
        explainer = loaded(name)
        single = explainer.explain(row(SHORT), ["gradient-x-input", "cat"], target=1)
        batched = explainer.explain([row(LONG), row(SHORT)], ["gradient-x-input", "cat"], target=1)
        for method, found in single.items():
            np.testing.assert_allclose(batched[method][1].scores, found.scores, rtol=1e-5, atol=1e-12)


def test_the_default_falls_back_and_then_says_what_is_left() -> None:
    with pytest.raises(NotSupported, match=r"neither attnlrp nor gae runs on .*occlusion"):
        loaded("bart").explain(row(LONG), target=1)
    assert loaded("ctrl").explain(row(LONG), target=1).method in ("attnlrp", "gae")


def test_ids_that_a_config_names_and_a_model_lacks_stand_in_for_nothing() -> None:
    model = build("eurobert bos")
    assert model.config.mask_token_id >= model.config.vocab_size
    assert loaded("eurobert bos").explain(row(SHORT), "occlusion", target=1).options["replace"] == "pad"
    with pytest.raises(InputError, match="has no mask token"):
        loaded("eurobert bos").explain(row(SHORT), "occlusion", replace="mask")


def test_a_model_that_answers_with_tuples() -> None:
    model, methods = architectures.build("bert"), ["gae", "occlusion", "gradient-x-input", "attnlrp"]
    wanted = whence.load(model, architectures.tokenizer()).explain("a good film", methods)
    model = architectures.build("bert", return_dict=False)
    found = whence.load(model, architectures.tokenizer()).explain("a good film", methods)
    for method in methods:
        np.testing.assert_array_equal(found[method].scores, wanted[method].scores)
    assert model.config.return_dict is False


def test_paths_in_inference_mode() -> None:
    explainer = whence.load(architectures.model("bert"), architectures.tokenizer())
    methods = ["integrated-gradients", "smoothgrad", "gradient-shap", "deeplift", "deeplift-shap"]
    wanted = explainer.explain("a good film", methods)
    with torch.inference_mode():
        found = explainer.explain("a good film", methods)
    for method in methods:
        np.testing.assert_array_equal(found[method].scores, wanted[method].scores)
