import errno
import json
import os
import tempfile
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvdoctor.errors import BadRequest
from kvdoctor.json_file import read_json_object
from kvdoctor.text_file import MAX_BYTES


def as_json(data: object) -> bytes:
    return json.dumps(data).encode()


def refusal(path: Path, *, unique_keys: bool = False) -> str:
    with pytest.raises(BadRequest) as caught:
        read_json_object(path, what="a config", unique_keys=unique_keys)
    assert caught.value.hint
    return caught.value.message.replace(str(path), "FILE")


def written(tmp_path: Path, data: bytes | str) -> Path:
    path = tmp_path / "config.json"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def test_an_object_is_read(tmp_path: Path) -> None:
    assert read_json_object(written(tmp_path, '{"a": [1, 2.5, null], "b": {"c": "é"}}'), what="a config") == {
        "a": [1, 2.5, None],
        "b": {"c": "é"},
    }


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "FILE is empty"),
        (b" \n", "FILE is empty"),
        (b"{", "FILE is not JSON: Expecting property name enclosed in double quotes in line 1, column 2"),
        (b'{\n "a" 1\n}', "FILE is not JSON: Expecting ':' delimiter in line 2, column 6"),
        (b"[1]", "FILE is not a config: it holds a JSON array, not an object"),
        (b'"x"', "FILE is not a config: it holds a JSON string, not an object"),
        (b"null", "FILE is not a config: it holds a JSON null, not an object"),
        (b"3", "FILE is not a config: it holds a JSON number, not an object"),
        (b"true", "FILE is not a config: it holds a JSON boolean, not an object"),
        (b"\x89PNG\r\n\x1a\n\x00", "FILE is not a config: it is a binary file, not UTF-8 text"),
        (b'{"a": "\x00"}', "FILE is not a config: it is a binary file, not UTF-8 text"),
        ('{"a": 1}'.encode("utf-16"), "FILE is not a config: it is a binary file, not UTF-8 text"),
        (b"[" * 100_000, "FILE is not a config: its JSON is nested too deeply"),
        (b'{"a":' * 500 + b"1" + b"}" * 500, "FILE is not a config: its JSON is nested too deeply"),
        (b'{"a": 1e999}', "FILE is not a config: the number 1e999 is too large"),
        (b'{\n "a": 1,\n "b": Infinity\n}', 'FILE is not JSON: "b" is Infinity in line 3'),
        (b'{"a": -Infinity}', 'FILE is not JSON: "a" is -Infinity in line 1'),
        (b'{"a": [NaN]}', 'FILE is not JSON: "a" is NaN in line 1'),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, data: bytes, message: str) -> None:
    assert refusal(written(tmp_path, data)) == message


def test_a_huge_number_is_refused_and_not_a_crash(tmp_path: Path) -> None:
    assert "FILE is not a config" in refusal(written(tmp_path, '{"a": ' + "9" * 5000 + "}"))


def test_a_file_that_is_too_large_is_not_read_to_the_end(tmp_path: Path) -> None:
    path = written(tmp_path, b"{}")
    os.truncate(path, MAX_BYTES + 1)
    assert refusal(path) == "FILE is not a config: it is larger than 16 MiB"


def test_the_open_end_of_a_range_may_be_infinite(tmp_path: Path) -> None:
    """Real Mamba2 configs say ``"time_step_limit": [0.0, Infinity]``, and vLLM boots them."""
    path = written(tmp_path, '{"time_step_limit": [\n 0.0,\n Infinity\n]}')
    assert read_json_object(path, what="a config") == {"time_step_limit": [0.0, float("inf")]}


def test_the_word_infinity_inside_a_string_is_text(tmp_path: Path) -> None:
    path = written(tmp_path, r'{"Infinity": "x \" NaN", "b": "-Infinity"}')
    assert read_json_object(path, what="a config") == {"Infinity": 'x " NaN', "b": "-Infinity"}


def test_the_last_of_two_equal_keys_counts_unless_they_must_be_unique(tmp_path: Path) -> None:
    path = written(tmp_path, '{"a": 1, "b": {"c": 1, "c": 2}}')
    assert read_json_object(path, what="a config") == {"a": 1, "b": {"c": 2}}
    assert refusal(path, unique_keys=True) == "FILE is not a config: the key 'c' is given twice"


def test_a_missing_file_a_directory_and_a_device_are_told_apart(tmp_path: Path) -> None:
    assert refusal(tmp_path / "no.json") == "FILE does not exist"
    assert refusal(tmp_path) == "FILE is not a regular file"
    assert refusal(Path("/dev/zero")) == "FILE is not a regular file"


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(*_: object, **__: object) -> NoReturn:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    path = written(tmp_path, "{}")
    monkeypatch.setattr(Path, "open", deny)
    assert refusal(path) == "FILE cannot be read: Permission denied"


def test_a_pipe_can_be_read() -> None:
    reading, writing = os.pipe()
    os.write(writing, b'{"model_type": "llama"}')
    os.close(writing)
    assert read_json_object(Path(f"/dev/fd/{reading}"), what="a config") == {"model_type": "llama"}
    os.close(reading)


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.floats() | st.text(), lambda c: st.lists(c) | st.dictionaries(st.text(), c)).map(as_json)
)
def test_any_bytes_give_an_object_or_one_line(data: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        try:
            assert isinstance(read_json_object(Path(file.name), what="a config"), dict)
        except BadRequest as error:
            assert "\n" not in error.message  # noqa: PT017 - either outcome is right
