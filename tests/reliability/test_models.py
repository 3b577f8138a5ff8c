"""Every model of the protocol holds in every state, and breaks without each of its rules: scripts and owners follow them."""

from __future__ import annotations

import pytest

from reliability.model.cases import MODELS, Variant, search_worlds

pytestmark = pytest.mark.release

WORLDS = [(model, world) for model in MODELS for world in MODELS[model].worlds]
VARIANTS = [(model, variant) for model in MODELS for variant in MODELS[model].variants]


@pytest.mark.parametrize(("model", "world"), WORLDS, ids=[f"{model}-{world}" for model, world in WORLDS])
def test_a_model_holds_in_every_state(model: str, world: str) -> None:
    found = search_worlds(MODELS[model], {}, (world,))
    assert not found.violation, found.steps
    assert found.complete, "the search reached its limit"


@pytest.mark.parametrize(("model", "variant"), VARIANTS, ids=[f"{model}-{one.name}" for model, one in VARIANTS])
def test_a_model_breaks_without_each_rule(model: str, variant: Variant) -> None:
    found = search_worlds(MODELS[model], variant.rules, variant.worlds)
    assert variant.finds in found.violation
    assert variant.finds or (not found.violation and found.complete)


@pytest.mark.parametrize("model", MODELS)
def test_each_rule_of_a_model_has_a_variant_without_it(model: str) -> None:
    without = {rule for variant in MODELS[model].variants for rule in variant.rules}
    assert without == set(MODELS[model].rules)
