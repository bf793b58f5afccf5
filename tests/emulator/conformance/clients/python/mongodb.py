"""MongoDB with pymongo."""

import itertools
import os
from datetime import datetime, timezone

import pymongo
from bson import Decimal128, Int64, ObjectId, Timestamp
from pymongo.errors import BulkWriteError, OperationFailure

from report import fails, run, same
from table import table

client = pymongo.MongoClient(os.environ["MONGODB_URI"], serverSelectionTimeoutMS=5000, tz_aware=True)
db = client.python
numbers = itertools.count(1)


def fresh():
    return db[f"c{next(numbers)}"]


def filled(*docs):
    c = fresh()
    c.insert_many(docs)
    return c


def code(e):
    return e.code


def insert_and_find():
    """insert and find"""
    c, name, at = fresh(), ObjectId(), datetime(2001, 9, 9, tzinfo=timezone.utc)
    doc = {"_id": name, "text": "x", "n": 1, "d": 1.5, "long": Int64(2**40), "yes": True, "at": at, "list": [1, {"a": None}], "price": Decimal128("1.10")}
    c.insert_one(dict(doc))
    same(doc, c.find_one({"list.a": None, "at": {"$gte": at}}), "document")


def find():
    """find sorted, skipped, limited, projected"""
    c = filled({"_id": 1, "a": 3}, {"_id": 2, "a": 1}, {"_id": 3, "a": 2}, {"_id": 4, "a": 1})
    same([{"_id": 4}, {"_id": 3}], list(c.find({}, {"_id": 1}).sort([("a", 1), ("_id", 1)]).skip(1).limit(2)), "found")
    same(4, c.count_documents({}), "count")
    same([1, 2, 3], sorted(c.distinct("a")), "distinct")


def batches():
    """a cursor of many batches"""
    c = filled(*({"_id": i} for i in range(250)))
    same(list(range(250)), [d["_id"] for d in c.find(batch_size=20).sort("_id", 1)], "documents")


def update():
    """update"""
    c = filled({"_id": 1, "n": 1, "tags": ["a"], "rows": [{"k": 1, "v": 1}, {"k": 2, "v": 1}]})
    r = c.update_one({"_id": 1}, {
        "$inc": {"n": 2, "rows.$[r].v": 10}, "$push": {"tags": {"$each": ["c", "b"], "$sort": 1, "$slice": 2}}, "$set": {"deep.x": 1},
    }, array_filters=[{"r.k": 2}])
    same((1, 1), (r.matched_count, r.modified_count), "counts")
    same({"_id": 1, "n": 3, "tags": ["a", "b"], "rows": [{"k": 1, "v": 1}, {"k": 2, "v": 11}], "deep": {"x": 1}}, c.find_one(), "document")
    c.update_many({}, [{"$set": {"total": {"$sum": "$rows.v"}}}])
    same(12, c.find_one()["total"], "by a pipeline")


def upsert():
    """upsert and replace"""
    c = fresh()
    same("k", c.update_one({"_id": "k", "kind": "x"}, {"$setOnInsert": {"n": 1}}, upsert=True).upserted_id, "upserted")
    c.replace_one({"_id": "k"}, {"n": 2})
    same([{"_id": "k", "n": 2}], list(c.find()), "documents")


def find_and_modify():
    """find one and modify"""
    c = filled({"_id": 1, "n": 1})
    same({"_id": 1, "n": 1}, c.find_one_and_update({"_id": 1}, {"$inc": {"n": 1}}), "before")
    same({"_id": 1, "n": 3}, c.find_one_and_update({"_id": 1}, {"$inc": {"n": 1}}, return_document=True), "after")
    same({"_id": 1, "n": 3}, c.find_one_and_delete({"_id": 1}), "deleted")
    same(None, c.find_one_and_delete({"_id": 1}), "nothing")


def bulk_write():
    """bulk write"""
    c = fresh()
    r = c.bulk_write([
        pymongo.InsertOne({"_id": 1, "n": 1}), pymongo.InsertOne({"_id": 2}), pymongo.UpdateOne({"_id": 1}, {"$inc": {"n": 1}}),
        pymongo.DeleteOne({"_id": 2}), pymongo.ReplaceOne({"_id": 3}, {"n": 9}, upsert=True),
    ])
    same((2, 1, 1, 1), (r.inserted_count, r.modified_count, r.deleted_count, r.upserted_count), "counts")
    same([{"_id": 1, "n": 2}, {"_id": 3, "n": 9}], list(c.find().sort("_id", 1)), "documents")


def client_bulk_write():
    """bulk write of several collections"""
    a, b = fresh(), fresh()
    r = client.bulk_write([pymongo.InsertOne({"_id": 1}, namespace=a.full_name), pymongo.InsertOne({"_id": 2}, namespace=b.full_name)])
    same((2, 1), (r.inserted_count, b.count_documents({})), "counts")


def duplicate_key():
    """a duplicate key"""
    c = filled({"_id": 1})
    e = fails(BulkWriteError, lambda: c.insert_many([{"_id": 0}, {"_id": 1}, {"_id": 2}], ordered=False), "insert")
    same((11000, 2), (e.details["writeErrors"][0]["code"], e.details["nInserted"]), "error")
    same(3, c.count_documents({}), "documents")


def indexes():
    """indexes"""
    c = filled({"_id": 1, "mail": "a", "t": 1})
    same("mail_1", c.create_index("mail", unique=True), "name")
    c.create_index([("t", -1), ("mail", 1)], name="mine", partialFilterExpression={"t": {"$gt": 0}})
    same(["_id_", "mail_1", "mine"], list(c.index_information()), "indexes")
    same(11000, code(fails(OperationFailure, lambda: c.insert_one({"mail": "a"}), "insert")), "code")
    c.drop_index("mine")
    same(2, len(c.index_information()), "indexes left")


def aggregate():
    """aggregate"""
    c = filled({"_id": 1, "k": "a", "n": 1}, {"_id": 2, "k": "b", "n": 2}, {"_id": 3, "k": "a", "n": 3, "list": [7, 8]})
    same([{"_id": "a", "sum": 4, "ids": [1, 3]}, {"_id": "b", "sum": 2, "ids": [2]}], list(c.aggregate([
        {"$group": {"_id": "$k", "sum": {"$sum": "$n"}, "ids": {"$push": "$_id"}}}, {"$sort": {"_id": 1}},
    ])), "groups")
    same([{"_id": 3, "list": 7}, {"_id": 3, "list": 8}], list(c.aggregate([{"$unwind": "$list"}, {"$project": {"list": 1}}])), "unwound")


def lookup():
    """aggregate: look up another collection"""
    other, c = filled({"_id": "a", "name": "A"}), filled({"_id": 1, "k": "a"})
    found = list(c.aggregate([{"$lookup": {"from": other.name, "localField": "k", "foreignField": "_id", "as": "found"}}]))
    same([[{"_id": "a", "name": "A"}]], [d["found"] for d in found], "found")


def transaction():
    """a transaction commits and aborts"""
    c = filled({"_id": 1, "n": 0})

    def work(session):
        c.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
        c.insert_one({"_id": 2}, session=session)
        same(1, c.count_documents({}), "seen outside")

    with client.start_session() as session:
        session.with_transaction(work)
        same(2, c.count_documents({}), "seen after the commit")
        session.start_transaction()
        c.delete_many({}, session=session)
        session.abort_transaction()
        same(2, c.count_documents({}), "seen after the abort")


def conflict():
    """transactions conflict"""
    c = filled({"_id": 1, "n": 0})
    with client.start_session() as a, client.start_session() as b:
        a.start_transaction()
        b.start_transaction()
        c.update_one({"_id": 1}, {"$set": {"n": 1}}, session=a)
        e = fails(OperationFailure, lambda: c.update_one({"_id": 1}, {"$set": {"n": 2}}, session=b), "update")
        same((112, True), (e.code, e.has_error_label("TransientTransactionError")), "error")
        a.commit_transaction()


def change_stream():
    """a change stream, and resume"""
    c = filled({"_id": 0})
    with c.watch(full_document="updateLookup") as stream:
        c.insert_one({"_id": 1, "n": 1})
        c.update_one({"_id": 1}, {"$set": {"n": 2}})
        c.delete_one({"_id": 1})
        first = stream.next()
        same(("insert", {"_id": 1, "n": 1}), (first["operationType"], first["fullDocument"]), "first event")
    with c.watch(resume_after=first["_id"]) as stream:
        second = stream.next()
        same(("update", {"n": 2}), (second["operationType"], second["updateDescription"]["updatedFields"]), "second event")
        same("delete", stream.next()["operationType"], "third event")


def causal():
    """a causally consistent session"""
    c = fresh()
    with client.start_session(causal_consistency=True) as session:
        c.insert_one({"_id": 1}, session=session)
        same({"_id": 1}, c.with_options(read_preference=pymongo.ReadPreference.SECONDARY_PREFERRED).find_one({}, session=session), "read back")


def timestamp():
    """a timestamp of zero is filled in"""
    d = filled({"_id": 1, "at": Timestamp(0, 0), "deep": {"at": Timestamp(0, 0)}}).find_one()
    same((True, Timestamp(0, 0)), (d["at"].time > 0, d["deep"]["at"]), "filled in at the top, and only there")


def collections():
    """collections"""
    c = filled({"_id": 1})
    same([c.name], [x["name"] for x in db.list_collections(filter={"name": c.name})], "listed")
    c.drop()
    same([], db.list_collection_names(filter={"name": c.name}), "listed after")


def validator():
    """a validator"""
    c = db.create_collection(f"c{next(numbers)}", validator={"$jsonSchema": {"required": ["k"]}})
    same(121, code(fails(OperationFailure, lambda: c.insert_one({}), "insert")), "code")
    c.insert_one({"k": 1})


def administration():
    """administration"""
    same(1, db.command("ping")["ok"], "ping")
    same(3, len(client.server_info()["versionArray"][:3]), "version")
    same(True, "python" in client.list_database_names(), "databases")
    same("rs0", db.command("hello")["setName"], "replica set")


def statistics():
    """statistics of a database"""
    filled({"_id": 1})
    same(True, db.command("dbStats")["collections"] > 0, "collections")


with client:
    run("mongodb", [
        insert_and_find, find, batches, update, upsert, find_and_modify, bulk_write, client_bulk_write, duplicate_key, indexes, aggregate, lookup,
        transaction, conflict, change_stream, causal, timestamp, collections, validator, administration, statistics, *table(db),
    ])
