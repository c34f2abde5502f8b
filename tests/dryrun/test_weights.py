"""Weights as a worker has them once all is loaded: quantised while loading, and less what is kept in the CPU's memory."""

import pytest

from kvdoctor.errors import Unassessed
from tests.launches import GIB, Launches, Libraries

SAMPLE = "llama-3.1-8b"
AS_BUILT = 14.989
FP8 = 8.489
COUNTED = "weights counted as vLLM quantises them while loading (its process_weights_after_loading, run on the meta device)"


def weights(launches: Launches, *args: str, libraries: Libraries = "own") -> tuple[float, tuple[str, ...]]:
    """The GiB of weights per GPU, and what the report says about the count."""
    plan = launches.plan(SAMPLE, args, libraries=libraries)
    notes = tuple(note for note in plan.assumptions if "weights" in note)
    return round(plan.stages[0].weights_bytes / GIB, 3), notes


def test_weights_that_nothing_changes_are_counted_as_built(launches: Launches) -> None:
    assert weights(launches) == (AS_BUILT, ())


@pytest.mark.parametrize("libraries", ["own", "none"])
def test_weights_quantised_while_loading_are_counted_quantised(launches: Launches, libraries: Libraries) -> None:
    assert weights(launches, "--quantization", "fp8", libraries=libraries) == (FP8, (COUNTED,))


def test_a_repacking_that_cannot_end_here_is_named_and_counted_as_far_as_it_came(launches: Launches) -> None:
    gib, (note,) = weights(launches, "--quantization", "mxfp8")
    assert gib == 8.692
    assert note == f"{COUNTED}; without a GPU not to the end: 128 Mxfp8OnlineLinearMethod (counted as quantised and not packed)"


def test_weights_offloaded_to_the_cpu_are_not_on_the_gpu(launches: Launches) -> None:
    gib, (note,) = weights(launches, "--cpu-offload-gb", "8")
    assert gib == 6.973
    assert note == "8.02 GiB of weights per GPU in the CPU's memory, chosen by vLLM's UVAOffloader"


def test_prefetched_layers_leave_the_gpu_and_their_buffers_stay(launches: Launches) -> None:
    gib, (note,) = weights(launches, "--offload-group-size", "4", "--offload-num-in-group", "2")
    layer = 218_112_000 * 2 / GIB
    assert gib == round(AS_BUILT - 16 * layer + layer, 3)
    assert note == "6.50 GiB of weights per GPU in the CPU's memory, chosen by vLLM's PrefetchOffloader"


def test_weights_that_are_both_quantised_while_loading_and_offloaded_are_not_told_as_a_launch(launches: Launches) -> None:
    # vLLM itself cannot copy them: it has them on meta until they are loaded.
    with pytest.raises(Unassessed, match="Cannot copy out of meta tensor"):
        launches.plan(SAMPLE, ("--quantization", "fp8", "--cpu-offload-gb", "4"))
