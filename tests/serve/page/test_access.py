"""axe-core finds no serious accessibility violation, in light, dark and on a phone. (axe is vendored for this test only.)"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.serve.page.common import SHORT, fragment, settled
from tests.serve.page.conftest import Visits

AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text(encoding="utf-8")
LOOKS: dict[str, dict[str, Any]] = {
    "light": {},
    "dark": {"color_scheme": "dark"},
    "phone": {"phone": True, "has_touch": True},
}


def violations(page: Page) -> list[str]:
    """What axe finds serious or critical."""
    page.evaluate(AXE)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{v['id']}: {v['help']} at {[n['target'] for n in v['nodes']][:3]}"
        for v in found["violations"]
        if v["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("look", LOOKS)
def test_no_serious_violation(visit: Visits, look: str) -> None:
    page = visit(**LOOKS[look])
    expect(page.locator("#about")).not_to_contain_text("waking")
    assert violations(page) == [], "nothing typed yet"
    page = visit(
        fragment(tab="hide", text=SHORT, method="attcat", hidden="2,4", compare="attcat,alti,rollout"), **LOOKS[look]
    )
    settled(page)
    expect(page.locator("#panel-hide svg.curve .now")).to_have_count(1)
    page.get_by_text("The numbers").click()
    assert violations(page) == [], "hiding words"
    page.get_by_role("tab", name="Layers").click()
    page.locator("tr[data-layer='2'] th button").click()
    assert violations(page) == [], "layers"
    page.get_by_role("tab", name="Compare").click()
    page.locator("#panel-compare summary").click()
    expect(page.locator(".compared tr")).to_have_count(3)
    assert violations(page) == [], "comparing"
    page.get_by_label("Pieces", exact=True).check()
    assert violations(page) == [], "pieces"


def test_no_serious_violation_in_other_states(visit: Visits, guarded_site: str) -> None:
    visit.refusals |= {401, 422}
    page = visit("#tab=layers&model=qa&question=Who+wrote+it%3F&context=It+was+written+by+Anna+Smith+in+Rome.")
    settled(page)
    assert violations(page) == [], "question answering"
    page = visit("#model=masked-lm&text=nothing+to+fill")
    expect(page.get_by_role("alert")).to_be_visible()
    assert violations(page) == [], "an error"
    page = visit(site=guarded_site)
    expect(page.get_by_role("dialog")).to_be_visible()
    assert violations(page) == [], "the token's dialog"
