"""norms, globenc, alti, value-zeroing: the authors' numbers, literal transcriptions, mathematics, behaviour."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import whence
from tests import architectures
from whence.fast import fused
from whence.inputs import Encoded, collate
from whence.models import SPECS
from whence.trace import Block, Trace, record

GOLDEN = Path(__file__).parents[1] / "golden"
NUMBERS = np.load(GOLDEN / "mixing.npz")
METHODS = ("norms", "globenc", "alti", "value-zeroing")
CALLS = [
    ("norms", {}),
    ("globenc", {}),
    ("alti", {}),
    ("alti", {"norm": 2}),
    ("alti", {"ln2": True}),
    ("alti", {"ln2": True, "norm": 2}),
    ("value-zeroing", {}),
]
TEXTS = ["a charming and funny film .", "the plot was dull", "it is not a bad movie , but the actor was too slow !"]

mixing = importlib.import_module("whence.methods.mixing")
parts_and_distances = importlib.import_module("whence.methods.distances")


def explainer(name: str, dtype: torch.dtype = torch.float64) -> whence.Explainer:
    return whence.load(architectures.model(name, dtype), architectures.tokenizer())


def traced(model: Any, rows: list[list[int]], needs: set[str] | None = None) -> Trace:
    """The trace of ids, toward target 0."""
    ex = whence.load(model)
    encoded = [Encoded(tuple(r), *[tuple(r)] * 5) for r in rows]  # only the ids matter here
    batch = collate(encoded, 0, model.device)
    with record(model, ex.session.task, batch, frozenset(needs or {"blocks"})) as recording:
        return recording.toward(architectures.first_logit(ex, encoded, recording))


# ---- the authors' numbers -------------------------------------------------------------------------------------------

GOLDEN_CALLS = {
    "ours": ("alti", {}),
    "ours_l2": ("alti", {"norm": 2}),
    "ours2": ("alti", {"ln2": True}),
    "norm": ("norms", {}),
    "norm2": ("globenc", {}),
    "globenc_cls": ("globenc", {}),
}


@pytest.fixture(scope="module", params=("bert_cls", "roberta_cls", "distilbert_cls"))
def golden(request: pytest.FixtureRequest) -> tuple[str, whence.Explainer]:
    return request.param, whence.load(GOLDEN / "models" / request.param, dtype="float64")


@pytest.mark.parametrize("key", GOLDEN_CALLS)
def test_golden_scores(golden: tuple[str, whence.Explainer], key: str) -> None:
    name, ex = golden
    method, options = GOLDEN_CALLS[key]
    rows, wanted = [], []
    for where in [k for k in NUMBERS.files if k.startswith(f"{name}/") and k.endswith(f"/{key}")]:
        case = where.removesuffix(f"/{key}")
        rows.append({"input_ids": NUMBERS[f"{case}/input_ids"].tolist()})
        if name == "bert_cls":
            zeros = [0] * len(rows[-1]["input_ids"])
            rows[-1]["token_type_ids"] = NUMBERS[f"{case}/{key}.types"].tolist() if key == "globenc_cls" else zeros
        wanted.append(NUMBERS[where])
    assert len(rows) >= 3
    for e, reference in zip(ex.explain(rows, method, **options), wanted, strict=True):
        np.testing.assert_allclose(e.scores, reference, rtol=0, atol=2e-5 * np.abs(reference).max())


def test_golden_matrices(golden: tuple[str, whence.Explainer]) -> None:
    name, ex = golden
    ids = NUMBERS[f"{name}/2/input_ids"].tolist()
    e = ex.explain({"input_ids": ids}, "alti", matrices=True)
    np.testing.assert_allclose(e.matrices["C"], NUMBERS[f"{name}/2/ours.C"], rtol=0, atol=2e-5)
    np.testing.assert_allclose(e.matrices["R"], NUMBERS[f"{name}/2/ours.R"], rtol=0, atol=2e-5)
    e = ex.explain({"input_ids": ids}, "norms", matrices=True)
    np.testing.assert_allclose(e.matrices["R"], NUMBERS[f"{name}/2/norm.R"], rtol=0, atol=1e-12)


# ---- literal transcriptions, with the whole (n, n, d) tensor --------------------------------------------------------


def literal_matrix(block: Block, method: str, options: dict[str, Any]) -> Tensor:
    """C^l of the first row, straight from its definition."""
    a, v, x = block.attention[0], block.value[0], block.x[0]
    n = len(x)
    f = torch.einsum("hij,hje,hed->ijd", a, v, block.output_weight) + torch.eye(n, dtype=x.dtype)[:, :, None] * x
    t, y = f, block.y[0]
    norms = [] if block.norm is None else [block.norm]
    if method == "globenc" or options.get("ln2"):
        norms, y = [*norms, block.second_norm], block.second_norm.output[0]
    for norm in norms:
        root = (norm.variance[0] + (norm.eps if method == "globenc" else 0)).sqrt()
        t = norm.weight * (t - t.mean(-1, keepdim=True) if norm.centred else t) / root[:, None, None]
    if method in ("norms", "globenc"):
        c = t.norm(dim=-1)
        return c / c.sum(-1, keepdim=True) if method == "norms" else c
    p = options.get("norm", 1)
    shift = 1e-6 if options.get("ln2") else 0.0  # the released code's, which ln2 follows to the letter
    size, far = y.norm(p, dim=-1), (t - y[:, None] + shift).norm(p, dim=-1)
    seen = a.sum(0) + torch.eye(n, dtype=x.dtype) > 0
    c = (size[:, None] - far).clamp(min=0) * seen  # what i never looks at adds nothing
    for i in range(n):
        c[i] = c[i] / c[i].sum() if c[i].sum() > 0 else torch.eye(n, dtype=c.dtype)[i]
    return c


@pytest.mark.parametrize(("method", "options"), CALLS[:-1])
@pytest.mark.parametrize("name", SPECS)
def test_literal(name: str, method: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_and_distances, "QUERIES", 3)  # blocks that do not divide the text evenly
    monkeypatch.setattr(parts_and_distances, "CACHE_BYTES", 3 * 2 * 32 * 8)
    trace = traced(architectures.model(name), [[2, 7, 9, 12, 30, 9, 3]])
    row = torch.eye(7, dtype=torch.float64)[trace.readout[0, 0]]
    for block in reversed(trace.blocks):
        row = row @ literal_matrix(block, method, options)
    found = whence.registry.get_method(method)(trace, **options).scores[0]
    torch.testing.assert_close(found, row, rtol=1e-9, atol=1e-12)


def test_value_zeroing_literal() -> None:
    """Zero token j's value in the model itself, run the layer, compare its outputs: cosine by scipy's formula."""
    model = architectures.model("bert")
    trace = traced(model, [[2, 7, 9, 12, 3]])
    row = torch.eye(5, dtype=torch.float64)[0]
    for layer, block in reversed(list(zip(model.bert.encoder.layer, trace.blocks, strict=True))):
        c = torch.zeros(5, 5, dtype=torch.float64)
        for j in range(5):

            def zero(module: Any, args: Any, output: Tensor, j: int = j) -> Tensor:
                output = output.clone()
                output[:, j] = 0
                return output

            handle = layer.attention.self.value.register_forward_hook(zero)
            with torch.no_grad():
                without = layer(block.x)[0]
            handle.remove()
            c[:, j] = 1 - torch.cosine_similarity(without, block.output[0], dim=-1)
        row = row @ (c / c.sum(-1, keepdim=True))
    found = whence.registry.get_method("value-zeroing")(trace).scores[0]
    torch.testing.assert_close(found, row, rtol=1e-7, atol=1e-10)


# ---- mathematics ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPECS)
def test_rows_are_distributions(name: str) -> None:
    for method, options in CALLS:
        for e in explainer(name).explain(TEXTS, method, matrices=True, **options):
            n = len(e)
            for matrix in (e.matrices["C"], e.matrices["R"]):
                assert matrix.shape == (3, n, n)
                assert (matrix >= 0).all()
                if method != "globenc":
                    np.testing.assert_allclose(matrix.sum(-1), 1, atol=1e-12)
            readout = n - 1 if name in architectures.DECODERS else 0
            np.testing.assert_allclose(e.layers, e.matrices["R"][:, readout], atol=1e-12, rtol=1e-9)
            np.testing.assert_allclose(e.scores, e.layers[-1])
            if name in architectures.DECODERS:
                assert (np.triu(e.matrices["C"][0], 1) == 0).all()  # nothing comes from the future, to the last bit


@pytest.mark.parametrize("method", METHODS)
def test_identity_attention_gives_the_identity(method: str) -> None:
    """One head, W_Q = W_K = a large multiple of I, states of equal length: every token attends to itself only."""
    model = architectures.build("bert", num_hidden_layers=2, num_attention_heads=1)
    with torch.no_grad():
        for key, p in model.named_parameters():
            if "LayerNorm" in key:
                p.fill_(1.0 if key.endswith("weight") else 0.0)
            elif "self.query" in key or "self.key" in key:
                p.copy_(torch.eye(32) * 100 if p.dim() == 2 else torch.zeros(32))
    ids = [2, 7, 9, 12, 30, 3]
    assert torch.equal(traced(model, [ids]).blocks[1].attention[0, 0], torch.eye(6, dtype=torch.float64))
    e = whence.load(model).explain({"input_ids": ids}, method, matrices=True)
    diagonal = e.matrices["R"] * np.eye(6)
    np.testing.assert_array_equal(e.matrices["R"], diagonal)
    if method != "globenc":
        np.testing.assert_allclose(diagonal.sum(-1), 1)
        np.testing.assert_allclose(e.scores, [1, 0, 0, 0, 0, 0])


@pytest.mark.parametrize(("method", "options"), CALLS)
def test_permuting_tokens_permutes_scores(method: str, options: dict[str, Any]) -> None:
    model = architectures.build("bert")
    with torch.no_grad():
        model.bert.embeddings.position_embeddings.weight.zero_()
    ex = whence.load(model)
    ids, order = np.array([2, 7, 9, 12, 30, 22, 3]), np.array([0, 4, 2, 6, 1, 5, 3])
    plain = ex.explain({"input_ids": ids.tolist()}, method, **options)
    permuted = ex.explain({"input_ids": ids[order].tolist()}, method, **options)
    np.testing.assert_allclose(permuted.scores, plain.scores[order], rtol=1e-9)


@pytest.mark.parametrize("name", SPECS)
def test_batch_and_padding_do_not_matter(name: str) -> None:
    ex = explainer(name)
    for method, options in CALLS:
        batch = ex.explain(TEXTS, method, **options)
        for text, e in zip(TEXTS, batch, strict=True):
            alone = ex.explain(text, method, **options)
            np.testing.assert_allclose(e.scores, alone.scores, rtol=1e-10, atol=1e-10)
            np.testing.assert_allclose(e.layers, alone.layers, rtol=1e-10, atol=1e-10)


def test_a_row_that_clips_entirely_is_the_identity_row() -> None:
    n = 3
    trace = SimpleNamespace(eye=torch.eye(n), valid=torch.tensor([[True, True, True]]))
    block = SimpleNamespace(attention=torch.ones(1, 2, n, n))
    matrix = torch.tensor([[[0.0, 0, 0], [1, 3, 0], [0, 0, 2]]])
    wanted = torch.tensor([[[1, 0, 0], [0.25, 0.75, 0], [0, 0, 1]]])
    torch.testing.assert_close(mixing.shares(matrix, block, trace), wanted)


# ---- behaviour ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_float32_is_close_to_float64(name: str) -> None:
    for method, options in CALLS:
        double, single = (
            explainer(name, t).explain(TEXTS[2], method, **options) for t in (torch.float64, torch.float32)
        )
        assert single.scores.dtype == np.float32
        np.testing.assert_allclose(single.scores, double.scores, rtol=0, atol=1e-4 * np.abs(double.scores).max())


def test_half_precision_runs() -> None:
    ex = whence.load(architectures.build("bert", torch.bfloat16), architectures.tokenizer())
    for method in METHODS:
        assert np.isfinite(ex.explain(TEXTS[0], method).scores).all()


class Largest(TorchDispatchMode):
    """The largest tensor that any operation makes."""

    numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and out.untyped_storage().nbytes() // out.element_size() == out.numel():
            self.numel = max(self.numel, out.numel())
        return out


@pytest.mark.parametrize(("method", "options"), CALLS[:-1])
def test_no_tensor_of_pairs_and_features(method: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_and_distances, "CACHE_BYTES", 1 << 16)
    model = architectures.build("bert", hidden_size=64, num_attention_heads=2, num_hidden_layers=1)
    n, d = 60, 64
    trace = traced(model, [list(range(2, 2 + n))])
    with Largest() as largest:
        whence.registry.get_method(method)(trace, **options)
    assert largest.numel <= n * n * d / 16


def test_distances_take_one_key_at_a_time_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_and_distances, "CACHE_BYTES", 1)
    n, d = 4, 64
    attention, vectors, goal = torch.rand(1, 1, n, n), torch.randn(1, n, 1, d), torch.randn(1, n, d)
    with Largest() as largest:
        found = parts_and_distances.l1_blocked(attention, vectors, goal)
    assert largest.numel == n * d
    wanted = (goal[:, :, None] - attention[:, 0, :, :, None] * vectors[:, None, :, 0]).abs().sum(-1)
    torch.testing.assert_close(found, wanted)


def test_value_zeroing_takes_as_many_keys_at_once_as_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short text of a wide model: the bound is on features, not on tokens."""
    trace = traced(architectures.build("bert", hidden_size=64, num_hidden_layers=1), [[2, 7, 9, 12, 30, 9, 3]])
    whole = mixing.zeroing_distances(trace.blocks[0])
    monkeypatch.setattr(mixing, "ZEROING_BYTES", 2 * 7 * 6 * 64 * 8)  # two keys: each 7 queries of 6 · 64 doubles
    taken: list[int] = []

    def finish(y: Tensor) -> Tensor:
        taken.append(y.shape[1])
        return trace.blocks[0].finish(y)

    found = mixing.zeroing_distances(replace(trace.blocks[0], finish=finish))
    assert taken == [2, 2, 2, 1]
    torch.testing.assert_close(found, whole, rtol=1e-9, atol=1e-12)


def test_the_fused_kernel_needs_triton(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    look = fused.has_triton.__wrapped__  # what it found is kept for good
    monkeypatch.setitem(sys.modules, "triton", None)
    assert not look()
    (tmp_path / "triton.py").touch()
    monkeypatch.delitem(sys.modules, "triton")
    monkeypatch.syspath_prepend(tmp_path)
    assert look()


@pytest.mark.parametrize(("capability", "wanted"), [((7, 5), False), ((8, 0), True), ((9, 0), True), ((12, 0), True)])
def test_halves_are_multiplied_where_tensor_cores_take_them(
    capability: tuple[int, int], wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert fused.multiplies_halves(torch.ones(1)) is wanted


def test_matrices_are_stored_only_on_request_and_survive_json() -> None:
    ex = explainer("bert")
    assert ex.explain(TEXTS[0], "alti").matrices is None
    e = ex.explain(TEXTS[0], "alti", matrices=True)
    assert e.options["matrices"] is True
    assert whence.Explanation.from_dict(json.loads(json.dumps(e.to_dict()))) == e


def test_several_methods_share_one_pass() -> None:
    both = explainer("bert").explain(TEXTS, ["alti", "attcat", "norms"])
    for method, found in both.items():
        for text, e in zip(TEXTS, found, strict=True):
            np.testing.assert_allclose(e.scores, explainer("bert").explain(text, method).scores, rtol=1e-9, atol=1e-12)


def test_wrong_norm_says_so() -> None:
    with pytest.raises(whence.UnknownName, match=r"norm '3'\. Known: 1, 2\."):
        explainer("bert").explain(TEXTS[0], "alti", norm=3)


@pytest.mark.parametrize("name", ["mpnet", "deberta-v2", "modernbert"])
def test_families_without_a_spec_say_what_still_works(name: str) -> None:
    ex = whence.load(architectures.model(name), architectures.tokenizer())
    with pytest.raises(whence.NotSupported, match=r"no architecture spec for .*add_spec.*still work.*rollout"):
        ex.explain(TEXTS[0], "alti")
    assert len(ex.explain(TEXTS[0], "rollout"))


@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="the fused kernel runs on CUDA only (python -m bench kernels)"
)
@pytest.mark.parametrize(("b", "heads", "n", "d"), [(2, 12, 37, 100), (1, 3, 70, 130), (1, 32, 200, 64)])
def test_fused_kernel_agrees_with_the_blocked_path(b: int, heads: int, n: int, d: int) -> None:
    fused = importlib.import_module("whence.fast.mixing_triton").l1_fused
    torch.manual_seed(0)
    attention = torch.rand(b, heads, n, n, device="cuda").softmax(-1)
    vectors, goal = torch.randn(b, heads, n, d, device="cuda").transpose(1, 2), torch.randn(b, n, d, device="cuda")
    wanted = parts_and_distances.l1_blocked(attention, vectors, goal)
    torch.testing.assert_close(fused(attention, vectors, goal), wanted, rtol=1e-4, atol=0)
