"""The embedded models: what they are, that loading is merging, and that others can open what we write."""

import json
import re

import pytest
import torch
from safetensors.torch import load_file

from whence.errors import UnknownName, WhenceError
from whence.models import zoo
from whence.models.zoo.catalogue import BASE, ROOT, find
from whence.models.zoo.loading import PEFT_PREFIX, merge

NAMES = ["sentiment", "topics", "nli", "qa", "masked-lm", "causal-lm"]
ADAPTED = ["sentiment", "topics", "nli", "qa"]
AUTO = {
    "sequence-classification": "AutoModelForSequenceClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "masked-lm": "AutoModelForMaskedLM",
    "causal-lm": "AutoModelForCausalLM",
}
TEXTS = {
    "sentiment": ("it 's a charming and often affecting journey .",),
    "topics": ("Oil prices fell on Monday as traders weighed new supply.",),
    "nli": ("A man plays a guitar on stage.", "A man is asleep."),
    "qa": ("Who built the bridge?", "The bridge was built by Anna Holt in 1902."),
    "masked-lm": ("the film was [MASK] and the ending was worse .",),
    "causal-lm": ("He looked at her and",),
}


@pytest.fixture(scope="module")
def loaded():
    return {name: zoo.load(name) for name in NAMES}


def outputs(model, tokenizer, name):
    with torch.no_grad():
        result = model(**tokenizer(*TEXTS[name], return_tensors="pt"))
    return (result.start_logits, result.end_logits) if name == "qa" else (result.logits,)


# ------------------------------------------------------------------------------------------------ the catalogue


def test_names():
    assert zoo.names() == NAMES
    assert [m.name for m in zoo.models()] == NAMES
    assert {m.task for m in zoo.models()} == set(AUTO)


def test_labels():
    labels = {m.name: m.labels for m in zoo.models()}
    assert labels["sentiment"] == ("negative", "positive")
    assert labels["topics"] == ("World", "Sports", "Business", "Sci/Tech")
    assert labels["nli"] == ("entailment", "neutral", "contradiction")
    assert labels["qa"] == ()


def test_all_files_together_stay_small():
    total = sum(f.stat().st_size for f in ROOT.rglob("*") if f.is_file() and "__pycache__" not in f.parts)
    assert total <= 45e6
    assert sum(m.size_mb for m in zoo.models()) == pytest.approx(total / 1e6, abs=1.0)


@pytest.mark.parametrize("call", [zoo.load, zoo.card, zoo.samples])
def test_unknown_name_says_what_is_near(call):
    with pytest.raises(UnknownName, match="did you mean 'sentiment'") as caught:
        call("sentimnet")
    assert isinstance(caught.value, WhenceError)


@pytest.mark.parametrize("name", NAMES)
def test_card_says_what_must_be_known(name):
    card = zoo.card(name)
    assert card.startswith(f"# {name}\n")
    for heading in ("Architecture", "Data and licences", "Training", "Figures", "Limits", "Intended use"):
        assert f"**{heading}" in card, heading
    for number in re.findall(r"\d+\.\d+", find(name).figure):
        assert number in card
    if name != "causal-lm":
        assert "all-MiniLM-L6-v2" in card
        assert "Apache-2.0" in card
    assert len(card.split()) < 450  # under a page


# ------------------------------------------------------------------------------------------------ loading


@pytest.mark.parametrize("name", NAMES)
def test_loaded_model_is_an_ordinary_one(name, loaded):
    model, tokenizer = loaded[name]
    entry = find(name)
    assert not model.training
    assert model.dtype == torch.float32
    assert model.config._attn_implementation == "sdpa"
    assert model.name_or_path == tokenizer.name_or_path == name
    assert all(torch.isfinite(p).all() for p in model.parameters())
    if entry.labels:
        assert model.config.id2label == dict(enumerate(entry.labels))
        assert model.config.num_labels == len(entry.labels)


@pytest.mark.parametrize("name", NAMES)
def test_loading_draws_no_random_numbers(name):
    torch.manual_seed(0)
    zoo.load(name)
    drawn = torch.rand(4)
    torch.manual_seed(0)
    assert torch.equal(drawn, torch.rand(4))


@pytest.mark.parametrize("name", NAMES)
def test_torchs_default_dtype_does_not_matter(name, loaded):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float16)
    try:
        model, _ = zoo.load(name)
    finally:
        torch.set_default_dtype(before)
    expected = loaded[name][0].state_dict()
    assert all(torch.equal(tensor, expected[key]) for key, tensor in model.state_dict().items())


@pytest.mark.parametrize("name", NAMES)
def test_exported_directory_opens_to_the_same_model(name, loaded, tmp_path):
    import transformers

    model, tokenizer = loaded[name]
    assert zoo.export(name, tmp_path / "new" / name) == tmp_path / "new" / name
    assert (tmp_path / "new" / name / "README.md").read_text(encoding="utf-8") == zoo.card(name)
    auto = getattr(transformers, AUTO[find(name).task])
    again = auto.from_pretrained(tmp_path / "new" / name)
    again_tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "new" / name)
    assert type(again) is type(model)
    assert again.config.id2label == model.config.id2label
    assert again_tokenizer(*TEXTS[name]) == tokenizer(*TEXTS[name])
    mine, theirs = model.state_dict(), again.state_dict()
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[key], theirs[key]) for key in mine)
    # equal weights at other addresses may still round the last bit otherwise
    for a, b in zip(outputs(model, tokenizer, name), outputs(again, again_tokenizer, name), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=2e-5)


def test_base_and_causal_model_are_plain_directories(loaded):
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

    for name, auto, folder in (
        ("masked-lm", AutoModelForMaskedLM, BASE),
        ("causal-lm", AutoModelForCausalLM, ROOT / "causal-lm"),
    ):
        model = auto.from_pretrained(folder, dtype=torch.float32).eval()
        (logits,) = outputs(model, AutoTokenizer.from_pretrained(folder), name)
        torch.testing.assert_close(logits, outputs(*loaded[name], name)[0], rtol=0, atol=2e-5)


def test_tied_weights_stay_one_tensor(loaded):
    masked, causal = loaded["masked-lm"][0], loaded["causal-lm"][0]
    assert masked.get_output_embeddings().weight is masked.get_input_embeddings().weight
    assert causal.get_output_embeddings().weight is causal.get_input_embeddings().weight


def test_dtype_is_cast_after_merging(loaded):
    half, _ = zoo.load("sentiment", torch.bfloat16)
    assert half.dtype == half.config.dtype == torch.bfloat16
    full = loaded["sentiment"][0].state_dict()
    assert all(torch.equal(tensor, full[key].bfloat16()) for key, tensor in half.state_dict().items())


def test_models_do_their_task(loaded):
    for name, label in (("sentiment", "positive"), ("topics", "Business"), ("nli", "contradiction")):
        model, tokenizer = loaded[name]
        (logits,) = outputs(model, tokenizer, name)
        assert model.config.id2label[int(logits.argmax())] == label
    model, tokenizer = loaded["qa"]
    ids = tokenizer(*TEXTS["qa"])["input_ids"]
    start, end = (int(logits.argmax()) for logits in outputs(model, tokenizer, "qa"))
    assert tokenizer.decode(ids[start : end + 1]) == "anna holt"


@pytest.mark.parametrize("name", NAMES)
def test_samples_fit_their_model(name):
    rows = zoo.samples(name)
    labels = set(find(name).labels)
    assert all(row["label"] in labels for row in rows if "label" in row)


# ------------------------------------------------------------------------------------------------ adapters


def test_merge_is_the_formula():
    torch.manual_seed(0)
    w, a, b = torch.randn(5, 4), torch.randn(2, 4), torch.randn(5, 2)
    new = torch.randn(3, 5)
    adapter = {"m.lora_A.weight": a, "m.lora_B.weight": b, "head.weight": new}
    merged = merge({"m.weight": w.clone()}, {PEFT_PREFIX + key: tensor for key, tensor in adapter.items()}, 2.0)
    torch.testing.assert_close(merged["m.weight"], w + 2.0 * b @ a, rtol=0, atol=1e-6)
    assert torch.equal(merged["head.weight"], new)
    assert merged.keys() == {"m.weight", "head.weight"}


@pytest.mark.parametrize("name", ADAPTED)
def test_loaded_weights_are_base_plus_adapter(name, loaded):
    folder = ROOT / "adapters" / name
    settings = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    base = load_file(BASE / "model.safetensors")
    adapter = load_file(folder / "adapter_model.safetensors")
    state = loaded[name][0].state_dict()
    module = "bert.encoder.layer.3.output.dense"
    a, b = (adapter[f"{PEFT_PREFIX}{module}.lora_{x}.weight"].double() for x in "AB")
    expected = base[f"{module}.weight"].double() + settings["lora_alpha"] / settings["r"] * b @ a
    torch.testing.assert_close(state[f"{module}.weight"].double(), expected, rtol=0, atol=1e-5)
    untouched = "bert.embeddings.word_embeddings.weight"
    assert torch.equal(state[untouched], base[untouched].float())


@pytest.mark.parametrize("name", ADAPTED)
def test_adapter_is_in_peft_format(name, loaded):
    folder = ROOT / "adapters" / name
    settings = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    assert settings["peft_type"] == "LORA"
    assert settings["task_type"] == ("QUESTION_ANS" if name == "qa" else "SEQ_CLS")
    adapter = load_file(folder / "adapter_model.safetensors")
    assert all(tensor.dtype == torch.float16 for tensor in adapter.values())
    assert all(key.startswith(PEFT_PREFIX) for key in adapter)
    low_rank = {key.removeprefix(PEFT_PREFIX).partition(".lora_")[0] for key in adapter if ".lora_" in key}
    modules = {n for n, _ in loaded[name][0].named_modules()}
    assert low_rank == {n for n in modules if re.fullmatch(settings["target_modules"], n)}
    whole = {key.removeprefix(PEFT_PREFIX) for key in adapter if ".lora_" not in key}
    assert all(any(part in key.split(".") for part in settings["modules_to_save"]) for key in whole)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ADAPTED)
def test_peft_itself_merges_to_the_same_model(name, loaded):
    peft = pytest.importorskip("peft")
    import transformers

    entry = find(name)
    auto = getattr(transformers, AUTO[entry.task])
    labels = {"num_labels": len(entry.labels)} if entry.labels else {}
    base = auto.from_pretrained(BASE, dtype=torch.float32, **labels)
    theirs = peft.PeftModel.from_pretrained(base, ROOT / "adapters" / name).merge_and_unload().state_dict()
    mine = loaded[name][0].state_dict()
    assert mine.keys() == theirs.keys()
    for key, tensor in mine.items():
        torch.testing.assert_close(tensor, theirs[key], rtol=0, atol=1e-6, msg=key)
