"""An API server of Kubernetes for tests: lists and watches of EndpointSlices over TLS.
SPDX-License-Identifier: Apache-2.0
"""
import http.server
import json
import queue
import ssl
import threading
import urllib.parse

PATH = "/apis/discovery.k8s.io/v1/namespaces/models/endpointslices"


def slice_of(*hosts, ready=True):
    return {"metadata": {"labels": {"kubernetes.io/service-name": "vllm"}}, "addressType": "IPv4",
            "endpoints": [{"addresses": [host], "conditions": {"ready": ready, "terminating": False}}
                          for host in hosts],
            "ports": [{"name": "kv-events", "port": 9, "protocol": "TCP"}]}


class Cluster:
    """The slices, their versions and their watches. Thread-safe."""

    def __init__(self, token):
        self.lock = threading.Lock()
        self.token = token
        self.version = 1
        self.slices, self.history, self.watches, self.requests = {}, [], [], []
        self.oldest = 0  # a watch of an older version has expired

    def _change(self, kind, name, changed):
        with self.lock:
            self.version += 1
            changed["metadata"] |= {"name": name, "resourceVersion": str(self.version)}
            if kind == "DELETED":
                del self.slices[name]
            else:
                self.slices[name] = changed
            event = {"type": kind, "object": json.loads(json.dumps(changed))}
            self.history.append((self.version, event))
            self._send(event)

    def _send(self, event):
        for watch in self.watches:
            watch.put(json.dumps(event).encode() + b"\n")

    def put(self, name, changed):
        self._change("MODIFIED" if name in self.slices else "ADDED", name, changed)

    def delete(self, name):
        self._change("DELETED", name, self.slices[name])

    def bookmark(self):
        with self.lock:
            self.version += 1
            self._send({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self.version)}}})
            return str(self.version)

    def send(self, data):
        """Sends bytes in each watch."""
        with self.lock:
            for watch in self.watches:
                watch.put(data)

    def cut(self, data=b""):
        """Ends the connection of each watch after these bytes."""
        with self.lock:
            for watch in self.watches:
                watch.put(data)
                watch.put(None)
            self.watches.clear()

    def forget(self):
        """Ends the connections, and makes the watches of all earlier versions expire."""
        with self.lock:
            self.version += 1
            self.oldest = self.version
        self.cut()

    def watch(self, version):
        """Returns the bytes of a new watch, piece by piece."""
        pieces = queue.Queue()
        with self.lock:
            if version < self.oldest:
                expired = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}
                pieces.put(json.dumps(expired).encode() + b"\n")
                pieces.put(None)
                return pieces
            for event_version, event in self.history:
                if event_version > version:
                    pieces.put(json.dumps(event).encode() + b"\n")
            self.watches.append(pieces)
        return pieces

    def page(self, limit, after):
        """Returns a page of the list. The token of the next page is the name of the latest slice."""
        with self.lock:
            names = sorted(name for name in self.slices if name > after)
            metadata = {"resourceVersion": str(self.version)}
            if len(names) > limit:
                metadata["continue"] = names[limit - 1]
            return {"kind": "EndpointSliceList", "metadata": metadata,
                    "items": [self.slices[name] for name in names[:limit]]}

    def count_requests(self, **wanted):
        """Counts the requests with these parameters."""
        with self.lock:
            return sum(wanted.items() <= request.items() for request in self.requests)


def serve(cluster, port, certificate, key):
    """Starts a server. Port 0 takes a free port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def reply(self, status, body):
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self):
            url = urllib.parse.urlsplit(self.path)
            parameters = dict(urllib.parse.parse_qsl(url.query))
            allowed = self.headers["Authorization"] == f"Bearer {cluster.token}"
            with cluster.lock:
                cluster.requests.append(parameters | {"allowed": allowed})
            if not allowed:
                self.reply(401, {"kind": "Status", "code": 401, "message": "Unauthorized"})
            elif url.path != PATH or parameters["labelSelector"] != "kubernetes.io/service-name=vllm":
                self.reply(404, {"kind": "Status", "code": 404, "message": self.path})
            elif "watch" not in parameters:
                self.reply(200, cluster.page(int(parameters["limit"]), parameters.get("continue", "")))
            else:
                self.stream(cluster.watch(int(parameters["resourceVersion"])))

        def stream(self, pieces):
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.close_connection = True
            while (data := pieces.get()) is not None:
                if data:
                    self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            # There is no last chunk, so the answer is cut.

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True
        allow_reuse_address = True

        def handle_error(self, *_):
            pass  # the router ends connections

    server = Server(("127.0.0.1", port), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    # The handshake must not block the thread that accepts.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
