import pytest

from kvdoctor.errors import BadRequest
from kvdoctor.launches.gpus import CATALOGUE, DEFAULT_GPU, GIB, find_gpu

NAMES = [
    "t4",
    "a10g",
    "l4",
    "l40s",
    "a100-40g",
    "a100-80g",
    "h100-80g",
    "h200",
    "gh200",
    "b200",
    "b300",
    "rtx-3090",
    "rtx-4090",
    "rtx-5090",
    "rtx-pro-6000",
    "gb10",
]


def test_the_catalogue_has_every_promised_gpu_once() -> None:
    assert [gpu.name for gpu in CATALOGUE] == NAMES


def test_the_default_is_in_the_catalogue() -> None:
    assert find_gpu(DEFAULT_GPU).device_name == "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize("gpu", CATALOGUE, ids=lambda gpu: gpu.name)
def test_cuda_reports_a_little_less_than_the_driver(gpu: object) -> None:
    gpu = find_gpu(gpu.name)  # type: ignore[attr-defined]
    assert 0.96 * gpu.nvml_memory_bytes < gpu.memory_bytes <= gpu.nvml_memory_bytes
    assert gpu.source
    assert gpu.device_name.isascii()


def test_the_defaults_that_hang_on_the_name_and_memory_see_the_real_ones() -> None:
    """vLLM gives smaller batches to an A100 by name, and larger ones from 160 GiB on by the driver's total."""
    assert "a100" in find_gpu("a100-80g").device_name.lower()
    assert find_gpu("b200").nvml_memory_bytes == 192_265_846_784  # 179.06 GiB
    assert find_gpu("h100-80g").nvml_memory_bytes == 85_520_809_984  # 79.65 GiB
    assert find_gpu("rtx-5090").nvml_memory_bytes == 34_190_917_632  # 31.84 GiB


def test_a_name_is_found_in_any_case_and_with_underscores() -> None:
    assert find_gpu(" RTX_5090 ").name == "rtx-5090"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("h100", "h100-80g"),
        ("H100_80GB", "h100-80g"),
        ("NVIDIA H100 80GB HBM3", "h100-80g"),
        ("rtx4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("a100-80gb", "a100-80g"),
    ],
)
def test_a_usual_name_is_an_alias(text: str, name: str) -> None:
    assert find_gpu(text).name == name


def test_any_other_gpu_is_described_by_capability_and_memory() -> None:
    gpu = find_gpu("9.0:64GiB")
    assert (gpu.compute_capability, gpu.memory_bytes, gpu.nvml_memory_bytes) == ((9, 0), 64 * GIB, 64 * GIB)
    assert (gpu.sm_count, gpu.shared_memory_bytes) == (132, 232_448)
    assert gpu.source == "capability and memory as given, the rest from h100-80g"


def test_a_described_gpu_has_no_products_name() -> None:
    assert find_gpu("8.0:80GiB").device_name == "NVIDIA GPU of compute capability 8.0"


def test_a_described_gpu_takes_the_rest_from_the_nearest_of_its_capability() -> None:
    assert find_gpu("8.7:32GiB").source.endswith("from rtx-3090")
    assert find_gpu("8.9:40G").source.endswith("from l40s")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a100", "Did you mean a100-40g or a100-80g? "),
        ("rtx-4080", "Did you mean rtx-4090"),
        ("mi300x", "`kvdoctor gpus` lists them all"),
        ("", "`kvdoctor gpus` lists them all"),
    ],
)
def test_an_unknown_gpu_is_answered_with_near_names(text: str, hint: str) -> None:
    with pytest.raises(BadRequest) as caught:
        find_gpu(text)
    assert repr(text) in caught.value.message
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize("text", ["9.0:lots", "9.0:-1GiB", "9.0:0", "6.1:12GiB", "99.9:80GiB", "9.0:80", "9:80GiB", "9.0:", "9.0:80GiB:x"])
def test_a_wrong_description_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        find_gpu(text)
