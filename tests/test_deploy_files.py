"""The other files of deploy/: the image, compose, Kubernetes, llama-swap, systemd. Their commands are run here."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import httpx
import pytest
import yaml
from conftest import HANG_S
from deployed import DEPLOY, answers, file, replaced, running
from needs import lacks, need_program
from ports import free_port
from served import TALE, served

from duo.cli.commands.serve import command as serve_command
from duo.cli.options import given_options
from duo.options.tables import SERVE_OPTIONS
from duo.options.validate import serve_options
from duo.server.lifecycle import END_S

ROOT = DEPLOY.parent
KUBERNETES = sorted(DEPLOY.glob("kubernetes/*.yaml"))
OPERATORS = sorted(DEPLOY.glob("kubernetes/operators/*.yaml"))


def loaded(path: Path) -> dict[str, Any]:
    (found,) = yaml.safe_load_all(path.read_text("utf-8"))
    assert isinstance(found, dict)
    return found


def options_of(args: list[str]) -> dict[str, Any]:
    """The options that `duo serve` would have. Fails on one that it does not know."""
    assert args[0] == "serve"
    context: click.Context = serve_command.make_context("serve", args[1:])
    return {**context.params, **serve_options(given_options(context.params, SERVE_OPTIONS))}


# ---- the image


def instructions() -> list[tuple[str, str]]:
    text = "\n".join(x for x in file("Dockerfile").splitlines() if not x.startswith("#")).replace("\\\n", " ")
    found = [line.split(" ", 1) for line in text.splitlines() if line]
    return [(name, rest.strip()) for name, rest in found]


def of(name: str) -> list[str]:
    return [rest for n, rest in instructions() if n == name]


def kept_by_dockerignore() -> list[str]:
    lines = [x for x in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if x and not x.startswith("#")]
    assert lines[0] == "*"  # everything is left out, but for what follows
    return [x[1:] for x in lines if x.startswith("!")]


def test_the_image_has_what_it_copies() -> None:
    *others, wheel = sorted(kept_by_dockerignore(), key=lambda name: "*" in name)
    assert all((ROOT / name).exists() for name in others) and wheel == "dist/duo_llama-*.whl"
    kept = others
    defaults = {f"${{{name}}}": value for name, _, value in (rest.partition("=") for rest in of("ARG"))}
    copies = [rest for rest in of("COPY") if not rest.startswith("--from")]
    sources = [defaults.get(s, s) for rest in copies for s in rest.split()[:-1]]
    assert sources
    for source in sources:
        assert (ROOT / source).exists() and (source == "." or source.split("/")[0] in kept), source
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    named = re.findall(r'^(?:readme = |license-files = \[)"(.+?)"', project, re.MULTILINE)
    assert len(named) == 2 and set(named) <= set(kept)


def test_the_image_is_made_as_the_makefile_does() -> None:
    (make,) = re.findall(r"\*\) (make .+?);;", " ".join(of("RUN")))
    done = subprocess.run([*shlex.split(make), "-n"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "tools/install_llama.py" in done.stdout, done.stderr
    (install,) = (rest for rest in of("RUN") if "pip install" in rest)
    extras = re.findall(r"\[([a-z,]+)\]", install)  # of the wheel, and of the sources
    assert [set(x.split(",")) for x in extras] == [{"remote", "server"}] * 2 and "--no-build-isolation" in install
    args = {rest.split("=")[0] for rest in of("ARG")}
    for backend in re.findall(r"--build-arg (\w+)=", file("Dockerfile")):
        assert backend in args


def test_the_image_runs_as_nobody_in_particular_and_gets_signals() -> None:
    names = [name for name, _ in instructions()]
    assert names.count("FROM") == 2 and of("STOPSIGNAL") == ["SIGTERM"]
    assert of("USER") == ["10001:10001"] and names.index("USER") > names.index("ENTRYPOINT") - 8
    assert json.loads(of("ENTRYPOINT")[0]) == ["duo"] and json.loads(of("CMD")[0]) == ["serve"]  # exec form
    assert set(json.loads(of("VOLUME")[0])) == {"/models", "/cache"}
    variables = dict(pair.split("=", 1) for pair in of("ENV")[0].split())
    assert variables["LLAMA_ARG_PORT"] == of("EXPOSE")[0]


def test_the_health_check_of_the_image() -> None:
    (rest,) = of("HEALTHCHECK")
    program, *args = json.loads(rest.split(" CMD ", 1)[1])
    assert program == "python"

    def healthy(port: str) -> bool:
        env = {**os.environ, "LLAMA_ARG_PORT": port}
        return subprocess.run([sys.executable, *args], env=env, capture_output=True, timeout=HANG_S).returncode == 0

    with served(n_parallel=1) as s:
        port = s.url.rsplit(":", 1)[1]
        assert healthy(port)
    assert not healthy(port)


# ---- compose


def test_compose() -> None:
    compose = loaded(DEPLOY / "compose.yaml")
    services = compose["services"]
    assert set(services) == {"duo", "prometheus", "grafana", "nginx"}
    assert services["nginx"]["profiles"] == ["proxy"] and services["grafana"]["profiles"] == ["grafana"]
    duo = services["duo"]
    assert (DEPLOY / duo["build"]["context"] / duo["build"]["dockerfile"]).is_file()
    o = options_of(shlex.split(duo["command"].replace("${DUO_ARGS:-}", "-c 4096")))
    assert o["insecure"] and all(p.startswith("127.0.0.1:") for p in duo["ports"])
    assert int(duo["stop_grace_period"].removesuffix("s")) > o["drain"] + END_S
    for service in services.values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert (DEPLOY / source).is_file() if source.startswith(".") else source in compose["volumes"], volume
        for use in service.get("configs", ()):
            yaml.safe_load(compose["configs"][use["source"]]["content"])
        assert set(service.get("secrets", ())) <= set(compose["secrets"])
    (source,) = yaml.safe_load(compose["configs"]["grafana_source"]["content"])["datasources"]
    assert source["url"] == "http://prometheus:9090"
    for secret in compose["secrets"]:
        assert f"/run/secrets/{secret}" in file("nginx.conf")


def test_compose_by_its_schema() -> None:
    if importlib.util.find_spec("check_jsonschema") is None:
        lacks("compose")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, DEPLOY / "compose.yaml"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


# ---- Kubernetes


def test_kubernetes() -> None:
    found = {(d["kind"], d["metadata"]["name"]): d for d in map(loaded, (*KUBERNETES, *OPERATORS))}
    assert {k for k, _ in found} == {"Deployment", "Service", "PodDisruptionBudget", "ServiceMonitor", "ScaledObject"}
    deployment = found["Deployment", "duo"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    pod = deployment["template"]["spec"]
    (container,) = pod["containers"]
    port = container["ports"][0]["name"]
    # Selectors, ports and keys name each other.
    assert deployment["selector"]["matchLabels"].items() <= labels.items()
    service = found["Service", "duo"]
    assert service["spec"]["selector"].items() <= labels.items() and service["spec"]["ports"][0]["targetPort"] == port
    assert found["PodDisruptionBudget", "duo"]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    monitor = found["ServiceMonitor", "duo"]["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    secret = container["env"][0]["valueFrom"]["secretKeyRef"]
    assert monitor["endpoints"][0]["authorization"]["credentials"] == secret
    scaled = found["ScaledObject", "duo"]["spec"]
    assert scaled["scaleTargetRef"]["name"] == "duo" and scaled["minReplicaCount"] >= 2
    assert {v["name"] for v in pod["volumes"]} == {m["name"] for m in container["volumeMounts"]}
    assert str(pod["securityContext"]["runAsUser"]) == of("USER")[0].split(":")[0]
    # Long enough for preStop, the drain and the end.
    o = options_of(container["args"])
    pause = float(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > pause + o["drain"] + END_S
    ready = container["readinessProbe"]
    assert pause > ready["periodSeconds"] * ready["failureThreshold"]
    assert container["resources"]["requests"] == container["resources"]["limits"]  # as the CPU manager wants it
    assert container["ports"][0]["containerPort"] == int(of("EXPOSE")[0])


def test_the_probes_and_the_key(tmp_path: Path) -> None:
    """The paths answer without a key, and the key comes from the variable."""
    pod = loaded(DEPLOY / "kubernetes" / "deployment.yaml")["spec"]["template"]["spec"]["containers"][0]
    with served({"api_key": "secret"}, n_parallel=1) as s:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert s.get(pod[probe]["httpGet"]["path"]).status_code == 200
        assert s.get("/metrics").status_code == 401
        assert s.get("/metrics", headers={"Authorization": "Bearer secret"}).status_code == 200
    (option,) = (p for p in serve_command.params if p.name == "api_key")
    assert isinstance(option, click.Option) and pod["env"][0]["name"] in str(option.envvar)


@pytest.mark.parametrize("path", KUBERNETES, ids=lambda p: p.name)
def test_kubernetes_by_its_schemas(path: Path) -> None:
    if importlib.util.find_spec("kubernetes_validate") is None:
        lacks("kubernetes")
    validate = importlib.import_module("kubernetes_validate")
    validate.validate(loaded(path), validate.latest_version(), strict=True)


# ---- llama-swap and systemd: what they start


def tale(url: str, model: str, **headers: str) -> None:
    body = {"model": model, "messages": TALE, "max_tokens": 8, "ignore_eos": True}
    answer = httpx.post(url + "/v1/chat/completions", json=body, headers=headers, timeout=HANG_S)
    assert answer.status_code == 200 and answer.json()["usage"]["completion_tokens"] == 8


def here(command: list[str]) -> list[str]:
    assert command[0].endswith("duo")
    return [sys.executable, "-m", "duo", *command[1:]]


@pytest.mark.daily
@pytest.mark.full
def test_what_llama_swap_starts() -> None:
    config = loaded(DEPLOY / "llama-swap.yaml")
    ((name, model),), port = config["models"].items(), free_port()
    url = model["proxy"].replace("${PORT}", str(port))
    command = here(shlex.split(model["cmd"].replace("${PORT}", str(port))))
    o = options_of(command[3:])
    assert o["drain"] < 5  # it kills what has not ended after 5 s
    with running(command, lambda: answers(url) and httpx.get(url + model["checkEndpoint"]).status_code == 200) as p:
        tale(url, name)
        slots = httpx.get(url + "/slots", timeout=HANG_S).json()
        assert model["concurrencyLimit"] == len(slots) * 9  # places, and eight that wait for each
        p.send_signal(signal.SIGTERM)
        assert p.wait(HANG_S) == 0


def unit() -> dict[str, str]:
    return dict(line.split("=", 1) for line in file("duo.service").splitlines() if re.match(r"[A-Z]\w*=", line))


@pytest.mark.full
def test_what_systemd_starts(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("secret\n")
    port = free_port()
    line = replaced(unit()["ExecStart"], (r" -m \S+ -md \S+", ""), ("%d", str(tmp_path)), ("8080", str(port)))
    command = here(shlex.split(line))
    o = options_of(command[3:])
    assert float(unit()["TimeoutStopSec"]) > o["drain"] + END_S
    url = f"http://127.0.0.1:{port}"
    with running(command, lambda: answers(url) and httpx.get(url + "/health").status_code == 200) as p:
        assert httpx.post(url + "/v1/chat/completions", json={}, timeout=HANG_S).status_code == 401
        tale(url, "duo", Authorization="Bearer secret")
        p.send_signal(signal.SIGTERM)
        assert p.wait(HANG_S) == 0


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    path = tmp_path / "duo.service"
    path.write_text(replaced(file("duo.service"), ("/opt/duo/bin/duo", sys.executable)))
    done = subprocess.run(
        [need_program("systemd", "systemd-analyze"), "verify", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_the_unit_does_not_hide_gpus() -> None:
    """Each of these closes /dev but for a few devices; ProtectClock does so on older systemd."""
    assert not unit().keys() & {"PrivateDevices", "DevicePolicy", "DeviceAllow", "ProtectClock"}


def test_every_file_is_in_the_readme() -> None:
    told = file("README.md")
    for path in DEPLOY.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts and path.name != "README.md":
            assert f"`{path.relative_to(DEPLOY)}`" in told, path.name
