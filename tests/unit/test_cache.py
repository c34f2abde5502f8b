"""Nothing is run out of a cache that another user could have filled."""

from pathlib import Path

import pytest

from kvdoctor.engines import cache
from kvdoctor.engines.cache import cache_directory, why_distrusted
from kvdoctor.engines.store import Store
from kvdoctor.errors import Unassessed


@pytest.fixture
def location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cache"
    (path / "engines").mkdir(parents=True)
    monkeypatch.setenv("KVDOCTOR_CACHE_DIR", str(path))
    return path


def test_a_cache_of_ones_own_is_used(location: Path) -> None:
    with cache_directory() as (used, note):
        assert (used, note) == (location, None)
    assert Store().all() == ()
    assert Store().find("0.27.1") is None


def test_a_cache_that_is_not_there_yet_is_made(location: Path) -> None:
    (location / "engines").rmdir()
    location.rmdir()
    with cache_directory() as (used, note):
        assert (used.is_dir(), note) == (True, None)
    assert why_distrusted(location / "none") is None


def test_a_cache_that_every_user_can_write_is_not_used(location: Path) -> None:
    location.chmod(0o1777)
    reason = f"the cache directory {location} can be written by every user"
    with cache_directory() as (used, note):
        assert used != location
        assert note == f"{reason}; using a temporary one"
    assert not used.exists()
    with pytest.raises(Unassessed) as caught:
        Store().find("0.27.1")
    assert caught.value.message == f"{reason}, and what lies there would be run"


def test_engines_that_every_user_can_write_are_not_used(location: Path) -> None:
    (location / "engines").chmod(0o777)
    with pytest.raises(Unassessed, match="engines can be written by every user"), Store().changing(lambda _step: None):
        pass


def test_a_cache_of_another_user_is_not_used_and_roots_is(location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = location.stat().st_uid
    monkeypatch.setattr(cache.os, "geteuid", lambda: owner + 1)  # type: ignore[attr-defined]
    assert why_distrusted(location) == (None if owner == 0 else "belongs to another user")
    assert why_distrusted(Path("/")) is None
