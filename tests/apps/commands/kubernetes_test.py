#!/usr/bin/python3
"""`kvcast router` follows the endpoints of the EndpointSlices that an API server lists. While the server does not
answer, or its answers are damaged, the router keeps its sources.
usage: kubernetes_test.py KVCAST
SPDX-License-Identifier: Apache-2.0
"""
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import kubernetes_api
from kubernetes_api import slice_of
from router_process import Router, check, finish, until

KVCAST = sys.argv[1]
LIST = "models/kubernetes.io/service-name=vllm:kv-events"
if shutil.which("openssl") is None:
    print("skipped: openssl is not installed; `scripts/setup --tests` installs it")
    sys.exit(77)


def make_certificate(folder, name):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / f"{name}.key",
                    "-out", folder / f"{name}.crt"], check=True, capture_output=True)


def replace(path, text):
    """Replaces the file in one step, so that the router never reads a part of the text."""
    new = path.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.rename(path)


def metric(router, name):
    series = f'kvcast_kubernetes_source_{name}{{list="{LIST}"}}'
    match = re.search(rf"^{re.escape(series)} (\d+)$", router.get("/metrics"), re.M)
    return match and int(match[1])


def endpoints_of(*hosts):
    return {f"engine-{host}": f"tcp://{host}:9" for host in hosts}


def write_config(path, port, **members):
    lists = [{"service": "vllm", "namespace": "models", "port_name": "kv-events",
              "source": {"name": "engine-{host}", "endpoint": "tcp://{host}:{port}"}}]
    path.write_text(json.dumps({"kubernetes_sources": lists, "kubernetes_api": f"https://127.0.0.1:{port}"} | members),
                    encoding="utf-8")


def follow_events(router, cluster):
    many = [f"127.0.1.{i}" for i in range(1, 26)]
    until("all pages are followed", lambda: router.endpoints() == endpoints_of(*many))
    check("a page has at most 20 slices", cluster.count_requests(limit="20") >= 2)
    until("the router watches", lambda: cluster.watches)
    for host in many:
        cluster.delete(host)
    cluster.put("a", slice_of("127.0.0.1", "127.0.0.2"))
    cluster.put("b", slice_of("127.0.0.2", "127.0.0.3"))
    united = endpoints_of("127.0.0.1", "127.0.0.2", "127.0.0.3")
    until("deleted slices leave, added slices come", lambda: router.endpoints() == united)
    cluster.put("b", slice_of("127.0.0.2", "127.0.0.3", ready=False))
    until("an endpoint that is not ready leaves", lambda: router.endpoints() == endpoints_of("127.0.0.1", "127.0.0.2"))
    check("the metrics count the endpoints", metric(router, "endpoints") == 2 and metric(router, "errors") == 0)


def end_watches(router, cluster):
    version = cluster.bookmark()
    cluster.cut(b'{"type": "ADDED", "obj')
    until("the watch goes on at the bookmark",
          lambda: cluster.count_requests(watch="true", resourceVersion=version) >= 1)
    until("the watch is open", lambda: cluster.watches)
    cluster.put("c", slice_of("127.0.0.4"))
    until("an event arrives", lambda: router.endpoints() == endpoints_of("127.0.0.1", "127.0.0.2", "127.0.0.4"))
    check("a watch that ends is no failure", metric(router, "errors") == 0)

    with cluster.lock:
        del cluster.slices["c"]  # its event is lost
    cluster.forget()
    until("an expired watch needs a new list", lambda: router.endpoints() == endpoints_of("127.0.0.1", "127.0.0.2"))
    until("the router watches again", lambda: len(cluster.watches) == 1)

    with cluster.lock:
        cluster.slices["d"] = slice_of("127.0.0.5")
        cluster.slices["d"]["metadata"] |= {"name": "d", "resourceVersion": str(cluster.version)}
    cluster.send(b'{"type": "MODIFIED", "object": {"metadata"\n')
    check("the damaged event is in the log", "not JSON" in router.await_event("source_watch_failed")["reason"])
    until("the state is listed again",
          lambda: router.endpoints() == endpoints_of("127.0.0.1", "127.0.0.2", "127.0.0.5"))
    until("the failure ends", lambda: metric(router, "errors") == 0)


with tempfile.TemporaryDirectory() as temporary:
    folder = pathlib.Path(temporary)
    make_certificate(folder, "api")
    make_certificate(folder, "other")
    cluster = kubernetes_api.Cluster("good")
    for i in range(1, 26):
        cluster.put(f"127.0.1.{i}", slice_of(f"127.0.1.{i}"))
    server = kubernetes_api.serve(cluster, 0, folder / "api.crt", folder / "api.key")
    port = server.server_address[1]
    config, token, authority = folder / "config.json", folder / "token", folder / "ca.crt"
    write_config(config, port, kubernetes_token_file=str(token), kubernetes_ca_file=str(authority))
    replace(authority, (folder / "other.crt").read_text(encoding="utf-8"))
    replace(token, "bad\n")

    router = Router(KVCAST, "--config", config)
    failed = router.await_event("source_watch_failed")
    check("the failure names the list", failed["source"] == LIST, failed)
    check("the certificate is not valid", "certificate" in failed["reason"], failed)
    check("a server without a valid certificate gets no request", not cluster.requests)
    check("the router is not ready", json.loads(router.get("/readyz")).get("no_source") is True)
    replace(authority, (folder / "api.crt").read_text(encoding="utf-8"))
    check("a bad token is refused", "401: Unauthorized" in router.await_event("source_watch_failed")["reason"])
    check("the failure is in the metrics", metric(router, "errors") == 1)
    replace(token, "good\n")

    follow_events(router, cluster)
    end_watches(router, cluster)

    cluster.cut()
    server.shutdown()
    server.server_close()
    until("the failure is in the metrics", lambda: metric(router, "errors") == 1)
    check("the sources stay", router.endpoints() == endpoints_of("127.0.0.1", "127.0.0.2", "127.0.0.5"))
    check("the number of sources stays", metric(router, "endpoints") == 3)
    cluster.put("a", slice_of("127.0.0.6"))
    server = kubernetes_api.serve(cluster, port, folder / "api.crt", folder / "api.key")
    until("the server is used again", lambda: "engine-127.0.0.6" in router.endpoints())
    until("the failure ends", lambda: metric(router, "errors") == 0)

    write_config(config, port, kubernetes_sources=[])
    router.process.send_signal(signal.SIGHUP)
    until("a list that was removed from the configuration leaves", lambda: router.endpoints() == {})
    check("there is no list", metric(router, "errors") is None)
    write_config(config, port)
    router.process.send_signal(signal.SIGHUP)
    until("a list that is set again is followed", lambda: "engine-127.0.0.6" in router.endpoints())
    until("the router watches", lambda: cluster.watches)
    began = time.monotonic()
    router.end()
    check("a watch does not delay the end", time.monotonic() - began < 20)
finish()
