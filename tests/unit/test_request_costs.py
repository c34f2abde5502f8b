"""What a request costs at several lengths."""

import dataclasses

from kvdoctor.diagnosis import diagnose
from kvdoctor.plan import Plan, RequestsAt
from kvdoctor.report.request_costs import request_costs
from tests.unit import plans


def counted(*at: RequestsAt) -> Plan:
    return dataclasses.replace(plans.qwen3_next(), requests_at=at)


def test_groups_that_cost_the_same_share_a_row_and_all_are_summed_in_bytes() -> None:
    short = RequestsAt(tokens=8192, requests=40.0, group_blocks=(3, 3, 3, 15))
    full = RequestsAt(tokens=262_144, requests=2.9, group_blocks=(3, 3, 3, 456))
    table = request_costs(diagnose(plans.request(), counted(short, full)))
    assert table is not None
    assert [heading for heading, _ in table.headings] == ["blocks of a request of", "8,192 tokens", "262,144 tokens"]
    assert table.rows == (
        ("mamba 0-2, each", "3", "3"),
        ("full_attention 3", "15", "456"),
        ("all groups", "0.32 GiB", "6.13 GiB"),
    )


def test_nothing_is_shown_where_the_blocks_were_not_counted() -> None:
    assert request_costs(diagnose(plans.request(), counted(RequestsAt(tokens=8192, requests=40.0)))) is None
    assert request_costs(diagnose(plans.request(), plans.llama())) is None
