#!/usr/bin/python3
"""Debian's Prometheus fetches and stores the metrics of a daemon, and promtool finds nothing to say of them.

    scrape_test.py PROGRAMS PROMETHEUS PROMTOOL

Two daemons that prove themselves by certificates, and a training of two ranks between them: so the page
has the metrics of links and certificates too.
"""

import contextlib
import json
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[3]
PATIENCE_S = 60  # only ends what hangs


def eventually(question, what):
    """The first true answer."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, urllib.error.URLError, ValueError):
            if answer := question():
                return answer
        time.sleep(0.1)
    sys.exit(f"not within {PATIENCE_S} s: {what}")


def fetch(url):
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        return answer.read().decode()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.contextmanager
def running(*command, log):
    with log.open("w") as out, subprocess.Popen(list(map(str, command)), stdout=out, stderr=out) as process:
        try:
            yield
        finally:
            process.kill()


def stored(prometheus, query):
    """The value that Prometheus has for the query, as text; None while it has none."""
    answer = json.loads(fetch(f"http://{prometheus}/api/v1/query?query={urllib.parse.quote(query)}"))
    return answer["data"]["result"][0]["value"][1] if answer["data"]["result"] else None


def check_alerts_and_dashboard(promtool, page):
    """They are well formed, and speak of metrics that there are."""
    rules = ROOT / "packaging/prometheus/tern.rules.yml"
    verdict = subprocess.run([promtool, "check", "rules", rules], capture_output=True, text=True, check=False)
    if verdict.returncode != 0:
        sys.exit(f"promtool: {verdict.stdout}{verdict.stderr}")
    dashboard = (ROOT / "packaging/prometheus/dashboard.json").read_text(encoding="utf-8")
    panels = json.loads(dashboard)["panels"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    for name in set(re.findall(r"\btern_[a-z_]+", "\n".join(expressions) + rules.read_text(encoding="utf-8"))):
        if f"\n{name}" not in page:
            sys.exit(f"alerts or dashboard speak of {name}, which there is not")


def certified(programs, folder, number):
    """A daemon's options; with them it proves that it is of this cluster."""
    authority, own = folder / "authority", folder / f"node{number}"
    ternctl = [programs / "ternctl", "pki"]
    if number == 0:
        subprocess.run([*ternctl, "init-ca", authority], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([*ternctl, "issue", authority, "127.0.0.1", "--out", own], check=True, stdout=subprocess.DEVNULL)
    return ["--peer-security", "tls", "--tls-ca-file", authority / "ca.pem", "--tls-certificate-file",
            own / "127.0.0.1.pem", "--tls-key-file", own / "127.0.0.1.key"]


def main():
    programs, program, promtool = map(pathlib.Path, sys.argv[1:])
    metrics, prometheus = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as processes:
        folder = pathlib.Path(name)
        for number in range(2):
            processes.enter_context(running(
                programs / "ternd", "--listen", "127.0.0.1:0", "--socket", folder / f"sock{number}", "--control-socket",
                folder / f"control{number}", "--lanes", "2", *certified(programs, folder, number),
                *(["--metrics-listen", metrics] if number == 0 else []), log=folder / f"ternd{number}.log"))
            eventually(lambda number=number: (folder / f"sock{number}").exists(), f"daemon {number}")
            # Longer than this test lasts; it is killed at the end.
            processes.enter_context(running(
                programs / "train_mnist", "--rank", number, "--size", 2, "--group-id-file", folder / "group", "--socket",
                folder / f"sock{number}", "--recipe", "3lc:s=1", "--steps", 10_000_000, log=folder / f"rank{number}.log"))
        # A link has a round trip once its peer has acknowledged something.
        page = eventually(lambda: "tern_link_round_trip_seconds{" in (text := fetch(f"http://{metrics}/metrics")) and text,
                          "metrics of links")
        for family in ("tern_link_sent_bytes_total{", "tern_certificate_expiry_timestamp_seconds{"):
            if f"\n{family}" not in page:
                sys.exit(f"no {family} on\n{page}")
        verdict = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, text=True, check=False)
        if verdict.returncode != 0 or verdict.stderr:
            sys.exit(f"promtool: {verdict.stderr}\n{page}")
        check_alerts_and_dashboard(promtool, page)
        config = folder / "prometheus.yml"
        config.write_text("global: {scrape_interval: 1s}\nscrape_configs:\n  - job_name: tern\n"
                          f"    static_configs: [{{targets: ['{metrics}']}}]\n", encoding="utf-8")
        processes.enter_context(running(
            program, f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={prometheus}", log=folder / "prometheus.log"))
        for query, value in (("up", "1"), ("tern_lanes", "2"), ("tern_silent_lanes", "0"), ("tern_peers", "1"),
                             ("sum(tern_link_sent_bytes_total) > bool 0", "1")):
            got = eventually(lambda query=query: stored(prometheus, query), f"{query} in Prometheus")
            if got != value:
                sys.exit(f"{query} is {got} in Prometheus, not {value}")
    print("stored")


if __name__ == "__main__":
    main()
