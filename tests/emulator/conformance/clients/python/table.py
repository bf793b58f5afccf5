"""The scenarios of ../mongodb.json, which every language runs."""

import json
from pathlib import Path

from bson import json_util
from pymongo.errors import OperationFailure

from report import fails, same

AWARE = json_util.JSONOptions(tz_aware=True)


def table(db):
    """Gives a scenario for each entry."""
    text = Path(__file__).with_name("..").joinpath("mongodb.json").read_text()
    return [scenario(db, text, n, entry["name"]) for n, entry in enumerate(json.loads(text), 1)]


def scenario(db, text, n, name):
    def run():
        c, other = db[f"t{n}"], db[f"o{n}"]
        s = json_util.loads(text.replace("OTHER", other.name), json_options=AWARE)[n - 1]
        c.insert_many(s["docs"])
        if "other" in s:
            other.insert_many(s["other"])

        def act():
            if "aggregate" in s:
                return list(c.aggregate(s["aggregate"]))
            if "find" in s:
                sort = list(s["sort"].items()) if "sort" in s else None
                return list(c.find(s["find"], s.get("projection"), sort=sort, collation=s.get("collation")))
            c.update_one({}, s["update"])
            return list(c.find())

        if "error" in s:
            same(s["error"], fails(OperationFailure, act, name).code, "code")
            return
        same(s["want"], act(), "result")
        if "after" in s:
            same(s["after"], list(other.find().sort("_id", 1)), "the other collection")

    run.__doc__ = name
    return run
