from pathlib import Path

import pytest

from kvdoctor.errors import BadRequest
from kvdoctor.model_folder import ModelFolder, asks_for_code, find_model_folders


def add(directory: Path, name: str, *, config: str = "config.json", launch: str | None = None) -> Path:
    folder = directory / name
    folder.mkdir()
    if config:
        (folder / config).write_text("{}")
    if launch is not None:
        (folder / "launch.toml").write_text(launch)
    return folder


def test_each_folder_with_a_config_is_a_model(tmp_path: Path) -> None:
    add(tmp_path, "b")
    add(tmp_path, "a", config="params.json")
    add(tmp_path, "empty", config="")
    (tmp_path / "README.md").write_text("")
    assert find_model_folders(tmp_path) == tuple(
        ModelFolder(name=name, model=str(tmp_path / name), specs=None, gpu=None, args=(), broken=None) for name in ("a", "b")
    )


def test_launch_toml_says_how_to_serve_it(tmp_path: Path) -> None:
    folder = add(tmp_path, "a", launch='model = "org/a"\ngpu = "h200"\nargs = ["--tensor-parallel-size", "8"]')
    assert find_model_folders(tmp_path) == (
        ModelFolder(name="a", model=str(folder), specs=None, gpu="h200", args=("--tensor-parallel-size", "8"), broken=None),
    )


def test_specs_stand_in_for_a_model(tmp_path: Path) -> None:
    folder = add(tmp_path, "a", config="", launch='specs = "specs.json"')
    (made,) = find_model_folders(tmp_path)
    assert (made.model, made.specs) == (None, folder / "specs.json")


def test_a_drafter_is_not_served_alone(tmp_path: Path) -> None:
    add(tmp_path, "a")
    add(tmp_path, "a-draft", launch='draft_for = "a"')
    assert [folder.name for folder in find_model_folders(tmp_path)] == ["a"]


@pytest.mark.parametrize("launch", ["args = [", "args = 3", "args = [1]", "gpu = 3", "specs = []"])
def test_a_broken_launch_toml_is_that_models_trouble(tmp_path: Path, launch: str) -> None:
    add(tmp_path, "a", launch=launch)
    add(tmp_path, "b")
    broken, whole = find_model_folders(tmp_path)
    assert broken.broken is not None
    assert "launch.toml" in broken.broken.message
    assert whole.broken is None


def test_no_directory_and_no_model_are_refused(tmp_path: Path) -> None:
    for path, message in ((tmp_path / "none", "is no directory"), (tmp_path, "has no model in it")):
        with pytest.raises(BadRequest, match=message):
            find_model_folders(path)


@pytest.mark.parametrize("word", ["--trust-remote-code", "--trust_remote_code", "--trust-remote", "--trust", "--config"])
def test_arguments_that_may_let_a_models_code_run_are_known(word: str) -> None:
    assert asks_for_code(("--seed", "1", word))


@pytest.mark.parametrize("word", ["--tokenizer=x", "--tensor-parallel-size", "-tp", "--hf-config-path", "--compilation-config", "trust"])
def test_other_arguments_let_no_code_run(word: str) -> None:
    assert not asks_for_code((word,))
