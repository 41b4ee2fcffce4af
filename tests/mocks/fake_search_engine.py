"""A fake of Elasticsearch: the published protocol of `_bulk`, `_index_template`, `_count` and `_search`, in memory.

It refuses what Elasticsearch refuses: bodies that are no NDJSON, wrong content types, templates without patterns.
"""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_KINDS = re.compile(r"application/(vnd\.elasticsearch\+)?(x-ndjson|json)(;\s*compatible-with=\d+)?")


class FakeSearchEngine:
    """`busy` holds statuses to answer to the next bulk requests; `slow` is how many documents of one it takes."""

    def __init__(self):
        self.indices, self.templates, self.busy, self.sizes, self.authorizations = {}, {}, [], [], set()
        self.slow, self.largest = 10**9, 10**9
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _any(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.authorizations.add(self.headers.get("Authorization"))
                status, answer = outer.answer(self.command, self.path.partition("?")[0], self.headers, body)
                data = json.dumps(answer).encode()
                self.send_response(status)
                for name, value in (("Content-Type", "application/json"), ("X-Elastic-Product", "Elasticsearch")):
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PUT = do_POST = _any  # noqa: N815

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method, path, headers, body):
        if body and not _KINDS.fullmatch(headers.get("Content-Type", "")):
            return 406, {"error": {"type": "media_type_header_exception"}}
        if match := re.fullmatch(r"/_index_template/([\w-]+)", path):
            template = json.loads(body)
            if not template.keys() <= {"index_patterns", "template", "priority", "_meta", "composed_of", "version"}:
                return 400, {"error": {"type": "x_content_parse_exception"}}
            assert template["index_patterns"] and template["template"]["mappings"]["properties"]
            self.templates[match[1]] = template
            return 200, {"acknowledged": True}
        if path == "/_bulk" and method in ("POST", "PUT"):
            return self.bulk(body)
        if match := re.fullmatch(r"/([\w-]+)/_(count|search)", path):
            documents = self.indices.get(match[1], {})
            hits = [{"_index": match[1], "_id": name, "_source": item} for name, item in documents.items()]
            return 200, {"count": len(hits), "hits": {"total": {"value": len(hits)}, "hits": hits}}
        return 404, {"error": {"type": "no_handler"}}

    def bulk(self, body):
        self.sizes.append(body.count(b"\n") // 2)
        if self.busy:
            return self.busy.pop(0), {"error": {"type": "es_rejected_execution_exception"}}
        if len(body) > self.largest:
            return 413, {}
        if not body.endswith(b"\n"):
            return 400, {"error": {"type": "illegal_argument_exception", "reason": "must be terminated by a newline"}}
        lines = [json.loads(line) for line in body.split(b"\n")[:-1]]
        items = []
        for number, (action, source) in enumerate(zip(lines[::2], lines[1::2], strict=True)):
            ((kind, place),) = action.items()
            assert kind == "index" and place.keys() == {"_index", "_id"} and isinstance(source, dict)
            item = {**place, "status": 201}
            if number >= self.slow:
                item |= {"status": 429, "error": {"type": "es_rejected_execution_exception", "reason": "queue full"}}
            elif not isinstance(source.get("value", 0.0), int | float):
                item |= {"status": 400, "error": {"type": "document_parsing_exception", "reason": "value: no double"}}
            else:
                self.indices.setdefault(place["_index"], {})[place["_id"]] = source
            items.append({kind: item})
        return 200, {"took": 1, "errors": any(item["index"]["status"] >= 300 for item in items), "items": items}
