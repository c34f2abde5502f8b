"""Whose fault an exception is: vLLM's verdict passes; a GPU or a file that is not there, and a bug of ours, do not pass for one."""

from collections.abc import Callable

import pytest

from kvdoctor.errors import BadRequest, Bug, KvdoctorError, Unassessed


def judged(error: Exception) -> KvdoctorError | None:
    """What becomes of an exception at a step; ``None`` for vLLM's verdict."""
    from kvdoctor.dryrun.blame import raise_if_ours

    try:
        raise_if_ours(error, step="building the model", model="a/b")
    except KvdoctorError as ours:
        return ours
    return None


def caused_by(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        ValueError("max_num_seqs (1024) exceeds available Mamba cache blocks (758)."),
        AssertionError(),
        NotImplementedError("Mamba with a tokenizer of its own"),
        caused_by(RuntimeError("Engine core initialization failed"), ValueError("block_size (7) must be a multiple of 16")),
        RuntimeError("No available memory for the cache blocks."),
    ],
    ids=str,
)
def test_what_vllm_says_of_a_launch_is_its_verdict(error: Exception) -> None:
    assert judged(error) is None


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Found no NVIDIA driver on your system."),
        RuntimeError("CUDA error: no CUDA-capable device is detected"),
        NotImplementedError("Cannot copy out of meta tensor; no data!"),
        RuntimeError("Tensor.item() cannot be called on meta tensors"),
        caused_by(ValueError("model failed"), RuntimeError("No CUDA GPUs are available")),
    ],
    ids=str,
)
def test_a_question_to_the_gpu_is_not_vllms_verdict(error: Exception) -> None:
    ours = judged(error)
    assert isinstance(ours, Unassessed)
    assert ours.message.startswith("the dry launch could not go on at 'building the model': ")


def test_a_stand_in_that_was_asked_too_much_says_so_also_from_below() -> None:
    from kvdoctor.dryrun.stand_in import StandInAsked

    for error in (StandInAsked("a CUDA context"), caused_by(RuntimeError("wrapped"), StandInAsked("a CUDA context"))):
        assert isinstance(judged(error), Unassessed)


@pytest.mark.parametrize(
    "error",
    [
        OSError("Can't load image processor for 'm'. If you were trying to load it"),
        OSError("Can\N{RIGHT SINGLE QUOTATION MARK}t load tokenizer for 'm'."),
        ValueError("Couldn't instantiate the backend tokenizer from one of: (1) ..."),
    ],
    ids=str,
)
def test_a_file_that_is_missing_is_not_vllms_verdict(error: Exception) -> None:
    ours = judged(error)
    assert isinstance(ours, Unassessed)
    assert ours.message.startswith("a/b needs a file that is not beside its config (at 'building the model'): ")


def test_a_package_that_is_missing_is_not_vllms_verdict() -> None:
    ours = judged(ModuleNotFoundError("No module named 'timm'"))
    assert isinstance(ours, Unassessed)
    assert ours.message == "a/b needs a package that is not installed here (at 'building the model'): No module named 'timm'"


@pytest.mark.parametrize("error", [BadRequest("what", hint="next"), Unassessed("what", hint="next"), Bug("what", hint="next")])
def test_an_error_of_ours_stays_what_it_is(error: KvdoctorError) -> None:
    assert judged(error) is error


def test_an_exception_from_our_own_lines_is_a_bug() -> None:
    from kvdoctor.dryrun import libcuda

    ours = judged(raised(lambda: libcuda.stand_in_bytes("riscv64")))
    assert isinstance(ours, Bug)
    assert ours.message == "KeyError at 'building the model': 'riscv64'"


def test_a_bare_assertion_speaks_by_its_line() -> None:
    from kvdoctor.dryrun.blame import words_of

    def check() -> None:
        blocks = 3
        assert blocks % 2 == 0

    # Outside pytest an assertion has no words of its own.
    error = raised(check)
    bare = AssertionError().with_traceback(error.__traceback__)
    words = words_of(bare)
    assert words.startswith("assert blocks % 2 == 0 (")
    assert "tests/dryrun/test_blame.py:" in words


def test_long_and_broken_lines_become_one() -> None:
    from kvdoctor.dryrun.blame import first_line

    assert first_line(ValueError("one\n  two\tthree")) == "one two three"
    assert first_line(ValueError("")) == "ValueError('')"
    assert len(first_line(ValueError("x" * 10_000))) == 600


def test_a_chain_that_bites_its_tail_ends() -> None:
    from kvdoctor.dryrun.blame import chain

    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert list(chain(first)) == [first, second]


def raised(act: Callable[[], object]) -> Exception:
    try:
        act()
    except Exception as error:  # noqa: BLE001 - whatever it is, with its traceback
        return error
    raise AssertionError("nothing was raised")


def look_up_a_key_that_is_not_there() -> None:
    exec(compile("{}['moved']", "vllm/v1/engine/core.py", "exec"), {"__name__": "vllm.v1.engine.core"})  # noqa: S102 - as from vLLM's lines


def check_and_mean_it() -> None:
    exec(compile("raise KeyError('not among the known')", "vllm/config.py", "exec"), {"__name__": "vllm.config"})  # noqa: S102 - as above


def test_an_accident_in_vllms_lines_is_a_finding_on_a_tested_release_and_no_answer_on_another(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvdoctor.dryrun import blame

    error = raised(look_up_a_key_that_is_not_there)
    assert blame.is_accident(error)
    monkeypatch.setattr(blame, "tested", lambda: True)
    assert judged(error) is None
    monkeypatch.setattr(blame, "tested", lambda: False)
    ours = judged(error)
    assert isinstance(ours, Unassessed)
    assert ours.message.endswith("failed at 'building the model', by no check of its own: KeyError: 'moved'")


def test_what_vllm_raises_itself_is_meant_whatever_its_kind() -> None:
    from kvdoctor.dryrun.blame import is_accident

    assert not is_accident(raised(check_and_mean_it))


def test_a_module_of_vllm_that_is_gone_is_no_package_to_install() -> None:
    ours = judged(ModuleNotFoundError("No module named 'vllm.v1.moved'", name="vllm.v1.moved"))
    assert isinstance(ours, Unassessed)
    assert ours.message.endswith("(at 'building the model'): No module named 'vllm.v1.moved'")
    assert ours.message.startswith("kvdoctor does not know this of vLLM ")


def test_a_package_that_is_missing_is_found_below_what_wraps_it() -> None:
    wrapped = caused_by(ValueError("Ray is not installed"), ModuleNotFoundError("No module named 'ray'", name="ray"))
    ours = judged(wrapped)
    assert isinstance(ours, Unassessed)
    assert ours.message == "a/b needs a package that is not installed here (at 'building the model'): No module named 'ray'"


def test_a_package_that_is_missing_is_found_in_the_words_of_a_validator() -> None:
    ours = judged(ValueError("Failed to import Ray: No module named 'ray'.Please install Ray with `pip install ray`."))
    assert isinstance(ours, Unassessed)
    assert ours.message.startswith("a/b needs a package that is not installed here (at 'building the model'): Failed to import Ray: ")
