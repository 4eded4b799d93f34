"""The wheel as a stranger has it: a Debian with nothing but Python, and no network."""

import re
import time
from pathlib import Path

import pytest
from wheels import BareDebian, has_plugin, wheel_for

from duo import _core

INSTALL_S = 15  # wanted, on a machine that does nothing else

PROGRAMS = {
    "text": "import duo\nprint(duo.generate('Once upon a time', max_tokens=8).text)",
    "stream": "import duo\nfor c in duo.stream('Once upon a time', max_tokens=8):\n    print(c.text, end='')",
    "pair": "import duo\nfrom duo.models.demo import demo_pair\n"
    "with duo.Duo(*demo_pair(), n_draft=4) as d:\n    print(d.generate('Once', max_tokens=8).text)",
    "chat": "import duo\nwith duo.Duo(chat_template='chatml') as d:\n"
    "    print(d.create_chat_completion([{'role': 'user', 'content': 'Hi'}], max_tokens=8)['choices'][0])",
    "asyncio": "import asyncio, duo\nasync def main():\n    with duo.Duo() as d:\n"
    "        print((await d.agenerate('Once upon a time', max_tokens=8)).text)\nasyncio.run(main())",
}
SERVED = """
import json, subprocess, sys, time, urllib.request
server = subprocess.Popen(["duo", "serve", "--port", "8099", "-c", "512"])
def ask(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request("http://127.0.0.1:8099" + path, data, {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=60))
while True:
    try:
        ask("/health")
        break
    except OSError:
        assert server.poll() is None
        time.sleep(0.2)
print(ask("/completion", {"prompt": "Once", "n_predict": 4})["tokens_predicted"])
server.terminate()
sys.exit(server.wait() not in (0, -15, 143))
"""


@pytest.mark.wheel
@pytest.mark.timeout(900)
def test_a_bare_debian(tmp_path: Path) -> None:
    """A stranger's machine: no compiler, and no network after the download."""
    wheel = wheel_for("cp311")
    bare = BareDebian(tmp_path, wheel)
    assert not any(map(bare.has, ("gcc", "cc", "c++", "make", "cmake")))
    assert bare.run("python3", "-m", "venv", "venv").returncode == 0
    began = time.monotonic()
    done = bare.run("pip", "install", "-q", "--no-index", "--find-links", "wheelhouse", f"wheelhouse/{wheel.name}")
    print(f"pip install took {time.monotonic() - began:.1f} s (wanted: at most {INSTALL_S})")
    assert done.returncode == 0, done.stderr
    for name, code in PROGRAMS.items():
        bare.write(f"try_{name}.py", code)
        said = bare.run("python", f"try_{name}.py")
        assert said.returncode == 0 and len(said.stdout) > 4, (name, said.stderr)
    bare.write("served.py", SERVED)
    served = bare.run("python", "served.py")
    assert served.returncode == 0 and "4" in served.stdout.splitlines(), served.stderr
    race = bare.run("duo", "race")
    assert race.returncode == 0, race.stderr
    doctor = bare.run("duo", "doctor")
    assert doctor.returncode == 0, doctor.stderr
    devices = bare.run("duo", "devices")
    assert f"CPU kernels: duo ({_core.kernels()[0]})" in devices.stdout
    assert re.search(r"^llama.cpp.s CPU code: [a-z0-9]+$", devices.stdout, re.MULTILINE)
    for kind, driver in (("Vulkan", "libvulkan.so.1"), ("CUDA", "libcuda.so.1")):
        without = re.findall(rf"^{kind}: no device, because .*{driver}.* driver$", devices.stdout, re.MULTILINE)
        assert len(without) == has_plugin(wheel, kind.lower())
    assert devices.stderr == ""
