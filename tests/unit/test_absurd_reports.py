"""A saved report that somebody edited is a wrong request, and never a bug."""

import json
from typing import Any

import pytest

from kvdoctor.diagnosis import diagnose
from kvdoctor.errors import BadRequest
from kvdoctor.plain import to_plain
from kvdoctor.report.as_json import read_json
from tests.unit import plans


@pytest.mark.parametrize("number", [10**19, -(10**19), 10**400, 1e300, float("inf"), float("nan")])
@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (("layout", "num_blocks"), "layout.num_blocks"),
        (("layout", "groups", 0, "wasted_percent"), "layout.groups[0].wasted_percent"),
        (("layers", 31, "fields", "more"), "layers[31].fields.more"),
    ],
)
def test_a_number_that_no_report_has_is_named(path: tuple[str | int, ...], shown: str, number: float) -> None:
    report: Any = to_plain(diagnose(plans.request(), plans.llama()))
    place = report
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = number
    with pytest.raises(BadRequest) as caught:
        read_json(json.dumps(report))
    assert caught.value.message == f"the saved report has a number that no report has: {shown} is beyond {10**18:,}"
