"""Look up, in a release's source and without importing it, the names that the dry launch needs."""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from kvdoctor.engines import releases
from kvdoctor.engines.needed_names import NEEDED, NeededName
from kvdoctor.engines.source_tree import Found, SourceTree
from kvdoctor.trial import Lost

# More places than this say nothing about where a name has gone.
_MOST_PLACES = 3
# How much two names share when one is taken for the other's new form (difflib's ratio).
_ALIKE = 0.75


def examine(root: Path, version: str | None, needed: Iterable[NeededName] = NEEDED) -> tuple[Lost, ...]:
    """Check the source in ``root``, the folder that has the package in it, of release ``version`` (``None``: as the newest)."""
    tree = SourceTree(root)
    return tuple(lost for name in needed if applies(name, version) for lost in [_check(tree, name)] if lost is not None)


def applies(name: NeededName, version: str | None) -> bool:
    """Tell whether the dry launch asks ``version`` for it; a build that has no number counts as the newest."""
    number = releases.order(version or "")[0][:2]
    if number == (0, 0):
        return name.until is None
    return name.since <= number and (name.until is None or number < name.until)


def _check(tree: SourceTree, name: NeededName) -> Lost | None:
    for place in name.places:
        found = tree.find(place)
        if found is not None:
            detail = _other_arguments(tree, found, name)
            return None if detail is None else Lost(name=place, what="arguments", detail=detail, use=name.use)
    return Lost(name=name.places[0], what="gone", detail=_where_now(tree, name), use=name.use)


def _other_arguments(tree: SourceTree, found: Found, name: NeededName) -> str | None:
    """Say what does not fit between the call of the dry launch and what is defined; ``None`` where it fits or cannot be told."""
    taken = tree.parameters(found) if name.positional is not None else None
    if taken is None or name.positional is None:
        return None
    gone = [] if taken.any_keyword else [keyword for keyword in name.keywords if keyword not in taken.names]
    if gone:
        return f"takes no {', '.join(gone)}"
    if name.positional > len(taken.positional) and not taken.any_positional:
        return f"takes {len(taken.positional)} arguments by position, not {name.positional}"
    given = {*taken.positional[: name.positional], *name.keywords, *name.offered}
    wanted = sorted(taken.required - given)
    return f"also wants {', '.join(wanted)}" if wanted else None


def _where_now(tree: SourceTree, name: NeededName) -> str:
    """Say how much is gone, and where what is called so, or nearly so, stands now."""
    module, _, path = name.places[0].partition(":")
    owner, dot, member = path.partition(".")
    if dot and tree.find(f"{module}:{owner}") is not None:
        return f"{owner} has no such member{_nearly(member, tree.beside(f'{module}:{owner}'))}"
    places = tree.definitions(owner)
    where = f"; {owner} is defined in {', '.join(places)}" if 0 < len(places) <= _MOST_PLACES else ""
    if tree.module(module) is None:
        return f"there is no module {module}{where}"
    return f"the module has no {owner}{where or _nearly(owner, tree.beside(module))}"


def _nearly(name: str, others: Iterable[str]) -> str:
    found = get_close_matches(name, list(others), n=1, cutoff=_ALIKE)
    return f", it has {found[0]}" if found else ""
