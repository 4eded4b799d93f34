"""What Prometheus and Grafana ask of a server: deploy/prometheus.yml, grafana.json and the query of the autoscaler."""

from __future__ import annotations

import json
import math
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from conftest import HANG_S
from deployed import answers, file, replaced, running
from needs import need_program
from ports import free_port
from prometheus_client.parser import text_string_to_metric_families
from served import GREEDY, PROMPT, TALE, Server, served

pytestmark = pytest.mark.full

DASHBOARD = json.loads(file("grafana.json"))
PANELS = DASHBOARD["panels"]
SCALED = yaml.safe_load(file("kubernetes/operators/autoscaler.yaml"))["spec"]["triggers"][0]["metadata"]["query"]
WINDOW_S = 4  # of rates
QUERIES = [t["expr"] for p in PANELS for t in p["targets"]] + [SCALED]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with served({"queue": 0}, n_parallel=1, always=True) as s:
        yield s


def work(server: Server, i: int) -> None:
    """Texts, and a request that is refused."""
    assert server.post("/completion", {"prompt": f"{PROMPT} {i}", **GREEDY}).status_code == 200
    assert server.post("/v1/chat/completions", {"messages": TALE, "n": 2}).status_code == 400


def test_every_figure_of_the_dashboard_is_there(server: Server) -> None:
    work(server, 0)
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(server.get("/metrics").text):
        for s in family.samples:
            labels.setdefault(s.name, set()).update(s.labels)
    for query in QUERIES:
        names = set(re.findall(r"\bduo_\w+", query))
        assert names and names <= labels.keys(), (query, names - labels.keys())
        by = set(re.findall(r"\bby \((\w+)\)", query))
        assert by <= set().union(*(labels[n] for n in names)), query


def test_the_dashboard_is_sound() -> None:
    ids = [p["id"] for p in PANELS]
    assert len(set(ids)) == len(ids) and all(p["title"] and p["description"] for p in PANELS)
    cells = [(x, y) for p in PANELS for g in [p["gridPos"]] for x in range(g["x"], g["x"] + g["w"])
             for y in range(g["y"], g["y"] + g["h"])]  # fmt: skip
    assert len(set(cells)) == len(cells) and max(x for x, _ in cells) < 24  # no panel lies over another one
    known = {v["name"] for v in DASHBOARD["templating"]["list"]} | {"__rate_interval"}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD))) - {"__all"} == known
    wanted = ("First token", "Queue", "Accepted by position", "Stance", "Refused")
    assert set(wanted) <= {p["title"] for p in PANELS}


@pytest.fixture(scope="module")
def prometheus(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address; it has been told to ask each second."""
    program, folder = need_program("prometheus", "prometheus"), tmp_path_factory.mktemp("prometheus")
    port = free_port()
    conf = folder / "prometheus.yml"
    conf.write_text(replaced(file("prometheus.yml"), ("duo:8080", server.url.removeprefix("http://")),
                             ("scrape_interval: 5s", "scrape_interval: 1s")))  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    command = [program, f"--config.file={conf}", f"--storage.tsdb.path={folder}/data",
               f"--web.listen-address=127.0.0.1:{port}"]  # fmt: skip
    with running(command, lambda: answers(url + "/-/ready")):
        yield url


def asked(prometheus: str, query: str) -> list[float]:
    """The values; those that are no numbers (0 divided by 0) are left out."""
    query = query.replace('"$job"', '".*"').replace('"$instance"', '".*"').replace("$__rate_interval", f"{WINDOW_S}s")
    found: Any = httpx.get(prometheus + "/api/v1/query", params={"query": query}, timeout=HANG_S).json()
    assert found["status"] == "success", (query, found)
    return [v for r in found["data"]["result"] if not math.isnan(v := float(r["value"][1]))]


@pytest.mark.daily
def test_prometheus_answers_every_query(prometheus: str, server: Server) -> None:
    until = time.monotonic() + HANG_S
    # Figures that are younger than the window are extrapolated, each by itself, so shares of them can exceed 1.
    missing, i = [*QUERIES, f"up offset {WINDOW_S + 1}s"], 0
    while missing:
        assert time.monotonic() < until, missing
        work(server, i := i + 1)
        time.sleep(0.5)
        missing = [q for q in missing if not asked(prometheus, q)]
    assert asked(prometheus, 'up{job="duo"}') == [1.0]
    for panel in PANELS:
        if panel["fieldConfig"]["defaults"]["unit"] == "percentunit":
            for target in panel["targets"]:
                values = asked(prometheus, target["expr"])
                assert all(0 <= v <= 1 for v in values), (values, target)


def test_promtool_accepts_the_file() -> None:
    path = Path(__file__).parents[1] / "deploy" / "prometheus.yml"
    done = subprocess.run(
        [need_program("prometheus", "promtool"), "check", "config", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
