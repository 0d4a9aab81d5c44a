#!/usr/bin/python3
"""The alerts, docs/runbooks.md and docs/logging.md match the program:
- each alert has a section in docs/runbooks.md, and each section has an alert; a section has Meaning, Look at and Do;
- each metric in an expression of an alert, in docs/runbooks.md and docs/logging.md is on the router's page, and so is each label value;
- each state of a source except synced has an alert;
- if promtool is installed, it accepts the rules, and each alert for a state fires only in this state;
- the log of a router has only the events, levels and fields that docs/logging.md lists.

usage: monitoring_test.py KVCAST SOURCE_DIR
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
import urllib.error
import urllib.request

KVCAST, ROOT = sys.argv[1], pathlib.Path(sys.argv[2])
RULES = ROOT / "examples/monitoring/alerts.yml"
RUNBOOKS = (ROOT / "docs/runbooks.md").read_text(encoding="utf-8")
LOGGING = (ROOT / "docs/logging.md").read_text(encoding="utf-8")
METRIC = r"\b(?:kvcast|process)_[a-z_]+\b"
COMMON_FIELDS = {"time", "level", "event", "source"}

failures = 0


def check(claim, holds, detail=""):
    global failures
    if not holds:
        failures += 1
        print(f"FAILED: {claim} {detail}")


def alerts():
    """Returns the rules. Reads only the YAML that the file uses: one value in a line, and folded expressions."""
    rules = []
    for text in RULES.read_text(encoding="utf-8").split("- alert: ")[1:]:
        expr = re.search(r"^        expr: (?:>-\n((?:          .*\n)+)|(.*)\n)", text, re.M)
        rules.append({"alert": text.split()[0], "expr": " ".join((expr[1] or expr[2]).split()),
                      "severity": re.search(r"labels: \{severity: (\w+)\}", text)[1],
                      "annotations": {name: value.strip('"') for name, value in
                                      re.findall(r"^          (summary|runbook_url): (.*)$", text, re.M)}})
    return rules


def sections():
    """Returns the sections of docs/runbooks.md: anchor -> text."""
    parts = re.split(r"^## (.+)$", RUNBOOKS, flags=re.M)[1:]
    return {title.lower(): text for title, text in zip(parts[::2], parts[1::2])}


def check_runbooks(rules):
    named = sections()
    anchors = set()
    for rule in rules:
        page, _, anchor = rule["annotations"].get("runbook_url", "").partition("#")
        anchors.add(anchor)
        check(f"{rule['alert']} has its section", page == "docs/runbooks.md" and anchor == rule["alert"].lower()
              and anchor in named, rule["annotations"])
        check(f"{rule['alert']} has a summary and a severity", rule["annotations"].get("summary")
              and rule["severity"] in ("critical", "warning", "info"))
    check("each section has an alert", anchors == set(named), anchors ^ set(named))
    for title, text in named.items():
        for part in ("Meaning", "Look at", "Do"):
            check(f"{title} has the part {part}", re.search(rf"^\*\*{part}\.\*\* \S.{{10,}}", text, re.M))
    for anchor in re.findall(r"\]\((?:runbooks\.md)?#(\w+)\)", RUNBOOKS + LOGGING):
        check(f"the link #{anchor} has a section", anchor in named)


def check_metrics(rules, page):
    families = set(re.findall(r"^# HELP (\S+)", page, re.M))
    for rule in rules:
        metrics = set(re.findall(METRIC, rule["expr"]))
        check(f"{rule['alert']} has a metric", metrics)
        check(f"{rule['alert']}: its metrics exist", metrics <= families, metrics - families)
        for metric, labels in re.findall(r"(\w+)\{([^}]*)\}", rule["expr"]):
            for label, value in re.findall(r'(\w+)="([^"]*)"', labels):
                exists = label == "job" or re.search(rf'^{metric}{{[^}}]*\b{label}="{value}"', page, re.M)
                check(f"{rule['alert']}: {label}={value} exists", exists)
    for name, text in (("runbooks.md", RUNBOOKS), ("logging.md", LOGGING)):
        metrics = set(re.findall(METRIC, text))
        check(f"{name}: its metrics exist", metrics <= families, metrics - families)
    states = set(re.findall(r'^kvcast_source_state\{worker="one",state="(\w+)"\}', page, re.M))
    alerted = set(re.findall(r'kvcast_source_state\{state="(\w+)"\}', " ".join(rule["expr"] for rule in rules)))
    check("each state except synced has an alert", len(states) == 8 and alerted == states - {"synced"}, alerted ^ states)


def series(metric, **labels):
    inside = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{metric}{{{inside}}}"


def peer_join_tests(rule):
    """The alert fires in the first ten minutes of a router whose join failed, and not if the join was complete."""
    fires = {"exp_labels": {"instance": "r", "state": "timeout", "severity": rule["severity"]},
             "exp_annotations": {**rule["annotations"], "summary":
                                 rule["annotations"]["summary"].replace("{{ $labels.state }}", "timeout")}}
    return [{"interval": "1m",
             "input_series": [
                 {"series": series("kvcast_peer_join_state", instance="r", state=state), "values": "1x20"},
                 {"series": series("process_start_time_seconds", instance="r"), "values": "0x20"}],
             "alert_rule_test": [{"eval_time": time, "alertname": rule["alert"], "exp_alerts": expected}]}
            for state, time, expected in (("timeout", "9m", [fires]), ("timeout", "11m", []), ("complete", "9m", []))]


def late_events_tests(rule):
    """The alert fires if batches arrive late. It does not fire if batches arrive in time, and the engine then has no
    requests: the age of the last batch grows from 600 s on."""
    fires = {"exp_labels": {"instance": "r", "worker": "w", "severity": rule["severity"]},
             "exp_annotations": {**rule["annotations"], "summary":
                                 rule["annotations"]["summary"].replace("{{ $labels.worker }}", "w")
                                 .replace("{{ $value }}", "60")}}
    cases = (("60x240", "0+50x240", {"10m": [fires]}),
             ("0x120 5+5x120", "0+50x120 6000x120", {f"{600 + s}s": [] for s in range(0, 600, 15)}))
    return [{"interval": "5s",
             "input_series": [
                 {"series": series("kvcast_source_event_age_seconds", instance="r", worker="w"), "values": ages},
                 {"series": series("kvcast_source_batches_total", instance="r", worker="w"), "values": batches}],
             "alert_rule_test": [{"eval_time": time, "alertname": rule["alert"], "exp_alerts": expected}
                                 for time, expected in times.items()]}
            for ages, batches, times in cases]


def check_with_promtool(rules):
    if not shutil.which("promtool"):
        print("promtool is not installed")
        return
    lint = subprocess.run(["promtool", "check", "rules", RULES], capture_output=True, text=True, check=False)
    check("promtool check rules", lint.returncode == 0, lint.stdout + lint.stderr)
    tests = []
    for rule in rules:
        state = re.fullmatch(r'kvcast_source_state\{state="(\w+)"\} == 1', rule["expr"])
        if not state:
            continue
        fires = {"exp_labels": {"worker": "w", "state": state[1], "severity": rule["severity"]},
                 "exp_annotations": {**rule["annotations"], "summary":
                                     rule["annotations"]["summary"].replace("{{ $labels.worker }}", "w")}}
        for value, expected in ((1, [fires]), (0, [])):
            tests.append({"interval": "1m",
                          "input_series": [{"series": series("kvcast_source_state", worker="w", state=state[1]),
                                            "values": f"{value}x20"}],
                          "alert_rule_test": [{"eval_time": "15m", "alertname": rule["alert"],
                                               "exp_alerts": expected}]})
    check("the states are tested", len(tests) == 14, len(tests))
    tests += peer_join_tests(next(rule for rule in rules if rule["alert"] == "KvcastPeerJoinFailed"))
    tests += late_events_tests(next(rule for rule in rules if rule["alert"] == "KvcastEventsLate"))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "test.yml"
        path.write_text(json.dumps({"rule_files": [str(RULES.resolve())], "tests": tests}), encoding="utf-8")
        run = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True, check=False)
        check("promtool test rules", run.returncode == 0, run.stdout + run.stderr)


def listed_events():
    """Returns the rows of the table in docs/logging.md: event -> (levels, fields)."""
    rows = {}
    for name, level, fields in re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \|", LOGGING, re.M):
        rows[name] = (set(level.strip().split(" or ")),
                      {field.strip() for field in re.sub(r"\([^)]*\)", "", fields).split(",")})
    return rows


class Router:
    def __init__(self, folder):
        tokens = pathlib.Path(folder) / "tokens"
        tokens.write_text("observe watcher\nadmin owner\n", encoding="utf-8")
        tokens.chmod(0o600)
        self.config = pathlib.Path(folder) / "config.json"
        # Nothing answers at port 9.
        self.config.write_text(json.dumps({"dns_server": "127.0.0.1:9", "dns_sources": [
            {"lookup": "x.test", "source": {"name": "{host}", "endpoint": "tcp://{host}:9"}}],
            "kubernetes_api": "http://127.0.0.1:9", "kubernetes_token_file": "", "kubernetes_sources": [
                {"service": "x", "namespace": "y", "source": {"name": "{host}", "endpoint": "tcp://{host}:9"}}]}),
                               encoding="utf-8")
        self.sources = pathlib.Path(folder) / "sources.json"
        remote = {"name": "two", "endpoint": "tcp://192.0.2.1:9"}  # needs a key, so it cannot be followed
        self.sources.write_text(json.dumps({"sources": [remote, remote | {"name": "three", "insecure": True}]}),
                                encoding="utf-8")
        self.state = pathlib.Path(folder) / "state"
        self.state.mkdir(mode=0o700)
        (self.state / "shard-0.state").write_text("damaged", encoding="utf-8")
        self.process = subprocess.Popen(
            [KVCAST, "router", "--http", "127.0.0.1:0", "--log-format", "json", "--log-level", "debug", "--relay",
             "tcp://127.0.0.1:0", "--load-endpoint", "tcp://127.0.0.1:0", "--token-file", tokens, "--source", "one=tcp://127.0.0.1:9,insecure=true",
             "--source", "logged=nats:model/engine", "--nats", "nats://127.0.0.1:9", "--config", self.config, "--peer", "http://127.0.0.1:9", "--source-file", self.sources, "--state", self.state, "--state-interval", "1"],
            stderr=subprocess.PIPE, text=True)
        self.lines = []
        self.url = self.await_event("http_listening")["address"]

    def await_event(self, event):
        for line in self.process.stderr:
            self.lines.append(json.loads(line))
            if self.lines[-1]["event"] == event:
                return self.lines[-1]
        raise AssertionError(f"the router ended before {event}: {self.lines}")

    def call(self, path, token, data=None, method=None):
        request = urllib.request.Request(self.url + path, data, {"Authorization": f"Bearer {token}"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, ""

    def stop(self):
        self.process.terminate()
        self.lines += [json.loads(line) for line in self.process.stderr]
        return self.process.wait(timeout=60)


def check_log(lines):
    rows = listed_events()
    for line in lines:
        levels, fields = rows.get(line["event"], (set(), set()))
        check(f"{line['event']} is listed with its level", line["level"] in levels, line)
        check(f"{line['event']}: its fields are listed", set(line) - COMMON_FIELDS <= fields, set(line) - COMMON_FIELDS - fields)
    seen = {line["event"] for line in lines}
    for event in ("started", "stopping", "http_listening", "stream_listening", "source_added", "source_insecure",
                  "source_refused", "source_removed", "source_failed", "source_file_read", "source_file_failed",
                  "source_lookup_failed", "source_watch_failed", "peer_join_failed", "state_refused", "state_saved", "state_save_failed",
                  "reloaded", "reload_failed", "http_refused", "http_failed", "http_request"):
        check(f"the router writes {event}", event in seen, seen)


with tempfile.TemporaryDirectory() as temporary:
    router = Router(temporary)
    status, metrics_page = router.call("/metrics", "watcher")
    check("the page of metrics is served", status == 200)
    check("a request with an unknown token is refused", router.call("/v1/state", "nobody")[0] == 401)
    check("a source is refused", router.call("/v1/sources", "owner", b"{}")[0] == 400)
    router.await_event("source_file_read")
    router.await_event("source_lookup_failed")
    router.sources.write_text("", encoding="utf-8")
    router.await_event("source_file_failed")
    router.process.send_signal(signal.SIGHUP)
    router.await_event("reloaded")
    router.config.write_text("[", encoding="utf-8")
    router.process.send_signal(signal.SIGHUP)
    router.await_event("reload_failed")
    router.sources.write_text('{"sources": []}', encoding="utf-8")
    router.await_event("source_file_read")
    router.await_event("state_saved")
    router.state.rename(router.state.with_name("moved"))
    router.await_event("state_save_failed")
    check("the router is not ready", router.call("/readyz", "")[0] == 503)
    for name in ("one", "logged"):
        check(f"{name} is removed", router.call(f"/v1/sources?name={name}", "owner", method="DELETE")[0] == 200)
    check("a request fails", router.call("/v1/route", "owner", b'{"tokens": [1]}')[0] == 503)
    check("the router ends", router.stop() == 0)
check_log(router.lines)
check_runbooks(alerts())
check_metrics(alerts(), metrics_page)
check_with_promtool(alerts())
print(f"{len(alerts())} alerts, {len(router.lines)} lines of log, {failures} failures")
sys.exit(1 if failures else 0)
