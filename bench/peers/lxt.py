"""lxt: AttnLRP of its authors, on GPT-2."""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bench.peers import Job
from bench.shapes import Texts, ids_of


def patch_gpt2() -> None:
    """LXT's own rules put into transformers' GPT-2; past what keeps lxt 2.1 from importing with transformers 5.

    Its packages' __init__ files import copies of other models (BERT, ViT) that no longer load: empty packages stand in for
    them. It puts a plain dict where transformers 5 asks for `get_interface`. This process does nothing else, so the patches stay.
    """
    from transformers.models.gpt2 import modeling_gpt2

    if "lxt.efficient.models" in sys.modules:
        return
    spec = importlib.util.find_spec("lxt")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("no package lxt")
    root = spec.submodule_search_locations[0]
    for name in ("lxt", "lxt.efficient", "lxt.efficient.models"):
        package = types.ModuleType(name)
        package.__path__ = [root + name.removeprefix("lxt").replace(".", "/")]
        sys.modules[name] = package
    from lxt.efficient.models.gpt2 import attnLRP

    class Functions(dict[str, Any]):
        def get_interface(self, name: str, default: Any) -> Any:
            return self.get(name, default)

    for target, patch in attnLRP.items():
        patch(target)
    modeling_gpt2.ALL_ATTENTION_FUNCTIONS = Functions(modeling_gpt2.ALL_ATTENTION_FUNCTIONS)


def attnlrp(job: Job, model: Any, texts: Texts) -> Callable[[], Tensor]:
    """From rows of ids to a score per token on the host, as ours."""
    patch_gpt2()
    kept: list[Tensor] = []

    def run() -> Tensor:
        kept.clear()
        ids = ids_of(texts, model.device)
        hook = model.transformer.drop.register_forward_hook(lambda m, a, y: kept.append(y) or y)
        embeddings = model.get_input_embeddings()(ids).detach().requires_grad_(True)
        # rows of inputs_embeds have no ids to tell padding by: Hugging Face reads the last position, as we do
        logits = model(inputs_embeds=embeddings, attention_mask=torch.ones_like(ids)).logits
        hook.remove()
        (found,) = torch.autograd.grad(logits.max(-1).values.sum(), kept[0])
        return (found * kept[0].detach()).sum(-1).cpu()

    return run


METHODS = {("gpt2", "attnlrp"): attnlrp}
