"""Text as a shell reads it: quotes, comments, line continuations, and what separates commands."""

import re
import shlex

from kvdoctor.errors import BadRequest

_OPERATOR = re.compile(r"[;<>|&()]+")
_REDIRECTION = re.compile(r"&?[<>]+[&|]?")


def split_words(text: str, what: str) -> list[str]:
    """Split words as a shell does; ``what`` names the text in the error."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise BadRequest(f"{what} {text!r} cannot be split: {error}", hint="Write it as on a shell's command line, in quotes.") from None


def split_commands(text: str, what: str, *, hint: str) -> list[list[str]]:
    """Split several lines into commands: at ``;``, ``&&``, ``&`` and ``|``. Line ends are spaces, comments and redirections left out."""
    plain = _without_comments(text.replace("\r\n", "\n"))
    lexer = shlex.shlex(plain, posix=True, punctuation_chars=";<>|&()")
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        tokens = list(lexer)
    except ValueError as error:
        raise BadRequest(f"{what} cannot be split: {error}", hint=hint) from None
    commands: list[list[str]] = [[]]
    skip = False
    for token in tokens:
        if skip:
            skip = False
        elif _REDIRECTION.fullmatch(token):
            if commands[-1] and commands[-1][-1] in ("1", "2"):  # the number of the stream: 2>&1
                commands[-1].pop()
            skip = True
        elif _OPERATOR.fullmatch(token):
            commands.append([])
        else:
            commands[-1].append(token)
    return [command for command in commands if command]


def _without_comments(text: str) -> str:
    """Leave out comments, which begin with a ``#`` at the start of a word, and join continued lines."""
    kept: list[str] = []
    quote, at = "", 0
    while at < len(text):
        character = text[at]
        if quote:
            step = 2 if quote == '"' and character == "\\" else 1
            quote = "" if character == quote else quote
        elif text.startswith("\\\n", at):
            kept.append(" ")
            at += 2
            continue
        elif character == "#" and (not kept or kept[-1][-1].isspace()):
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
            continue
        else:
            step = 2 if character == "\\" else 1
            quote = character if character in "\"'" else ""
        kept.append(text[at : at + step])
        at += step
    return "".join(kept)
