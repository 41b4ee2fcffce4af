"""A fake of Weaviate's REST and gRPC interfaces, as far as weaviate-client 4.16 uses them for vectors of one's own.

    python fake_weaviate.py PORT GRPC_PORT

It searches by brute force. Every request is kept, and handed out by GET /fake/requests, so that a test can compare what
a driver asks with what the vendor's client asks. It is no Weaviate: it proves a protocol, not a server.
"""

import json
import sys
import threading
import uuid
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import numpy
from grpc_health.v1 import health_pb2
from weaviate.proto.v1 import aggregate_pb2, base_pb2, batch_pb2, search_get_pb2, weaviate_pb2_grpc

CLASSES: dict[str, dict] = {}
OBJECTS: dict[str, dict[int, tuple[numpy.ndarray, int]]] = {}
ASKED: list[dict] = []


class Rest(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=None):
        text = json.dumps(body).encode() if body is not None else b""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        path, _, _ = self.path.partition("?")
        name = path.rpartition("/")[2]
        if path == "/v1/meta":
            self.answer(200, {"version": "1.30.0", "hostname": "http://[::]:8080", "modules": {}})
        elif path == "/v1/.well-known/ready":
            self.answer(200, {})
        elif path == "/fake/requests":
            self.answer(200, ASKED)
        elif path == "/v1/schema":
            self.answer(200, {"classes": list(CLASSES.values())})
        elif path.startswith("/v1/schema/") and name in CLASSES:
            self.answer(200, CLASSES[name])
        elif path.startswith("/v1/nodes/"):
            shard = {"name": "s1", "class": name, "objectCount": 0, "vectorIndexingStatus": "READY"}
            node = {"name": "node1", "status": "HEALTHY", "version": "1.30.0", "gitHash": "", "shards": [shard]}
            self.answer(200, {"nodes": [node]})
        else:
            self.answer(404, {"error": [{"message": f"no {path}"}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        ASKED.append({"path": self.path, "body": body})
        if self.path != "/v1/schema":
            self.answer(404)
        elif body["class"] in CLASSES:
            self.answer(422, {"error": [{"message": f"class name {body['class']} already exists"}]})
        else:
            CLASSES[body["class"]] = body
            OBJECTS[body["class"]] = {}
            self.answer(200, body)

    def do_DELETE(self):
        name = self.path.rpartition("/")[2]
        CLASSES.pop(name, None)
        OBJECTS.pop(name, None)
        self.answer(200)


class Grpc(weaviate_pb2_grpc.WeaviateServicer):
    def BatchObjects(self, request, context):  # noqa: N802 - its name in the protocol
        keep("BatchObjects", request)
        for each in request.objects:
            raw = each.vectors[0].vector_bytes if each.vectors else each.vector_bytes
            label = int(dict(each.properties.non_ref_properties).get("label", 0))
            OBJECTS[each.collection][uuid.UUID(each.uuid).int] = numpy.frombuffer(raw, "<f4"), label
        return batch_pb2.BatchObjectsReply(took=0.001)

    def Search(self, request, context):  # noqa: N802
        keep("Search", request)
        if request.collection not in CLASSES:
            context.abort(grpc.StatusCode.UNKNOWN, f"could not find class {request.collection} in schema")
        near = request.near_vector
        query = numpy.frombuffer(near.vectors[0].vector_bytes if near.vectors else near.vector_bytes, "<f4")
        found = OBJECTS[request.collection].items()
        if request.HasField("filters"):
            assert request.filters.operator == base_pb2.Filters.OPERATOR_LESS_THAN
            assert request.filters.target.property == "label"
            found = [(key, each) for key, each in found if each[1] < request.filters.value_int]
        rule = CLASSES[request.collection]["vectorIndexConfig"]["distance"]
        nearest = sorted(found, key=lambda each: distance(rule, query, each[1][0]))[: request.limit]
        ids = [uuid.UUID(int=key) for key, _ in nearest]
        found = [search_get_pb2.MetadataResult(id=str(each), id_as_bytes=each.bytes) for each in ids]
        results = [search_get_pb2.SearchResult(metadata=each) for each in found]
        return search_get_pb2.SearchReply(took=0.001, results=results)

    def Aggregate(self, request, context):  # noqa: N802
        keep("Aggregate", request)
        single = aggregate_pb2.AggregateReply.Single(objects_count=len(OBJECTS[request.collection]))
        return aggregate_pb2.AggregateReply(took=0.001, single_result=single)


def keep(method, request):
    ASKED.append({"method": method, "hex": request.SerializeToString(deterministic=True).hex()})


def distance(rule, a, b):
    a, b = a.astype(float), b.astype(float)
    if rule == "l2-squared":
        return ((a - b) ** 2).sum()
    return -(a @ b) if rule == "dot" else -(a @ b) / numpy.linalg.norm(b)


def healthy(_, __):
    return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)


def main(port, grpc_port):
    server = grpc.server(futures.ThreadPoolExecutor(8))
    weaviate_pb2_grpc.add_WeaviateServicer_to_server(Grpc(), server)
    check = grpc.unary_unary_rpc_method_handler(
        healthy, health_pb2.HealthCheckRequest.FromString, health_pb2.HealthCheckResponse.SerializeToString
    )
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": check})])
    server.add_insecure_port(f"127.0.0.1:{grpc_port}")
    server.start()
    rest = ThreadingHTTPServer(("127.0.0.1", port), Rest)
    threading.Thread(target=rest.serve_forever, daemon=True).start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
