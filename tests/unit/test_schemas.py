"""The shipped schemas are those of the dataclasses. ``pytest tests/unit/test_schemas.py --update-golden`` writes them anew."""

from pathlib import Path

import pytest

import kvdoctor.report
from tests.schemas import SHIPPED, schema_text

FOLDER = Path(kvdoctor.report.__file__).parent


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_schema_is_that_of_its_dataclass(name: str, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        (FOLDER / name).write_text(schema_text(name), encoding="ascii")
        return
    assert (FOLDER / name).read_text(encoding="ascii") == schema_text(name)


def test_every_schema_that_ships_is_made_here() -> None:
    assert sorted(path.name for path in FOLDER.glob("*schema.json")) == sorted(SHIPPED)
