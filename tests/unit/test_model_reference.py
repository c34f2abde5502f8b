import json
import os
from pathlib import Path

import pytest

from kvdoctor.errors import BadRequest
from kvdoctor.launches.model_reference import find_model
from kvdoctor.launches.request import ModelReference

LLAMA = json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]})


def refusal(text: str | Path) -> tuple[str, str]:
    with pytest.raises(BadRequest) as caught:
        find_model(str(text))
    return caught.value.message, caught.value.hint


@pytest.mark.parametrize(
    ("text", "revision"),
    [
        ("meta-llama/Llama-3.1-8B", None),
        ("org/name@main", "main"),
        ("org/name@refs/pr/3", "refs/pr/3"),
        ("a/b_c.d-e", None),
        ("01-ai/Yi-6B", None),
    ],
)
def test_a_hub_id(text: str, revision: str | None) -> None:
    assert find_model(text) == ModelReference(text=text, kind="hub", path=None, revision=revision)


@pytest.mark.parametrize(
    ("text", "model", "revision"),
    [
        ("https://huggingface.co/org/name", "org/name", None),
        ("https://huggingface.co/org/name/", "org/name", None),
        ("hf.co/org/name?library=vllm#use", "org/name", None),
        ("https://huggingface.co/org/name/tree/main", "org/name@main", "main"),
        ("https://huggingface.co/org/name/blob/v1.0/config.json", "org/name@v1.0", "v1.0"),
        ("https://huggingface.co/org/name/tree/refs%2Fpr%2F3", "org/name@refs/pr/3", "refs/pr/3"),
        ("https://huggingface.co/org/name/discussions/4", "org/name", None),
    ],
)
def test_the_address_of_a_hubs_page_is_its_id(text: str, model: str, revision: str | None) -> None:
    found = find_model(text)
    assert found == ModelReference(text=model, kind="hub", path=None, revision=revision)
    assert found.name == "org/name"


@pytest.mark.parametrize("text", ["https://huggingface.co/org", "https://huggingface.co/datasets/org/name", "https://hf.co/"])
def test_a_page_that_is_no_models_is_refused(text: str) -> None:
    assert refusal(text)[0] == f"{text} is no model's page"


@pytest.mark.parametrize(
    "text", ["", " ", "gpt2", "org/na me", "org/-name", "org/name-", "org/a--b", "org/a..b", "org/" + "x" * 97, "org/name@", "org/n@-x"]
)
def test_what_cannot_be_a_hub_id_is_refused(text: str) -> None:
    message, hint = refusal(text)
    assert repr(text) in message
    assert "org/name" in hint


@pytest.mark.parametrize("text", ["./nope", "/nope/nope", "~/nope-nope", "nope/config.json", "a/b/c", "nope/"])
def test_what_looks_like_a_path_is_not_sought_on_the_hub(text: str) -> None:
    assert refusal(text)[0] == f"model {text} does not exist"


def test_a_name_the_file_system_cannot_hold_is_refused() -> None:
    assert "is no hub id" in refusal("x" * 5000)[0]
    assert "is no hub id" in refusal("a\0b")[0]


def test_a_directory(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(LLAMA)
    assert find_model(str(tmp_path)) == ModelReference(text=str(tmp_path), kind="directory", path=str(tmp_path.resolve()), revision=None)


def test_a_directory_in_mistrals_own_format(tmp_path: Path) -> None:
    (tmp_path / "params.json").write_text('{"dim": 4096}')
    assert find_model(str(tmp_path)).kind == "directory"


def test_a_local_directory_wins_over_a_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org/name").mkdir(parents=True)
    (tmp_path / "org/name/config.json").write_text(LLAMA)
    monkeypatch.chdir(tmp_path)
    assert find_model("org/name").path == str((tmp_path / "org/name").resolve())


def test_an_empty_directory_and_one_without_a_config(tmp_path: Path) -> None:
    assert refusal(tmp_path)[0] == f"{tmp_path} is an empty directory"
    (tmp_path / "inside").mkdir()
    assert refusal(tmp_path)[0] == f"{tmp_path} has no config.json"
    (tmp_path / "inside/config.json").write_text(LLAMA)
    assert refusal(tmp_path)[1] == f"Did you mean {tmp_path / 'inside'}?"


def test_a_config_json_stands_for_its_directory(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(LLAMA)
    assert find_model(str(path)) == ModelReference(text=str(path), kind="file", path=str(tmp_path.resolve()), revision=None)


def test_a_config_under_another_name_is_read_and_travels_with_the_request(tmp_path: Path) -> None:
    path = tmp_path / "llama.json"
    path.write_text(LLAMA)
    assert find_model(str(path)) == ModelReference(text=str(path), kind="file", path=None, revision=None, config=json.loads(LLAMA))


@pytest.mark.parametrize("config", ["{}", '{"model_type": ""}', '{"model_type": 3}', '{"architectures": ["LlamaForCausalLM"]}'])
def test_a_config_without_a_model_type(tmp_path: Path, config: str) -> None:
    (tmp_path / "config.json").write_text(config)
    assert refusal(tmp_path)[0] == f"{tmp_path / 'config.json'} has no model_type, so vLLM cannot tell which model it is"


@pytest.mark.parametrize("config", ['{"speculators_config": {"algorithm": "eagle3"}}', '{"auto_map": {"AutoConfig": "configuration_x.X"}}'])
def test_two_keys_stand_in_for_a_model_type(tmp_path: Path, config: str) -> None:
    (tmp_path / "config.json").write_text(config)
    assert find_model(str(tmp_path)).kind == "directory"


def test_a_dangling_link_is_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").symlink_to(tmp_path / "gone")
    assert refusal(tmp_path)[0] == f"{tmp_path / 'config.json'} does not exist"


def test_a_pipe_is_read_once() -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, LLAMA.encode())
    os.close(write_end)
    text = f"/dev/fd/{read_end}"
    assert find_model(text) == ModelReference(text=text, kind="file", path=None, revision=None, config=json.loads(LLAMA))
    os.close(read_end)


def test_a_pipe_in_a_models_directory_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    assert refusal(tmp_path)[0] == f"{tmp_path}/config.json is a pipe, and nothing may ever come out of it"


def test_a_name_too_long_for_a_pipe_is_refused() -> None:
    with pytest.raises(BadRequest, match="is no hub id"):
        find_model("x" * 5000)
