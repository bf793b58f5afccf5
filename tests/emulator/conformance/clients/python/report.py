"""Runs scenarios and prints what became of each as one line of JSON.

A scenario passes, or it is "refused" when the server said by name that it does not do this, or it is "wrong": a result,
an error or a silence that the real service would not give.
"""

import concurrent.futures
import faulthandler
import json
import re
import sys

REFUSAL = re.compile(r"not supported|not implemented|NotImplemented|does not support", re.IGNORECASE)
SECONDS = 40  # for one scenario; one that hangs ends the program, with a traceback


class Mismatch(Exception):
    pass


def same(want, got, what):
    if want != got:
        raise Mismatch(f"{what}: want {want!r}, got {got!r}")


def fails(kind, action, what):
    """Runs an action that must fail and returns its error. kind is a class, or several."""
    try:
        result = action()
    except kind as e:
        return e
    except Exception as e:
        raise Mismatch(f"{what}: want {kind}, got {type(e).__name__}: {e}") from e
    raise Mismatch(f"{what}: succeeded with {result!r}")


def run(area, scenarios, at_once=0):
    """With at_once so many run side by side, and each is given a function that makes names that are its alone."""
    def one(n, scenario):
        try:
            if at_once:
                scenario(lambda kind: f"{kind}{n}")
            else:
                scenario()
        except Exception as e:
            detail = f"{type(e).__name__}: {e}".splitlines()[0]
            text = detail + str(getattr(e, "details", ""))
            return "refused" if not isinstance(e, Mismatch) and REFUSAL.search(text) else "wrong", detail
        return "passed", ""

    rounds = -(-len(scenarios) // (at_once or len(scenarios)))
    faulthandler.dump_traceback_later(SECONDS * rounds, exit=True)
    with concurrent.futures.ThreadPoolExecutor(at_once or 1) as threads:
        for scenario, (outcome, detail) in zip(scenarios, threads.map(one, range(len(scenarios)), scenarios)):
            print(json.dumps({"area": area, "name": scenario.__doc__, "outcome": outcome, "detail": detail}), flush=True)
    faulthandler.cancel_dump_traceback_later()
