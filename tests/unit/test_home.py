from pathlib import Path

import pytest

from kvdoctor.engines.cache import cache_location
from kvdoctor.errors import BadRequest
from kvdoctor.home import expanded, home_cache
from kvdoctor.launches.model_reference import find_model


def test_a_home_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    assert (expanded("~/a"), home_cache()) == (Path("/somewhere/a"), Path("/somewhere/.cache"))


def test_nobodys_home_stays_as_written() -> None:
    assert expanded("~no-such-user/a") == Path("~no-such-user/a")
    with pytest.raises(BadRequest, match="model ~no-such-user/a does not exist"):
        find_model("~no-such-user/a")


def test_a_user_without_a_home_has_a_cache_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home(_path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", no_home)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("KVDOCTOR_CACHE_DIR", raising=False)
    assert cache_location() == Path("/nonexistent/.cache/kvdoctor")
