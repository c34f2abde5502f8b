"""Exit codes, and the errors that end a command: what happened, the likely cause, the next command."""

EXIT_OK = 0
EXIT_FINDING = 1
EXIT_BAD_REQUEST = 2
EXIT_UNASSESSED = 3
EXIT_BUG = 70


class KvdoctorError(Exception):
    """An error shown to the user as one paragraph: ``message`` says what and why, ``hint`` what to do next."""

    exit_code = EXIT_BUG

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class BadRequest(KvdoctorError):
    """The request itself is wrong: usage, no such file, not a config, unknown GPU or engine."""

    exit_code = EXIT_BAD_REQUEST


class Unassessed(KvdoctorError):
    """The request is fine but no answer could be had: engine missing, time-out, network, a file that the model needs."""

    exit_code = EXIT_UNASSESSED


class Bug(KvdoctorError):
    """kvdoctor's own fault."""

    exit_code = EXIT_BUG
