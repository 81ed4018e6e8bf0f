"""The walk through a model's modules is torch's own, only faster."""

from __future__ import annotations

import pytest
from torch import nn

from tests.architectures import NAMES, model
from whence.models import modules_of


@pytest.mark.parametrize("name", NAMES)
def test_the_walk_finds_what_torchs_own_finds_in_its_order(name: str) -> None:
    found = model(name)
    assert [id(m) for m in modules_of(found)] == [id(m) for m in found.modules()]


def test_a_module_that_is_there_twice_is_met_once_and_a_missing_one_not_at_all() -> None:
    shared = nn.Sequential(nn.Linear(1, 1), nn.ReLU())
    tree = nn.Module()
    tree.first, tree.none, tree.second = nn.Sequential(nn.Tanh(), shared), None, shared
    tree.tail = nn.ModuleList([shared[1], nn.Identity()])
    assert [id(m) for m in modules_of(tree)] == [id(m) for m in tree.modules()]
