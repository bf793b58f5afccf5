"""customer_totals: the orders and the paid cents of each customer."""
import hashlib
import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DECLARATION = json.dumps({"protocol": 1, "name": "customer_totals", "collections": [
    {"name": "customer_totals", "keyedBy": ["data", "customerId"],
     "indexes": [{"keys": [{"field": ["paidCents"], "order": -1}]}]}]}).encode()
HASH = hashlib.sha256(DECLARATION).hexdigest()

def project(event):
    if event["operation"] != "insert":
        return {"writes": []}  # an event store only grows
    data = event["data"]["fullDocument"].get("data", {})
    customer, total = data.get("customerId"), data.get("totalCents")
    if not customer or not isinstance(total, dict):
        return {"permanent": "the event has no data.customerId or no data.totalCents"}
    cents = int(total.get("$numberInt") or total.get("$numberLong"))  # canonical Extended JSON
    change = {"OrderPlaced": ("orders", 1), "OrderPaid": ("paidCents", cents), "OrderRefunded": ("paidCents", -cents)}.get(event["type"])
    if change is None:
        return {"writes": []}
    return {"writes": [{"write": "update", "collection": "customer_totals", "id": customer,
                        "ops": [{"op": "inc", "field": [change[0]], "value": change[1]}]}]}

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps connections
    wbufsize = -1  # sends an answer in one piece
    def do_GET(self):
        self.answer(DECLARATION)
    def do_POST(self):
        events = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(json.dumps({"declaration": HASH, "results": [{"id": e["id"], **project(e)} for e in events]}).encode())
    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8088"))), Handler).serve_forever()
