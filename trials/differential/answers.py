"""What a node may do with a request: answer, with errors in the answer or without, or not."""

CLOSED, SILENT = "closed", "no answer"


def errors(answer):
    """The error codes anywhere in an answer."""
    if isinstance(answer, list):
        return set().union(*map(errors, answer))
    if not isinstance(answer, dict):
        return set()
    own = {value for name, value in answer.items() if name.endswith("ErrorCode")}
    return own.union(*map(errors, answer.values()))


class Each:
    """A value of each node."""

    def __init__(self, *values):
        self.values = values

    def __call__(self, known):
        return self.values[known.side]

    def __add__(self, shift):
        return Each(*(value + shift for value in self.values)) if shift else self

    def __repr__(self):
        return f"{self.values}"
