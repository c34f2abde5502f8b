"""Layer names fold into ranges, and nothing is lost."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvdoctor.layer_names import fold_names, unfold_names

pieces = st.sampled_from(("model.layers.", "blocks.", ".attn", ".", "-", ",", "x", "é"))
numbers = st.integers(0, 130).map(str) | st.sampled_from(("007", "00", "123456789012"))
names = st.lists(pieces | numbers | st.text(st.characters(exclude_characters="{}"), max_size=3), max_size=6).map("".join)


@pytest.mark.parametrize(
    ("given_names", "folded"),
    [
        ([f"model.layers.{n}.linear_attn" for n in (0, 1, 2, 4, 5, 6)], ("model.layers.{0-2,4-6}.linear_attn",)),
        (["model.layers.3.attn"], ("model.layers.3.attn",)),
        (["a.0", "a.2"], ("a.{0,2}",)),
        (["a.10", "a.9"], ("a.{9-10}",)),
        (["b.0", "a.0"], ("a.0", "b.0")),
        (["a.0.b.0", "a.0.b.1", "a.1.b.0", "a.1.b.1"], ("a.{0-1}.b.{0-1}",)),
        (["a.0.b.0", "a.0.b.1", "a.1.b.0"], ("a.0.b.{0-1}", "a.1.b.0")),
        (["layer007", "layer008"], ("layer007", "layer008")),
        (["a.1", "a.1"], ("a.1",)),
        ([], ()),
        (["", "7"], ("", "7")),
    ],
)
def test_names_that_differ_in_numbers_become_ranges(given_names: list[str], folded: tuple[str, ...]) -> None:
    assert fold_names(given_names) == folded


@given(st.lists(names, max_size=20))
def test_unfolding_gives_back_exactly_the_folded_names(given_names: list[str]) -> None:
    assert unfold_names(fold_names(given_names)) == set(given_names)


@given(st.lists(names, max_size=20), st.randoms(use_true_random=False))
def test_the_order_of_names_does_not_matter(given_names: list[str], rng: random.Random) -> None:
    shuffled = rng.sample(given_names, len(given_names))
    assert fold_names(shuffled) == fold_names(given_names)


def test_sixty_one_layers_fold_to_one_range() -> None:
    assert fold_names(f"model.layers.{n}.self_attn.attn" for n in range(61)) == ("model.layers.{0-60}.self_attn.attn",)


def test_a_name_with_braces_is_shown_as_it_is() -> None:
    assert fold_names(["a.{0}.1", "a.{0}.2"]) == ("a.{0}.1", "a.{0}.2")
