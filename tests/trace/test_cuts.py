"""Models through which gradients do not pass are refused before anything is scored; honest ones, whatever they detach, are not."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import whence
from tests import architectures
from whence.models import layers_of
from whence.relevance import cuts
from whence.trace import recorder

TEXT = "the film was not charming , but funny !"
FOLLOWING = [
    "gradient-x-input",
    "simple",
    "attcat",
    "gae",
    "lrp",
    "attnlrp",
    "transatt",
    "integrated-gradients",
    "deeplift",
]
FREE = ["raw-attention", "rollout", "alti", "occlusion", "kernel-shap"]  # of gradients
SAYS = "gradients are cut off in .*: raw-attention, rollout, occlusion"
KINDS = [("bert", "sequence-classification"), ("gpt2", "sequence-classification"), ("llama", "causal-lm")]


def build(name: str, task: str = "sequence-classification", **changes: Any) -> Any:
    return architectures.build(name, torch.float32, task=task, **changes)


def loaded(model: Any) -> whence.Explainer:
    return whence.load(model, architectures.tokenizer(type(model).__name__.startswith("Bert")))


def feed_forward(model: Any, layer: int = 1) -> Any:
    block = layers_of(model)[layer]
    return block.intermediate if hasattr(block, "intermediate") else block.mlp


def refused(model: Any, methods: list[str] = FOLLOWING) -> None:
    explainer = loaded(model)
    for method in methods:
        by_rules = method in ("lrp", "transatt", "deeplift")  # these may meet an operation without a rule before
        more = "|has no rule for|runs in float64, and a part of .* does not" if by_rules else ""
        with pytest.raises(whence.NotSupported, match=SAYS + more):
            explainer.explain(TEXT, method)


def forward_under(model: Any, module: Any, context: Callable[[], AbstractContextManager[Any]]) -> None:
    plain = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        with context():
            return plain(*args, **kwargs)

    module.forward = forward


def detached(module: nn.Module, args: Any, output: Any) -> Any:
    return (output[0].detach(), *output[1:]) if isinstance(output, tuple) else output.detach()


# ---- what cuts ------------------------------------------------------------------------------------------------------


def feed_forward_no_grad(model: Any) -> None:
    forward_under(model, feed_forward(model), torch.no_grad)


def feed_forward_inference(model: Any) -> None:
    forward_under(model, feed_forward(model), torch.inference_mode)


def whole_no_grad(model: Any) -> None:
    forward_under(model, model, torch.no_grad)


def whole_inference(model: Any) -> None:
    forward_under(model, model, torch.inference_mode)


def layer_detached(model: Any) -> None:
    layers_of(model)[1].register_forward_hook(detached)


def part_detached(model: Any) -> None:
    feed_forward(model).register_forward_hook(detached)


def first_attention_detached(model: Any) -> None:
    attention = next(m for m in layers_of(model)[0].modules() if type(m).__name__.endswith("Attention"))
    attention.register_forward_hook(detached)


def value_detached(model: Any) -> None:
    """The values of the last layer's attention, in BERT; all of its projection, in GPT-2."""
    names = ("value", "v_proj", "c_attn")
    named = [m for name, m in layers_of(model)[2].named_modules() if name.rsplit(".", 1)[-1] in names]
    named[0].register_forward_hook(detached)


def input_detached(model: Any) -> None:
    feed_forward(model).register_forward_pre_hook(lambda module, args: (args[0].detach(), *args[1:]))


def activation_detached(model: Any) -> None:
    """Rules cover activations as a whole."""
    activation = next(m for m in feed_forward(model).modules() if type(m).__module__ == "transformers.activations")
    activation.register_forward_hook(detached)


def half_detached(model: Any) -> None:
    def half(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        first, second = output.chunk(2, -1)
        return torch.cat([first, second.detach()], -1)

    feed_forward(model).register_forward_hook(half)


def by_data(model: Any) -> None:
    def data(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        actual = output.clone()
        actual[:, ::2] = output.data[:, ::2]
        return actual

    feed_forward(model).register_forward_hook(data)


def by_numpy(model: Any) -> None:
    feed_forward(model).register_forward_hook(
        lambda module, args, output: torch.from_numpy(output.detach().numpy() * 1)
    )


def by_number(model: Any) -> None:
    feed_forward(model).register_forward_hook(lambda module, args, output: output * output.abs().mean().item() * 10)


def gradient_changed(model: Any) -> None:
    def change(module: nn.Module, args: Any, output: Tensor) -> None:
        if output.requires_grad:
            output.register_hook(lambda gradient: gradient * 0)

    feed_forward(model).register_forward_hook(change)


def everywhere(model: Any) -> None:
    """A hook on all modules of the program."""
    marked = feed_forward(model)

    def hook(module: nn.Module, args: Any, output: Any) -> Any:
        return output.detach() if module is marked else None

    nn.modules.module.register_module_forward_hook(hook)


WAYS = [
    feed_forward_no_grad,
    feed_forward_inference,
    whole_no_grad,
    whole_inference,
    layer_detached,
    part_detached,
    first_attention_detached,
    value_detached,
    input_detached,
    activation_detached,
    half_detached,
    by_data,
    by_numpy,
    by_number,
    gradient_changed,
    everywhere,
]


@pytest.fixture(autouse=True)
def hooks_on_all_modules() -> Iterator[None]:
    hooks = nn.modules.module._global_forward_hooks
    before = dict(hooks)
    yield
    for key in [key for key in hooks if key not in before]:
        del hooks[key]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("name", "task"), KINDS)
def test_cut_gradients_are_refused(name: str, task: str, way: Callable[[Any], None]) -> None:
    model = build(name, task)
    way(model)
    refused(model)
    for e in loaded(model).explain(TEXT, FREE, samples=32).values():
        assert np.isfinite(e.scores).all()
        assert e.scores.any()


# torch says that its quantization will end, and that it has no derivative
QUANTIZATION = pytest.mark.filterwarnings("ignore:torch.*quanti", "ignore:quantized")


@QUANTIZATION
@pytest.mark.parametrize(("name", "task"), KINDS)
def test_dynamic_int8_weights(name: str, task: str) -> None:
    model = torch.ao.quantization.quantize_dynamic(build(name, task), {nn.Linear}, dtype=torch.qint8)
    refused(model)
    assert loaded(model).explain(TEXT, "occlusion").scores.any()


@QUANTIZATION
def test_a_part_is_quantized() -> None:
    model = build("bert")
    part = model.bert.encoder.layer[1].output
    part.dense = torch.ao.quantization.quantize_dynamic(nn.Sequential(part.dense), {nn.Linear}, dtype=torch.qint8)[0]
    refused(model)


def test_a_detach_of_little_weight() -> None:
    """In a new model feed-forward parts weigh little beside the residual: gradients are 0.8% off."""
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 12, "hidden_size": 64, "intermediate_size": 256}
    config = architectures.config("bert", **sizes)
    model = architectures.AUTO["sequence-classification"].from_config(config).eval()
    part_detached(model)
    refused(model, ["gradient-x-input", "attnlrp"])


def test_the_sentence_names_the_place() -> None:
    model = build("bert")
    part_detached(model)
    with pytest.raises(
        whence.NotSupported, match=r"cut off in BertIntermediate 'bert\.encoder\.layer\.1\.intermediate' \(at detach\)"
    ):
        loaded(model).explain(TEXT, "gradient")
    with pytest.raises(whence.NotSupported, match=r"neither attnlrp nor gae runs.*gradients are cut off"):
        loaded(model).explain(TEXT)


# ---- actual again ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [False, True])  # True: as on a GPU, where the model's parts are remembered
@pytest.mark.parametrize("way", WAYS)
def test_what_is_cut_later_is_found(way: Callable[[Any], None], late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "launched_by_another_thread", lambda tensor: late)
    explainer = loaded(build("bert"))
    for _ in range(2):
        explainer.explain(TEXT, ["gradient-x-input", "attnlrp"])
    expected = explainer.explain(TEXT, ["gradient-x-input", "attnlrp"])
    way(explainer.model)
    for method in ("gradient-x-input", "attnlrp", "gae"):
        with pytest.raises(whence.NotSupported, match=SAYS):
            explainer.explain(TEXT, method)
    nn.modules.module._global_forward_hooks.clear()
    for module in explainer.model.modules():
        module._forward_hooks.clear()
        module._forward_pre_hooks.clear()
        vars(module).pop("forward", None)
    actual = explainer.explain(TEXT, ["gradient-x-input", "attnlrp"])
    for name in expected:
        np.testing.assert_array_equal(actual[name].scores, expected[name].scores)


def test_a_part_that_is_replaced_later() -> None:
    class Frozen(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

        @torch.no_grad()
        def forward(self, x: Tensor) -> Any:
            return self.module(x)

    explainer = loaded(build("bert"))
    explainer.explain(TEXT, "gradient")
    layer: Any = explainer.model.bert.encoder.layer[1]
    layer.intermediate = Frozen(layer.intermediate)
    with pytest.raises(whence.NotSupported, match=SAYS):
        explainer.explain(TEXT, "gradient")


@pytest.mark.parametrize("late", [False, True])
def test_a_class_that_is_changed_later(late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "launched_by_another_thread", lambda tensor: late)
    explainer = loaded(build("bert"))
    explainer.explain(TEXT, "gradient")
    kind = type(feed_forward(explainer.model))
    plain = kind.forward
    try:
        kind.forward = torch.no_grad()(plain)
        with pytest.raises(whence.NotSupported, match=SAYS):
            explainer.explain(TEXT, "gradient")
    finally:
        kind.forward = plain


def test_an_honest_model_is_followed_once_and_a_dead_one_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    followed: list[cuts.Follower] = []

    class Counted(cuts.Follower):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            followed.append(self)

    monkeypatch.setattr(cuts, "Follower", Counted)
    explainer = loaded(build("bert"))
    before = len(cuts._FOLLOWED)
    for _ in range(3):
        explainer.explain([TEXT, "good"], ["gradient-x-input", "grad-cam"])
    assert len(followed) == 1
    for _ in range(3):
        explainer.explain([TEXT, "good"], ["gae", "attnlrp", "lrp"])
    assert len(followed) <= 5  # by each attention function and precision
    total = len(followed)
    with torch.no_grad():
        next(explainer.model.parameters()).mul_(1.1)
    explainer.explain([TEXT, "good"], ["gae", "attnlrp", "lrp", "gradient-x-input"])
    assert len(followed) == total
    followed.clear()
    del explainer
    import gc

    gc.collect()
    assert len(cuts._FOLLOWED) <= before


# ---- what does not cut ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["sequence-classification", "causal-lm"])
def test_every_architecture_is_followed_to_its_answer(architecture: str, task: str) -> None:
    if task == "causal-lm" and architecture not in architectures.DECODERS:
        pytest.skip("an encoder")
    explainer = loaded(architectures.model(architecture, torch.float32, task))
    row = {"input_ids": [2, 7, 8, 9, 3]}
    for method in ("gradient-x-input", "gae", "attnlrp", "lrp", "integrated-gradients"):
        try:
            assert explainer.explain(row, method).scores.any()
        except whence.NotSupported as error:
            if "has no rule for" not in str(error):
                raise


EXPERTS = {
    "mixtral": {"num_key_value_heads": 2, "num_local_experts": 4},
    "qwen2_moe": {
        "num_key_value_heads": 2, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 16, "decoder_sparse_step": 1,
    },
    "yoso": {}, "xlm": {"emb_dim": 32, "n_layers": 2, "n_heads": 4}, "fnet": {},
    "mamba": {"state_size": 4}, "recurrent_gemma": {"num_key_value_heads": 1, "lru_width": 32}, "rwkv": {},
}  # fmt: skip


@pytest.mark.parametrize("kind", EXPERTS)
def test_routers_and_their_like(kind: str) -> None:
    """Choices are whole numbers; states that begin with zeros of a tensor's shape do not depend on it."""
    if kind not in CONFIG_MAPPING:
        pytest.skip(f"this transformers has no {kind}")
    task = "causal-lm" if kind in ("mamba", "recurrent_gemma", "rwkv") else "sequence-classification"
    torch.manual_seed(0)
    model = architectures.AUTO[task].from_config(CONFIG_MAPPING[kind](**{**architectures.COMMON, **EXPERTS[kind]}))
    architectures.draw_weights(model)
    explainer = whence.load(model.float().eval(), task="classification" if task[0] == "s" else task)
    assert explainer.explain({"input_ids": [2, 7, 8, 9, 3]}, "gradient-x-input").scores.any()


class Careful(nn.Module):
    """A feed-forward part that detaches without harm: the largest number is taken off, and given back."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Any:
        largest = x.detach().amax(-1, keepdim=True)
        with torch.no_grad():
            _ = x.mean()
        return self.module((x - largest) + largest)


def test_a_harmless_detach() -> None:
    plain, model = build("bert"), build("bert")
    layer = model.bert.encoder.layer[1]
    layer.intermediate = Careful(layer.intermediate)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        reference, other = (loaded(copy.deepcopy(m).to(dtype)) for m in (plain, model))
        for method in ("gradient-x-input", "attnlrp"):
            np.testing.assert_allclose(
                other.explain(TEXT, method, 1).scores,
                reference.explain(TEXT, method, 1).scores,
                atol={torch.bfloat16: 0.05}.get(dtype, 1e-4) * np.abs(reference.explain(TEXT, method, 1).scores).max(),
            )


class Checkpointed(nn.Module):
    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return checkpoint(self.module, *args, use_reentrant=False)


class Doubled(torch.autograd.Function):
    """An operation of its owner's: its forward runs without gradients, its backward gives them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return (x.exp().log() * 2).clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0] * 2


def checkpointed(model: Any) -> None:
    layer: Any = layers_of(model)[1]
    layer.intermediate = Checkpointed(layer.intermediate)


def function_of_its_own(model: Any) -> None:
    feed_forward(model).register_forward_hook(lambda module, args, output: Doubled.apply(output))


def frozen(model: Any) -> None:
    for parameter in list(model.parameters())[::2]:
        parameter.requires_grad_(False)


def trains(model: Any) -> None:
    model.train()


def embeddings_detached(model: Any) -> None:
    model.get_input_embeddings().register_forward_hook(detached)


HONEST = [checkpointed, function_of_its_own, frozen, trains, embeddings_detached]


@pytest.mark.parametrize("way", HONEST)
def test_what_only_looks_like_a_cut(way: Callable[[Any], None]) -> None:
    model = build("bert")
    way(model)
    explainer = loaded(model)
    scores = explainer.explain(TEXT, "gradient-x-input", 1).scores
    assert scores.any()
    double = loaded(copy.deepcopy(model).double())
    np.testing.assert_allclose(scores, double.explain(TEXT, "gradient-x-input", 1).scores, rtol=1e-3, atol=1e-5)


def test_whoever_only_listens_hears_one_forward() -> None:
    model, heard = build("bert"), []

    def listen(module: nn.Module, args: Any, output: Any) -> None:
        states = output[0] if isinstance(output, tuple) else output
        heard.append((states.detach().numpy().copy(), states.sum().item()))

    explainer = loaded(model)
    expected = explainer.explain(TEXT, "gradient-x-input").scores
    handle = layers_of(model)[1].register_forward_hook(listen)
    for method in ("gradient-x-input", "attnlrp", "gae"):
        heard.clear()
        explainer.explain(TEXT, method)
        assert len(heard) == 1
    handle.remove()
    assert not layers_of(model)[1]._forward_hooks
    np.testing.assert_array_equal(explainer.explain(TEXT, "gradient-x-input").scores, expected)


def test_hooks_are_the_owner_s_own_again_after_an_error() -> None:
    def fail(module: nn.Module, args: Any, output: Any) -> None:
        raise KeyError("the owner's")

    model: PreTrainedModel = build("bert")
    layer = layers_of(model)[1]
    layer.register_forward_hook(fail)
    with pytest.raises(KeyError, match="the owner's"):
        loaded(model).explain(TEXT, "gradient")
    assert list(layer._forward_hooks.values()) == [fail]


# ---- what relevance cannot see ------------------------------------------------------------------------------------------


def output_compiled(model: Any) -> None:
    """Hidden in a closure, where nothing puts it aside."""
    part: Any = layers_of(model)[1].output
    plain = torch.compile(type(part).forward, backend="eager")
    part.forward = lambda *args: plain(part, *args)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # Dynamo looks at it
@pytest.mark.parametrize("way", [output_compiled, function_of_its_own])
def test_what_no_rule_sees_is_refused(way: Callable[[Any], None]) -> None:
    model = build("bert")
    way(model)
    explainer = loaded(model)
    for method in ("lrp", "transatt", "deeplift"):
        with pytest.raises(
            whence.NotSupported, match=r"has no rule for what was run before .*methods that need none still work"
        ):
            explainer.explain(TEXT, method)
    assert explainer.explain(TEXT, "gradient-x-input").scores.any()


def test_sequences_of_tensors_are_seen() -> None:
    """Iterating over a tensor is an operation like any other."""
    model, plain = build("bert"), build("bert")

    def by_rows(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        return torch.stack(list(output))

    feed_forward(model).register_forward_hook(by_rows)
    for method in ("lrp", "gradient-x-input"):
        np.testing.assert_allclose(
            loaded(model).explain(TEXT, method).scores, loaded(plain).explain(TEXT, method).scores, rtol=1e-4
        )


def test_rows_of_what_was_detached() -> None:
    model = build("bert")
    feed_forward(model).register_forward_hook(lambda module, args, output: torch.stack(list(output.detach())))
    refused(model, ["gradient-x-input", "lrp"])
