import shlex
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvdoctor.errors import BadRequest
from kvdoctor.launches.command_line import VllmCommand, parse_vllm_command, words_of_text


def parsed(line: str) -> tuple[str | None, list[str]]:
    command = parse_vllm_command(shlex.split(line))
    return command.model, list(command.arguments)


@pytest.mark.parametrize(
    ("line", "model", "arguments"),
    [
        ("", None, ""),
        ("--tensor-parallel-size 8 -O3", None, "--tensor-parallel-size 8 -O3"),
        ("vllm serve org/name", "org/name", ""),
        ("vllm serve org/name --max-model-len 8k -tp 2", "org/name", "--max-model-len 8k -tp 2"),
        ("/opt/venv/bin/vllm serve ./dir --port 8001", "./dir", "--port 8001"),
        ("vllm serve -tp 2 --model org/name --enforce-eager", "org/name", "-tp 2 --enforce-eager"),
        ("vllm serve -tp 2 --model=org/name --enforce-eager", "org/name", "-tp 2 --enforce-eager"),
        ("vllm serve --config serve.yaml", None, "--config serve.yaml"),
        ("python -m vllm.entrypoints.openai.api_server --model org/name -tp 2", "org/name", "-tp 2"),
        ("python3.12 -u -m vllm.entrypoints.openai.api_server -tp 2 --model=org/name", "org/name", "-tp 2"),
        ("python -m vllm.entrypoints.cli.main serve org/name -tp 2", "org/name", "-tp 2"),
        ("'vllm serve org/name \\\n  --max-model-len 8192 # as in production\n'", "org/name", "--max-model-len 8192"),
        ('vllm serve org/name --speculative-config \'{"method": "mtp"}\'', "org/name", '--speculative-config \'{"method": "mtp"}\''),
        ("'--hf-overrides={\"a\": 1}'", None, "'--hf-overrides={\"a\": 1}'"),
        ("--model-impl transformers", None, "--model-impl transformers"),
        ("vllm serve org/name --model-impl transformers", "org/name", "--model-impl transformers"),
    ],
)
def test_a_launch_is_read_as_its_model_and_vllms_arguments(line: str, model: str | None, arguments: str) -> None:
    assert parsed(line) == (model, shlex.split(arguments))


@pytest.mark.parametrize("env", ["", "env "])
def test_variables_in_front_belong_to_the_launch(env: str) -> None:
    line = f"{env}VLLM_KV_CACHE_LAYOUT=HND CUDA_VISIBLE_DEVICES=0,1 VLLM_X='a=b c' vllm serve org/name -tp 2"
    assert parse_vllm_command(shlex.split(line)) == VllmCommand(
        model="org/name",
        arguments=("-tp", "2"),
        environment={"VLLM_KV_CACHE_LAYOUT": "HND", "VLLM_X": "a=b c"},
        left_out=("CUDA_VISIBLE_DEVICES",),
    )


def test_variables_may_stand_before_arguments_alone() -> None:
    command = parse_vllm_command(["VLLM_USE_V2_MODEL_RUNNER=0", "--max-model-len", "8k"])
    assert command.environment == {"VLLM_USE_V2_MODEL_RUNNER": "0"}
    assert command.arguments == ("--max-model-len", "8k")


@pytest.mark.parametrize(
    "line",
    [
        "vllm bench latency",
        "vllm",
        "python -m vllm chat",
        "org/name",
        "serve org/name",
        "docker run x",
        "vllm serve --model",
        "vllm serve org/a --model org/b",
    ],
)
def test_what_starts_no_server_is_refused(line: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parsed(line)
    assert "vllm serve" in caught.value.hint


# Official recipes, in the shapes that they come in.
@pytest.mark.parametrize(
    ("line", "model", "arguments", "release"),
    [
        (
            (
                "docker run --runtime nvidia --gpus all -v ~/.cache/huggingface:/root/.cache/huggingface --env HF_TOKEN=hf_x -p 8000:8000 "
                "--ipc=host vllm/vllm-openai:v0.33.0 --model mistralai/Mistral-7B-v0.1 --max-model-len 8192"
            ),
            "mistralai/Mistral-7B-v0.1",
            "--max-model-len 8192",
            "0.33.0",
        ),
        (
            (
                "docker run -itd --rm --name v --shm-size 16g -e VLLM_USE_DEEP_GEMM=0 vllm/vllm-openai:v0.34.0-cu129 "
                "deepseek-ai/DeepSeek-V3.2 -tp 8 --tokenizer-mode deepseek_v32 --reasoning-parser deepseek_v3 --enable-auto-tool-choice"
            ),
            "deepseek-ai/DeepSeek-V3.2",
            "-tp 8 --tokenizer-mode deepseek_v32 --reasoning-parser deepseek_v3 --enable-auto-tool-choice",
            "0.34.0",
        ),
        (
            "vllm serve Qwen/Qwen3.5-27B --port 8000 --tensor-parallel-size 8 --max-model-len 262144 --reasoning-parser qwen3",
            "Qwen/Qwen3.5-27B",
            "--port 8000 --tensor-parallel-size 8 --max-model-len 262144 --reasoning-parser qwen3",
            None,
        ),
        (
            "uv run --with vllm vllm serve openai/gpt-oss-20b --async-scheduling --tool-call-parser openai",
            "openai/gpt-oss-20b",
            "--async-scheduling --tool-call-parser openai",
            None,
        ),
        (
            (
                "'export VLLM_ATTENTION_BACKEND=FLASHINFER  # B200\nnohup vllm serve zai-org/GLM-4.5 \\\n  --tensor-parallel-size 8 \\\n"
                '  --speculative-config "{\\"method\\": \\"mtp\\", \\"num_speculative_tokens\\": 1}" > vllm.log 2>&1 &\n\''
            ),
            "zai-org/GLM-4.5",
            '--tensor-parallel-size 8 --speculative-config \'{"method": "mtp", "num_speculative_tokens": 1}\'',
            None,
        ),
        (
            (
                "sudo docker run --gpus all --entrypoint bash vllm/vllm-openai:latest -c "
                "'pip install -U timm && exec vllm serve google/gemma-3n-E4B-it --limit-mm-per-prompt.image 4'"
            ),
            "google/gemma-3n-E4B-it",
            "--limit-mm-per-prompt.image 4",
            None,
        ),
    ],
    ids=["docker --model", "docker positional", "reasoning parser", "uv run", "script", "docker entrypoint"],
)
def test_an_official_recipe_is_read_as_it_is_pasted(line: str, model: str, arguments: str, release: str | None) -> None:
    command = parse_vllm_command(shlex.split(line))
    assert (command.model, list(command.arguments), command.release) == (model, shlex.split(arguments), release)


@pytest.mark.parametrize(
    "front",
    [
        "sudo",
        "sudo -u vllm",
        "nohup",
        "uv run",
        "uv run --python 3.12 --with 'vllm==0.33.0'",
        "env -u HTTP_PROXY nohup",
        "env -i",
        "exec",
        "docker run x/vllm",
        "docker run --entrypoint '' x/y",
        "docker container run --rm x/y",
        "podman run -d x/y",
    ],
)
def test_what_stands_before_a_server_is_passed_over(front: str) -> None:
    command = parse_vllm_command([*shlex.split(front), *shlex.split("vllm serve org/name -tp 2")])
    assert (command.model, command.arguments, command.environment, command.left_out) == ("org/name", ("-tp", "2"), {}, ())


def test_a_program_that_is_not_known_is_named() -> None:
    assert parse_vllm_command(shlex.split("numactl -N 0 vllm serve org/name")).left_out == ("numactl",)


@pytest.mark.parametrize(
    ("line", "environment", "left_out"),
    [
        ("VLLM_X=1 sudo vllm serve m/n", {}, ("VLLM_X",)),
        ("VLLM_X=1 sudo -E vllm serve m/n", {"VLLM_X": "1"}, ()),
        ("sudo VLLM_X=1 vllm serve m/n", {"VLLM_X": "1"}, ()),
        ("VLLM_X=1 VLLM_Y=2 env -u VLLM_X vllm serve m/n", {"VLLM_Y": "2"}, ()),
        ("VLLM_X=1 env -i VLLM_Y=2 vllm serve m/n", {"VLLM_Y": "2"}, ("VLLM_X",)),
        (
            "docker run -eVLLM_X=1 --env VLLM_Y=2 --env=VLLM_Z=3 -e A=b vllm/vllm-openai m/n",
            {"VLLM_X": "1", "VLLM_Y": "2", "VLLM_Z": "3"},
            ("A",),
        ),
        ("VLLM_X=1 docker run -e VLLM_Y --env-file e.txt vllm/vllm-openai m/n", {}, ("VLLM_X", "VLLM_Y", "--env-file e.txt")),
    ],
)
def test_the_variables_that_reach_the_server_are_its_own(line: str, environment: dict[str, str], left_out: tuple[str, ...]) -> None:
    command = parse_vllm_command(shlex.split(line))
    assert (command.environment, command.left_out) == (environment, left_out)


@pytest.mark.parametrize(
    ("image", "release"),
    [
        ("vllm/vllm-openai:v0.33.0", "0.33.0"),
        ("vllm/vllm-openai:v0.33.0-aarch64", "0.33.0"),
        ("docker.io/vllm/vllm-openai:v0.28.0.post1", "0.28.0.post1"),
        ("registry:5000/vllm-openai:0.27.1rc2", "0.27.1rc2"),
        ("vllm/vllm-openai:v0.33.0@sha256:00ff", "0.33.0"),
        ("vllm/vllm-openai:latest", None),
        ("vllm/vllm-openai", None),
        ("registry:5000/vllm-openai", None),
        ("nvcr.io/nvidia/vllm:25.09-py3", None),
    ],
)
def test_an_images_tag_names_the_release(image: str, release: str | None) -> None:
    command = parse_vllm_command(["docker", "run", image, "org/name"])
    assert (command.image, command.release, command.model) == (image, release, "org/name")


@pytest.mark.parametrize(
    ("line", "model", "position"),
    [
        ("--max-model-len 8192 org/name", "org/name", 2),
        ("--enable-prefix-caching org/name --seed 1", "org/name", 1),
        ("--gpu-memory-utilization=0.9 org/name", "org/name", 1),
        ("--tokenizer org/other --trust-remote-code ./dir", "./dir", 3),
        ("-tp 2 --served-model-name a --port 8000 https://huggingface.co/org/name", "https://huggingface.co/org/name", 6),
        ("--enforce-eager org/name --tokenizer org/other", "org/name", 1),
    ],
)
def test_a_model_behind_options_is_found_and_its_place_kept(line: str, model: str, position: int) -> None:
    words = line.split()
    command = parse_vllm_command(["vllm", "serve", *words])
    assert (command.model, command.model_position) == (model, position)
    assert [*command.arguments[:position], model, *command.arguments[position:]] == words


@pytest.mark.parametrize("line", ["--tokenizer org/other", "--max-model-len 8192 --seed 1", "--hf-overrides '{\"a\": 1}'", "-O3"])
def test_an_options_value_is_no_model(line: str) -> None:
    assert parse_vllm_command(["vllm", "serve", *shlex.split(line)]).model is None


def test_text_is_split_as_a_shell_does_and_comments_are_left_out() -> None:
    text = '# as deployed\r\n--max-model-len 8k \\\r\n  --hf-overrides \'{"a": "#1"}\'  # inside\n--served-model-name a#b "c d"\n'
    assert words_of_text(text, "FILE", hint="") == [
        "--max-model-len", "8k", "--hf-overrides", '{"a": "#1"}', "--served-model-name", "a#b", "c d",
    ]  # fmt: skip


def test_one_variable_with_a_space_in_it_is_no_command() -> None:
    assert parse_vllm_command(["VLLM_X=a b"]).environment == {"VLLM_X": "a b"}


def test_an_unclosed_quote_is_refused() -> None:
    with pytest.raises(BadRequest, match="cannot be split: No closing quotation"):
        parse_vllm_command(["vllm serve 'org/name"])


@given(
    st.lists(
        st.text()
        | st.sampled_from(["vllm", "serve", "--model", "python", "-m", "env", "docker", "run", "-e", "A=b", "VLLM_X=1", "org/name"]),
        max_size=8,
    )
)
def test_any_words_are_read_or_refused(words: list[str]) -> None:
    with suppress(BadRequest):
        assert set(parse_vllm_command(words).environment) <= {"VLLM_X"} | {word.partition("=")[0] for word in words}
