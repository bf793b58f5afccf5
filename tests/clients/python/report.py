"""Runs scenarios one after another and prints what became of each as one line of JSON.

A scenario passes, or it is "refused" when the server said by name that it does not do this, or it is "wrong": a result,
an error or a silence that the real service would not give.
"""

import faulthandler
import json
import re

REFUSAL = re.compile(r"not supported|not implemented|NotImplemented|does not support", re.IGNORECASE)
SECONDS = 30  # for one scenario; one that hangs ends the program, with a traceback


class Mismatch(Exception):
    pass


def same(want, got, what):
    if want != got:
        raise Mismatch(f"{what}: want {want!r}, got {got!r}")


def fails(kind, action, what):
    """Runs an action that must fail and returns its error."""
    try:
        result = action()
    except kind as e:
        return e
    except Exception as e:
        raise Mismatch(f"{what}: want {kind.__name__}, got {type(e).__name__}: {e}") from e
    raise Mismatch(f"{what}: succeeded with {result!r}")


def run(area, scenarios):
    for scenario in scenarios:
        name = scenario.__doc__
        outcome, detail = "passed", ""
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        try:
            scenario()
        except Exception as e:
            detail = f"{type(e).__name__}: {e}".splitlines()[0]
            text = detail + str(getattr(e, "details", ""))
            outcome = "refused" if not isinstance(e, Mismatch) and REFUSAL.search(text) else "wrong"
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps({"area": area, "name": name, "outcome": outcome, "detail": detail}), flush=True)
