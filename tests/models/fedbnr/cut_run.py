"""A run that is cut in the middle, saved, loaded and gone on with."""

from unpooled import store


def resumed(make, federation, after):
    """The estimator `make()` gives, fitted in two halves of which the first ends after so many rounds."""
    for moment in make().rounds(federation()):
        if len(moment.history) == after:
            break
    other = make()
    for _ in other.rounds(federation(), store.loads(store.dumps(moment))):
        pass
    return other
