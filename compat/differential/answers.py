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
