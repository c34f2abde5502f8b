"""Mutated configs, saved reports, launch files and command lines against the command line, in this process and with no vLLM.

    python tests/benchmarks/fuzz.py [SECONDS] [SEED]

Counts the cases by exit code. It fails when one ends in exit code 70 or an exception, takes longer than five seconds, or lets a terminal's
escape or a CI's command through. A worker that answers each request with one of the test plans stands in for vLLM.
"""

import contextlib
import copy
import io
import json
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from kvdoctor.assess import Launch, Planning  # noqa: E402 - found by the line above
from kvdoctor.cli import compare, inspect, main, sweep  # noqa: E402
from kvdoctor.cli.console import say_log  # noqa: E402
from kvdoctor.diagnosis import diagnose  # noqa: E402
from kvdoctor.engines.interface import Engine  # noqa: E402
from kvdoctor.launches.request import LaunchRequest  # noqa: E402
from kvdoctor.plain import to_plain  # noqa: E402
from kvdoctor.plan import LogRecord, Plan  # noqa: E402
from tests.unit import plans  # noqa: E402

SLOW_SECONDS = 5.0
EXPECTED = (0, 1, 2, 3)
ENGINE = Engine(python=sys.executable, source="stand-in", vllm_version="0.33.0", notes=())
HOSTILE = "\n::error::x \x1b[31m\u202e|`*_[a](b)<b>##[error]y"
STRINGS = (
    "",
    " ",
    HOSTILE,
    "\ud800",
    "\0",
    "a" * 100_000,
    "../" * 50,
    "{0-9999999}",
    "model.layers.{0-3}",
    "--x",
    "***",
    "NaN",
    "\u2028",
    "https://u:p@h/",
)
NUMBERS = (0, -1, 1, 2**31, 2**63, 10**18, 10**30, 10**400, -(10**19), 0.5, 1e308, -1e-308, float("inf"), float("nan"))
WORDS = (
    "inspect", "compare", "sweep", "explain", "rules", "gpus", "version", "engines", "list", "--", "vllm", "serve", "--model", "--format",
    "json", "table", "markdown", "csv", "--gpu", "h100-80g", "9.0:80GiB", "9.0:0", "--kv-cache-memory", "40GiB", "-1", "1e99GiB", "--vary",
    "tensor-parallel-size=1,2", "api-key=a,b", 'x={"a":[1,2]},3', "=,", "--before-args", "--after-args", "--api-key k '", "'", '"', "--all",
    "--specs", "--select", "KV1", "KV999", "--fail-on", "never", "-v", "-q", "--timeout", "1", "nan", "--offline", "--output", "--usage",
    "llm", "--before-vllm", "python:/nope", "--max-token-loss", "KEY=value", "VLLM_API_KEY=s3cret", "env", "python3", "-m", "--help",
)  # fmt: skip
# Escapes, and lines that begin with a command of a CI.
BOOT = """\
INFO 09-01 10:00:00 [utils.py:253] vLLM API server version 0.33.0
INFO 09-01 10:00:00 [utils.py:189] non-default args: {'model_tag': '%s', 'max_model_len': 8192, 'api_key': ['k'], 'x': {'a': [1]}}
INFO 09-01 10:00:20 [gpu_worker.py:298] Available KV cache memory: 67.08 GiB
INFO 09-01 10:00:21 [kv_cache_utils.py:1087] GPU KV cache size: 549,536 tokens
INFO 09-01 10:00:21 [kv_cache_utils.py:1091] Maximum concurrency for 8,192 tokens per request: 67.08x
"""
ACTS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\ud800-\udfff]|^\s*::[A-Za-z]|##\[", re.MULTILINE)

Json = Any


def made_plans() -> list[Plan]:
    """Plans of every shape that the tests have."""
    log = (LogRecord(level="WARNING", message=HOSTILE),)
    made = [plans.llama(), plans.qwen3_next(), plans.pull_request_51108(), plans.deepseek_v3_2(), plans.refused(HOSTILE)]
    return [*made, replace(plans.llama(), vllm_log=log, assumptions=(HOSTILE,)), plans.plan()]


class StandIn(Planning):
    """Answers as the planning service does."""

    def __init__(self, answers: list[Plan], note: Callable[[str], None], log: Callable[[str], None]) -> None:
        self._answers, self._note, self._write, self._submitted = answers, note, log, 0

    def __enter__(self) -> Self:
        self._note(HOSTILE)
        return self

    def __exit__(self, *_: object) -> None:
        self._write(HOSTILE)

    def engine(self, text: str | None) -> Engine:
        del text
        return ENGINE

    def launch(self, request: LaunchRequest, vllm: str | None) -> Launch:
        del vllm
        return Launch(engine=ENGINE, request=request)

    def submit(self, launch: Launch) -> int:
        del launch
        self._submitted += 1
        return self._submitted - 1

    def plan(self, launch: Launch, on_step: Callable[[str], None] | None = None) -> Plan:
        del launch, on_step
        return random.choice(self._answers)

    def outcomes(self, on_step: Callable[[int, str], None] | None = None) -> Iterator[tuple[int, Plan]]:
        del on_step
        return ((number, random.choice(self._answers)) for number in range(self._submitted))


class Case:
    """One run: the words, and the kind that it is counted under."""

    def __init__(self, kind: str, words: list[str]) -> None:
        self.kind, self.words = kind, words


def mutated(data: Json) -> Json:
    """Change one to three places of some JSON."""
    data = copy.deepcopy(data)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        place, key = _somewhere(data)
        if place is None:
            return odd_value()
        act = random.random()
        if act < 0.05:
            del place[key]
        elif act < 0.12:
            place[key] = [place[key]] * random.choice((0, 2, 50))
        elif act < 0.15 and isinstance(place, dict):
            place[random.choice(STRINGS)] = place.pop(key)
        else:
            place[key] = odd_value(like=place[key])
    return data


def odd_value(like: Json = None) -> Json:
    """Give a value that nobody expects, often of the kind that was there."""
    if isinstance(like, (int, float)) and not isinstance(like, bool) and random.random() < 0.9:
        return random.choice((*NUMBERS, 3, 17, 4096, 10**17, 10**18 - 1, 0, 1))
    if isinstance(like, str) and random.random() < 0.9:
        return random.choice(STRINGS)
    deep: Json = []
    for _ in range(random.choice((1, 90, 300))):
        deep = [deep] if random.random() < 0.5 else {"a": deep}
    return random.choice((None, True, False, [], {}, deep, *NUMBERS, *STRINGS))


def _somewhere(data: Json) -> tuple[Any, Any]:
    place, key = None, None
    while isinstance(data, (dict, list)) and data and (place is None or random.random() < 0.8):
        key = random.choice(list(data)) if isinstance(data, dict) else random.randrange(len(data))
        place, data = data, data[key]
    return place, key


def spoilt(raw: bytes) -> bytes:
    """Cut, repeat or overwrite bytes."""
    at = random.randrange(len(raw) + 1)
    junk = random.choice((b"\0", b"\xff\xfe", b'"', b"{" * 2000, b"[" * 2000, b",", b"1e999", b"9" * 5000, b"NaN", b"\\ud800", b"\r\n"))
    return random.choice((raw[:at], raw[:at] + junk + raw[at:], raw[:at] + junk + raw[at + len(junk) :], raw + raw))


def write(path: Path, data: Json) -> Path:
    """Write JSON, now and then with broken bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = json.dumps(data).encode("ascii")
    path.write_bytes(spoilt(raw) if random.random() < 0.15 else raw)
    return path


class Cases:
    """Makes cases in a folder of its own."""

    def __init__(self, folder: Path, answers: list[Plan]) -> None:
        self._folder = folder
        self._configs = [json.loads(path.read_text()) for path in sorted((ROOT / "sample_configs").glob("*/config.json"))]
        self._specs = [json.loads(path.read_text()) for path in sorted((ROOT / "sample_configs").glob("*/specs*.json"))]
        self._launches = [path.read_text() for path in sorted((ROOT / "sample_configs").glob("*/launch.toml"))]
        self._reports = [to_plain(diagnose(plans.request(), plan)) for plan in answers]
        self._report = folder / "sound.json"
        self._report.write_text(json.dumps(self._reports[0]))

    def next(self) -> Case:
        """Make a case."""
        make: Callable[[], Case] = random.choice((self._config, self._saved, self._saved, self._given, self._many, self._boot, self._words))
        return make()

    def _config(self) -> Case:
        path = write(self._folder / random.choice(("model/config.json", "other.json")), mutated(random.choice(self._configs)))
        return Case("config", ["inspect", str(path), "--format", _format(), *random.choice(([], ["-v"]))])

    def _saved(self) -> Case:
        sides = [str(write(self._folder / "edited.json", mutated(random.choice(self._reports)))), str(self._report)]
        random.shuffle(sides)
        return Case(
            "saved report",
            ["compare", *sides, "--format", _format(), *random.choice(([], ["--max-token-loss", "5", "--max-hash-growth", "0"]))],
        )

    def _given(self) -> Case:
        return Case("layer specs", ["inspect", "--specs", str(write(self._folder / "specs.json", mutated(random.choice(self._specs))))])

    def _many(self) -> Case:
        folder = self._folder / "many"
        write(folder / "one/config.json", mutated(random.choice(self._configs)))
        (folder / "one/launch.toml").write_bytes(spoilt(random.choice(self._launches).encode()))
        return Case(
            "folder", ["compare", "--all", str(folder), "--before-args", "", "--after-args", random.choice(WORDS), "--format", _format()]
        )

    def _boot(self) -> Case:
        log = self._folder / "boot.log"
        log.write_bytes(spoilt((BOOT % (ROOT / "sample_configs/llama-3.1-8b")).encode()) if random.random() < 0.8 else HOSTILE.encode())
        return Case("boot log", ["verify", str(log), "--gpu", "h100-80g", "--format", _format()])

    def _words(self) -> Case:
        words = [
            random.choice((*WORDS, *STRINGS[:6], str(self._report), str(ROOT / "sample_configs/llama-3.1-8b")))
            for _ in range(random.randint(1, 9))
        ]
        command = random.choice(("inspect", "sweep", "compare", random.choice(WORDS)))
        return Case("command line", [command, *(word for word in words if word != "--output")])


def _format() -> str:
    return random.choice(("table", "json", "markdown"))


def run(case: Case) -> tuple[int, str, str]:
    """Run a case, and give its exit code and what it wrote."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.run(case.words)
    return code, out.getvalue(), err.getvalue()


def faults(case: Case, code: int, out: str, err: str, seconds: float) -> list[str]:
    """Tell what is wrong with the end of a case."""
    found = []
    if code not in EXPECTED:
        found.append(f"exit code {code}: {err[:300]}")
    if seconds > SLOW_SECONDS:
        found.append(f"{seconds:.1f} seconds")
    for name, text in (("stdout", out), ("stderr", err)):
        acting = ACTS.search(text)
        if acting:
            found.append(f"{name} lets {text[max(0, acting.start() - 40) : acting.end() + 40]!r} through")
    return [f"{case.kind}: {fault}\n  {[word[:200] for word in case.words]}" for fault in found]


def fuzz(seconds: float, seed: int) -> int:
    """Run cases until the time is up."""
    random.seed(seed)
    answers = made_plans()
    for module in (compare, inspect, sweep):
        module.planning = lambda *, note, verbose, **_k: StandIn(answers, note, say_log if verbose else lambda _text: None)  # type: ignore[attr-defined]
    counts: Counter[tuple[str, int]] = Counter()
    wrong: list[str] = []
    ends = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        cases = Cases(Path(folder), answers)
        while time.monotonic() < ends and len(wrong) < 20:
            case, began = cases.next(), time.monotonic()
            try:
                code, out, err = run(case)
            except BaseException as error:  # noqa: BLE001 - what gets here is what is looked for
                code, out, err = 70, "", f"{type(error).__name__}: {error}"
            counts[case.kind, code] += 1
            wrong += faults(case, code, out, err, time.monotonic() - began)
            if code not in EXPECTED:
                for name in ("edited.json", "specs.json"):
                    if any(word.endswith(name) for word in case.words):
                        kept = Path(tempfile.gettempdir(), f"fuzz-{seed}-{len(wrong)}-{name}")
                        kept.write_bytes(Path(folder, name).read_bytes())
                        wrong[-1] += f"\n  kept as {kept}"
    kinds = sorted({kind for kind, _ in counts})
    print(f"seed {seed}: {counts.total():,} cases in {seconds:g} s, {len(wrong)} faults")
    for kind in kinds:
        ended = ", ".join(f"exit {code}: {number:,}" for (of, code), number in sorted(counts.items()) if of == kind)
        print(f"  {kind:13} {ended}")
    for text in wrong:
        print(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    given = [float(word) for word in sys.argv[1:3]]
    sys.exit(fuzz(given[0] if given else 60, int(given[1]) if len(given) > 1 else 1))
