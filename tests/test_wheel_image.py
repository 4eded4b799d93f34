"""The image as a stranger has it: built from the wheel, started, asked, killed and started again; then by the files for
compose and Kubernetes. It needs root, podman and mmdebstrap, and no registry."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
import yaml
from conftest import HANG_S
from deployed import DEPLOY, replaced
from images import IMAGE, Podman
from ports import free_port
from wheels import wheel_for

from duo import Duo
from duo.models.demo import demo_pair

pytestmark = [pytest.mark.wheel, pytest.mark.timeout(1800)]

BODY = {"prompt": "Once upon a time", "n_predict": 24, "temperature": 0}
START_S = 3 * HANG_S  # with the trial of the CPU's kernels, on a machine that builds meanwhile


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    kept = os.environ.get("DUO_TEST_IMAGES")
    p = Podman(Path(kept) if kept else tmp_path_factory.mktemp("podman"))
    try:
        if not p.has(IMAGE):
            began = time.monotonic()
            size = p.inspect(p.built(wheel_for("cp311"), p.debian()))["Size"] / 1e6
            print(f"the image was built in {time.monotonic() - began:.0f} s and has {size:.0f} MB")
        yield p
    finally:
        p.end(keep=bool(kept))


@pytest.fixture(scope="module")
def text() -> str:
    with Duo(*demo_pair()) as d:
        return d.generate(BODY["prompt"], max_tokens=24, temperature=0).text  # type: ignore[arg-type]


def wait_until_it_serves(url: str, p: Podman, name: str) -> None:
    until = time.monotonic() + START_S
    while True:
        with suppress(httpx.TransportError):
            if httpx.get(url + "/health", timeout=HANG_S).status_code == 200:
                return
        running = p.inspect(name)["State"]["Running"]
        assert running and time.monotonic() < until, p.run("logs", name, check=False)
        time.sleep(0.1)


def answer(url: str, **headers: str) -> str:
    r = httpx.post(url + "/completion", json=BODY, headers=headers, timeout=HANG_S)
    assert r.status_code == 200, r.text
    return str(r.json()["content"])


def test_started_asked_killed_and_started_again(podman: Podman, text: str) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    hardened = ["--read-only", "--tmpfs", "/tmp", "--cap-drop", "all", "--security-opt", "no-new-privileges"]
    podman.run("run", "-d", "--name", "one", *hardened, "-v", "cache:/cache", "-p", f"127.0.0.1:{port}:8080",
               IMAGE, "serve", "--insecure")  # fmt: skip
    wait_until_it_serves(url, podman, "one")
    assert answer(url) == text
    chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8}
    assert httpx.post(url + "/v1/chat/completions", json=chat, timeout=HANG_S).status_code == 200
    assert podman.run("exec", "one", "id", "-u").strip() == "10001"
    assert podman.run("exec", "one", "cat", "/proc/1/comm").strip() in ("duo", "python", "python3")
    podman.run("healthcheck", "run", "one")

    podman.run("kill", "--signal", "KILL", "one")
    podman.run("wait", "one")
    assert podman.inspect("one")["State"]["ExitCode"] == 137
    with pytest.raises(httpx.TransportError):
        httpx.get(url + "/health", timeout=HANG_S)
    podman.run("start", "one")
    wait_until_it_serves(url, podman, "one")
    assert answer(url) == text

    podman.run("stop", "-t", "45", "one")
    assert podman.inspect("one")["State"]["ExitCode"] == 0, podman.run("logs", "one", check=False)
    podman.run("rm", "one")


def test_other_commands_and_a_start_without_a_key(podman: Podman) -> None:
    assert podman.run("run", "--rm", IMAGE, "--version").startswith("duo ")
    assert "CPU kernels: duo" in podman.run("run", "--rm", IMAGE, "devices")
    port = free_port()
    podman.run("run", "-d", "--name", "open", "-p", f"127.0.0.1:{port}:8080", IMAGE)  # it listens on all addresses
    try:
        wait_until_it_serves(f"http://127.0.0.1:{port}", podman, "open")
        said = podman.run("logs", "open", check=False)
        assert "--insecure" in said and "Traceback" not in said
    finally:
        podman.run("rm", "-f", "open")


def test_compose(podman: Podman, tmp_path: Path, text: str) -> None:
    """The service duo of compose.yaml. The others need images of a registry."""
    if importlib.util.find_spec("podman_compose") is None:
        pytest.skip("needs podman-compose (pip install podman-compose)")
    port = free_port()
    deploy = tmp_path / "deploy"
    shutil.copytree(DEPLOY, deploy)
    (deploy / "compose.yaml").write_text(
        replaced((DEPLOY / "compose.yaml").read_text("utf-8"), ("127.0.0.1:8080:8080", f"127.0.0.1:{port}:8080"))
    )
    wrapper = tmp_path / "podman"
    wrapper.write_text(f'#!/bin/sh\nexec {" ".join(podman.command)} "$@"\n')
    wrapper.chmod(0o755)

    def compose(*words: str) -> None:
        own = ["--podman-path", str(wrapper), "-f", "deploy/compose.yaml"]
        command = [sys.executable, "-m", "podman_compose", *own, *words]
        env = {**podman.environment, "DUO_ARGS": "--insecure"}  # podman-compose: always one argument
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    podman.run("tag", IMAGE, "docker.io/library/duo:latest")
    try:
        compose("up", "-d", "--no-build", "duo")
        url = f"http://127.0.0.1:{port}"
        wait_until_it_serves(url, podman, "duo_duo_1")
        assert answer(url) == text
    finally:
        compose("down")


def test_the_pod_of_kubernetes(podman: Podman, tmp_path: Path, text: str) -> None:
    """podman plays the Deployment with one replica: its probes, its key, its read-only root, its mounted models."""
    port = free_port()
    spec = yaml.safe_load((DEPLOY / "kubernetes" / "deployment.yaml").read_text("utf-8"))
    spec["spec"]["replicas"] = 1
    pod = spec["spec"]["template"]["spec"]
    pod["containers"][0]["image"] = IMAGE
    pod["containers"][0]["ports"][0]["hostPort"] = port
    del pod["containers"][0]["resources"]  # this machine has less
    models = tmp_path / "models"
    models.mkdir()
    for name, path in zip(("target", "draft"), demo_pair(), strict=True):
        shutil.copy(path, models / f"{name}.gguf")
    models.chmod(0o755)  # the container's user reads them
    (volume,) = (v for v in pod["volumes"] if v["name"] == "models")
    del volume["persistentVolumeClaim"]
    volume["hostPath"] = {"path": str(models), "type": "Directory"}
    secret, file = tmp_path / "secret.json", tmp_path / "pod.yaml"
    secret.write_text(json.dumps({"api-key": base64.b64encode(b"secret").decode()}))  # as podman 4.3 reads it
    podman.run("secret", "create", "duo", secret)
    file.write_text(yaml.safe_dump(spec))
    podman.run("play", "kube", file)
    try:
        (name,) = (n for n in podman.run("ps", "--format", "{{.Names}}").split() if n.endswith("-duo"))
        url = f"http://127.0.0.1:{port}"
        wait_until_it_serves(url, podman, name)
        assert httpx.post(url + "/completion", json=BODY, timeout=HANG_S).status_code == 401
        assert answer(url, Authorization="Bearer secret") == text
    finally:
        podman.run("play", "kube", "--down", file)
        podman.run("secret", "rm", "duo")
