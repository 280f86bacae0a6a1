"""The error that a user can mend: one clear line, no traceback."""


class UserError(ValueError):
    """Bad input. The message names the file, flag or hparam, the value, and what to do."""
