"""Numbers as findings and reports spell them."""

GIB = 2**30


def grouped(number: int) -> str:
    """1179648 -> 1,179,648."""
    return f"{number:,}"


def gib(size: int) -> str:
    """Bytes in GiB to two places, as vLLM logs them."""
    return f"{size / GIB:,.2f} GiB"


def percent(share: float) -> str:
    """One decimal; a share that is not zero never reads as zero."""
    return "< 0.1 %" if 0 < share < 0.05 else f"{share:.1f} %"  # noqa: PLR2004 - half of the last decimal shown


def counted(number: int, noun: str) -> str:
    """1 layer, 12 layers."""
    return f"{grouped(number)} {noun}" + ("" if number == 1 else "s")
