import os
from pathlib import Path

import pytest

from kvdoctor.errors import BadRequest
from kvdoctor.launches.model_folder import ModelFolder, asks_for_code, find_model_folders, untaken_keys


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


def test_a_launch_toml_that_may_never_end_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(add(tmp_path, "pipe") / "launch.toml")
    (add(tmp_path, "zero") / "launch.toml").symlink_to("/dev/zero")
    pipe, zero = find_model_folders(tmp_path)
    assert pipe.broken is not None
    assert zero.broken is not None
    assert pipe.broken.message == f"{tmp_path}/pipe/launch.toml is not a regular file"
    assert zero.broken.message == f"{tmp_path}/zero/launch.toml is not a regular file"


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "a = " + "{b = " * 50_000, "a = " + "9" * 10_000, "\xff"])
def test_a_launch_toml_that_no_reader_takes_is_told_in_one_line(tmp_path: Path, text: str) -> None:
    add(tmp_path, "a", launch=text)
    (broken,) = find_model_folders(tmp_path)
    assert broken.broken is not None
    assert "\n" not in broken.broken.message
    assert "launch.toml is no TOML file" in broken.broken.message


def test_what_a_launch_has_not_of_the_launch_toml_beside_its_model_is_named(tmp_path: Path) -> None:
    folder = add(tmp_path, "a", launch='gpu = "h200"\nargs = ["-tp", "8"]')
    assert untaken_keys(str(folder), gpu="h100-80g", args=()) == ("gpu", "args")
    assert untaken_keys(str(folder / "config.json"), gpu="h200", args=()) == ("args",)
    assert untaken_keys(str(folder), gpu="h200", args=("--seed", "1", "-tp", "8")) == ()
    assert untaken_keys(str(tmp_path), gpu="h200", args=()) == ()
    assert untaken_keys("org/name", gpu="h200", args=()) == ()


def test_no_directory_and_no_model_are_refused(tmp_path: Path) -> None:
    for path, message in ((tmp_path / "none", "is no directory"), (tmp_path, "has no model in it")):
        with pytest.raises(BadRequest, match=message):
            find_model_folders(path)


# What makes vLLM import a module, or run a file, that the value names.
IMPORTING = [
    "--logits-processors=a:B",
    "--worker_cls",
    "--worker-ext=a.B",
    "--tool-parser-plugin",
    "--middleware",
    "--distributed-executor-backend=a.B",
    '{"kv_connector": "x", "kv_connector_module_path": "x"}',
    '{"kv_connector_modul\\u0065_path": "x"}',
    "--kv-transfer-config.kv_connector_module_path",
    '--compilation-config={"backend": "a.b"}',
    '{"method": "custom_class", "model": "a.b:C"}',
    "--compilation-config.backend=a.b",
]


@pytest.mark.parametrize("word", ["--trust-remote-code", "--trust_remote_code", "--trust-remote", "--trust", "--config", *IMPORTING])
def test_arguments_that_may_let_a_models_code_run_are_known(word: str) -> None:
    assert asks_for_code(("--seed", "1", word))


@pytest.mark.parametrize(
    "word",
    [
        "--tokenizer=x",
        "--tensor-parallel-size",
        "-tp",
        "--hf-config-path",
        "--compilation-config",
        "trust",
        "--distributed-executor-backend=mp",
        '{"method": "mtp", "model": "org/m-1.5"}',
        "0.95",
    ],
)
def test_other_arguments_let_no_code_run(word: str) -> None:
    assert not asks_for_code((word,))


def test_no_arguments_let_no_code_run() -> None:
    assert not asks_for_code(())
