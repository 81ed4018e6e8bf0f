"""The last layer run at the first token alone: the same answers, only where nothing else is read, and nobody's hooks misled."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification
from transformers.modeling_outputs import SequenceClassifierOutput

import whence
from tests import architectures
from whence.errors import ModelError
from whence.fast.first_token import first_token_only, reads_first_token
from whence.models import Lent, layers_of, untouched
from whence.run.perturb import score_rows
from whence.tasks import Term

POST_NORM = {"bert", "roberta", "xlm-roberta", "distilbert", "electra"}


class MeanPooled(BertForSequenceClassification):
    """A classifier that reads every token."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **more: Any) -> SequenceClassifierOutput:
        states = self.bert(input_ids, attention_mask=attention_mask).last_hidden_state
        return SequenceClassifierOutput(logits=self.classifier(states.mean(1)))


def mean_pooled() -> MeanPooled:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, num_labels=3
    )
    return MeanPooled(config).eval()


def own_model(architecture: str = "bert") -> Any:
    """A model that no other test meets, and without the hooks that transformers leaves on one that was asked for its states."""
    shared = architectures.model(architecture)
    own = type(shared)(shared.config).eval()
    own.load_state_dict(shared.state_dict())
    return own


def rows_seen(model: Any) -> tuple[list[int], Any]:
    """How many tokens the last layer's feed-forward part is given, told by a listener that is not a hook."""
    seen: list[int] = []
    module = layers_of(model)[-1].intermediate
    run = module.forward

    def forward(states: Tensor) -> Tensor:
        seen.append(states.shape[1])
        return run(states)  # type: ignore[no-any-return]

    module.forward = forward
    return seen, module


def test_who_qualifies(architecture: str) -> None:
    assert reads_first_token(architectures.model(architecture)) == (architecture in POST_NORM)


@pytest.mark.parametrize("architecture", sorted(POST_NORM))
def test_the_logits_are_the_same(architecture: str) -> None:
    model = own_model(architecture).double()
    ids = torch.randint(5, len(architectures.VOCABULARY), (3, 9), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(9) < torch.tensor([9, 4, 1])[:, None]).long()
    with untouched(model) as lent, torch.no_grad():
        whole = model(input_ids=ids, attention_mask=mask).logits
        with first_token_only(model, lent):
            first = model(input_ids=ids, attention_mask=mask).logits
        after = model(input_ids=ids, attention_mask=mask).logits
    assert torch.allclose(first, whole, rtol=0, atol=1e-12)
    assert torch.equal(after, whole)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_mean_over_tokens_never_qualifies(dtype: torch.dtype) -> None:
    assert not reads_first_token(mean_pooled().to(dtype))
    silent = mean_pooled().to(dtype)
    nn.init.zeros_(silent.classifier.weight)  # equal logits whatever is read, until somebody trains it
    assert not reads_first_token(silent)


class Particular(BertForSequenceClassification):
    """A classifier that cannot be tried on ids alone."""

    def forward(self, input_ids: Tensor, *, token_type_ids: Tensor, **more: Any) -> SequenceClassifierOutput:  # type: ignore[override]
        return super().forward(input_ids, token_type_ids=token_type_ids, **more)  # type: ignore[return-value]


def test_a_model_that_cannot_be_tried_runs_whole() -> None:
    shared = architectures.model("bert")
    model = Particular(shared.config).eval()
    model.load_state_dict(shared.state_dict())
    assert not reads_first_token(model)
    assert whence.load(model, architectures.tokenizer(), task="classification").explain(
        "a good film", method="occlusion"
    ).scores.shape == (5,)


def test_heads_that_read_every_token_do_not_qualify() -> None:
    for name in ("qa", "masked-lm", "causal-lm"):
        assert not reads_first_token(whence.load(name).model)


def test_perturbations_and_gradients_use_it_and_hidden_states_do_not() -> None:
    model = own_model()
    ex = whence.load(model, architectures.tokenizer())
    ex.explain("a good film", method="occlusion")  # the try of the model itself is over
    seen, _ = rows_seen(model)
    for method in ("gradient-x-input", "deeplift"):
        ex.explain("a good film", method=method)
        assert set(seen) == {1}
        seen.clear()
    ex.explain("a good film", method=["gradient-x-input", "grad-cam"])
    assert set(seen) == {5}


def test_the_owner_s_hooks_see_all_rows() -> None:
    model = own_model()
    ex = whence.load(model, architectures.tokenizer())
    seen: list[int] = []
    layers_of(model)[-1].register_forward_hook(lambda module, args, output: seen.append(args[0].shape[1]))
    outputs: list[int] = []
    layers_of(model)[-1].output.register_forward_hook(lambda module, args, output: outputs.append(output.shape[1]))
    ex.explain("a good film", method=["occlusion", "gradient"])
    assert set(seen) == set(outputs) == {5}


def test_transformers_own_hooks_are_nobody_s() -> None:
    """A model that was asked for its states carries them for good; what they collect later is whole."""
    model, ids = own_model(), torch.tensor([[2, 5, 6, 7, 3]])
    before = model(input_ids=ids, output_hidden_states=True).hidden_states
    if not any(module._forward_hooks for module in model.modules()):
        pytest.skip("this transformers collects states without hooks that stay")
    ex = whence.load(model, architectures.tokenizer())
    ex.explain("a good film", method="occlusion")
    seen, module = rows_seen(model)
    ex.explain("a good film", method=["occlusion", "gradient"])
    assert set(seen) == {1}
    del module.forward
    after = model(input_ids=ids, output_hidden_states=True).hidden_states
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    rows: list[int] = []
    layers_of(model)[-1].register_forward_hook(lambda module, args, output: rows.append(args[0].shape[1]))
    seen, _ = rows_seen(model)
    ex.explain("a good film", method="occlusion")
    assert set(rows) == set(seen) == {5}  # the owner's beside them is heeded


def test_hooks_are_gone_after_an_error() -> None:
    model = own_model()
    with pytest.raises(KeyboardInterrupt), first_token_only(model, Lent.of(model)):
        raise KeyboardInterrupt
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())


def test_weights_that_are_no_numbers_say_nothing_about_what_a_model_reads() -> None:
    model = own_model()
    ex = whence.load(model, architectures.tokenizer())
    rows, terms = list(ex.encode("a good film", ex.ask())), [Term((0,), (0,), (0,))]
    weight = model.get_input_embeddings().weight
    kept = weight.detach().clone()
    with torch.no_grad():
        weight[:] = torch.nan
    with pytest.raises(ModelError, match="NaN"):
        score_rows(ex.session, rows, terms, batch_tokens=64)
    with torch.no_grad():
        weight.copy_(kept)
    assert reads_first_token(model)
