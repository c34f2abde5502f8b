"""The model of a ``vllm serve`` line that names it behind some of its options.

Which options take a value only vLLM's parser knows, and it is not here. So this is a guess, made from what surrounds a word; vLLM's
parser gets the line as it was written, and a guess that it does not share ends the command (``dryrun/arguments.py``).
"""

import re
from collections.abc import Sequence

# Options that take no value, by how vLLM names them.
_BARE = re.compile(
    r"--(?:enable-|disable-|no-|trust-remote-code$|enforce-eager$|async-scheduling$|headless$|data-parallel-hybrid-lb$)|-O[0-9]$"
)
# Options whose value looks like a model and is none.
_VALUED = frozenset(
    {"--tokenizer", "--served-model-name", "--chat-template", "--hf-config-path", "--generation-config", "--download-dir", "--revision"}
)
_MODEL = re.compile(r"(?:https?://|hf://)?[A-Za-z0-9_.~][\w.~@%/-]*|/[\w.@/-]+", re.ASCII)
_NUMBER = re.compile(r"[0-9.]+[kKmMgG]?i?[bB]?", re.ASCII)


def find_late_model(words: Sequence[str]) -> int | None:
    """Give the place of the word in ``words`` that is the model, or ``None`` when none looks like it."""
    after_whole, after_value, after_option = [], [], []
    for at, word in enumerate(words):
        if at == 0 or not _MODEL.fullmatch(word) or _NUMBER.fullmatch(word):
            continue
        before = words[at - 1].replace("_", "-") if words[at - 1].startswith("-") else words[at - 1]
        if not before.startswith("-"):
            after_value.append(at)
        elif "=" in before or _BARE.match(before):
            after_whole.append(at)
        elif before not in _VALUED and "/" in word:
            after_option.append(at)
    for found in (after_whole, after_value, after_option):
        if found:
            return found[-1]
    return None
