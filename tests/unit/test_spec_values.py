"""What a specs file may hold for a field, by the field's annotation in vLLM's source."""

from typing import Any

import pytest

from kvdoctor.dryrun.spec_values import fault


@pytest.mark.parametrize(
    ("annotation", "default", "value"),
    [
        ("int", ..., 16),
        ("int", -1, -1),
        ("int", 0, 0),
        ("int | None", None, None),
        ("int", None, None),
        ("bool", False, True),
        ("str | None", None, "fp8_ds_mla"),
        ("torch.dtype", ..., "bfloat16"),
        ("KVQuantMode", ..., "NONE"),
        ("int | Fraction", 1, "1/4"),
        ("tuple[tuple[int, ...], ...]", ..., [[4, 8], [2]]),
        ("tuple[torch.dtype, ...]", ..., ["float32"]),
        (tuple[tuple[int, ...], ...], ..., [[4]]),
        (int, ..., 16),
    ],
)
def test_a_value_of_the_fields_kind_is_taken(annotation: Any, default: Any, value: Any) -> None:
    assert fault(annotation, default, value) is None


@pytest.mark.parametrize(
    ("annotation", "value", "wrong"),
    [
        ("int", 0, "is 0, which is less than 1"),
        ("int", -16, "is -16, which is less than 1"),
        ("int", 16.0, "is 16.0, not a whole number"),
        ("int", True, "is true, not a whole number"),
        ("int", "16", "is '16', not a whole number"),
        ("int", None, "is null, not a whole number"),
        ("int", [16], "is a list, not a whole number"),
        ("int", {}, "is an object, not a whole number"),
        ("int", 2**50, "is 1125899906842624, which is too large"),
        ("int | None", "a", "is 'a', not a whole number or null"),
        ("bool", 1, "is 1, not true or false"),
        ("str", 1, "is 1, not text"),
        ("torch.dtype", 2, "is 2, not a name"),
        ("int | Fraction", "-1/4", "is '-1/4', which is not positive"),
        ("int | Fraction", "1/0", "is '1/0', not a number or a fraction like '1/4'"),
        ("tuple[tuple[int, ...], ...]", [[4, 0]], "is 0, which is less than 1"),
        ("tuple[tuple[int, ...], ...]", [4], "is 4, not a list"),
        ("tuple[tuple[int, ...], ...]", [], "is an empty list"),
    ],
)
def test_any_other_value_is_told_what_it_should_be(annotation: str, value: Any, wrong: str) -> None:
    assert fault(annotation, ..., value) == wrong
