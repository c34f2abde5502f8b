"""Numbers as findings and reports spell them."""

GIB = 2**30


def grouped(number: int) -> str:
    """1179648 -> 1,179,648."""
    return f"{number:,}"


def gib(size: int) -> str:
    """Bytes in GiB to two places, as vLLM logs them."""
    return f"{size / GIB:,.2f} GiB"


def gib_number(size: int) -> str:
    """Bytes in GiB to two places, where the unit stands elsewhere."""
    return f"{size / GIB:,.2f}"


def gib_apart(one: int, other: int) -> tuple[str, str]:
    """Give two sizes with as many places as tell them apart; sizes within a MiB in bytes."""
    for places in (2, 3):
        texts = tuple(f"{size / GIB:,.{places}f} GiB" for size in (one, other))
        if texts[0] != texts[1]:
            return texts[0], texts[1]
    return f"{one:,} bytes", f"{other:,} bytes"


def percent(share: float) -> str:
    """One decimal; a share that is not zero never reads as zero."""
    return "< 0.1 %" if 0 < share < 0.05 else f"{share:.1f} %"  # noqa: PLR2004 - half of the last decimal shown


def counted(number: int, noun: str) -> str:
    """1 layer, 12 layers."""
    return f"{grouped(number)} {noun}" + ("" if number == 1 else "s")
