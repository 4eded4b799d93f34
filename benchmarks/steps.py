"""The measurements of `make bench`: a command for each, and how many seconds it takes on two cores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.pair_files import PairFiles
from benchmarks.run_real import DRAFT, TARGET

WHOLE_MINUTES = 56  # in which all steps run at scale 1
SCRIPTS = Path(__file__).parent
PROMPTS = str(SCRIPTS / "prompts/completion_dev.jsonl")
REAL, DEFAULTS, PINNED, ENGINE, COUNTS = (
    "Two real models",
    "Default options",
    "Each model pinned to its own core",
    "Parts of the engine",
    "Counts, which do not depend on the machine's speed",
)


@dataclass(frozen=True)
class Step:
    """One script, with fewer prompts than where the tables come from that were measured for hours."""

    name: str
    part: str
    title: str
    seconds: int
    about: str
    command: Callable[[PairFiles, Scale, Path], list[str]] = field(repr=False)
    timed: bool = True  # not a count: other programs would change it
    needs: tuple[str, ...] = ()  # real models, which `make models` brings


@dataclass(frozen=True)
class Scale:
    """How much of each step is run."""

    factor: float

    def of(self, n: int, least: int = 1) -> str:
        return str(max(least, round(n * self.factor)))


def script(name: str, *args: str | Path) -> list[str]:
    return ["-m", f"benchmarks.{name}", *map(str, args)]


def _drafts(m: PairFiles) -> list[str]:
    return ["--draft", f"0.01={m.small_draft}", "--draft", f"0.2={m.d120}"]


STEPS = [
    Step("real", REAL, "Qwen2.5-Coder 1.5B with its 0.5B draft, seven kinds of work", 1200,
         "Q4_K_M files as their authors published them; questions of Spec-Bench in ChatML, answers of up to 64 tokens, "
         "each prompt read anew. Medians, and the worst question in brackets. Whole time: from the request to the last "
         "token. Texts of duo are compared with its target alone, those of llama.cpp with its plain loop; right "
         "guesses are a share of those that were verified. Default options: nothing pinned, and llama.cpp has a thread "
         "for each core.",
         lambda m, s, out: script("run_real", "--questions", s.of(7, 2), "-n", 64, "--out", out),
         needs=(TARGET, DRAFT)),
    Step("race", DEFAULTS, "`duo race`: one text, temperature 0.8", 40,
         "The target alone (no draft loaded), then the pair, each in the placement that duo chooses; draft of 2.7 MB. "
         "The time for the prompt counts.",
         lambda m, s, out: script("run_races", "--target", m.target, "--draft", m.small_draft, "--races", s.of(4, 2),
                                  "--out", out)),
    Step("defaults", DEFAULTS, "As a new user starts it", 300,
         "Nothing pinned, no saved measurements, each mode in a fresh process, greedy, two texts of 128 tokens. c is "
         "the time of a draft step divided by that of a pass. async is compared with the better of plain decoding "
         "without a draft and turn-taking at its best length.",
         lambda m, s, out: script("run_defaults", "--target", m.target, *_drafts(m), "--draft", f"0.4={m.d240}",
                                  "--lengths", "2,4", "-n", 128, "--warm", "--rounds", s.of(2), "--out", out)),
    Step("texts", DEFAULTS, "Several texts at once", 75,
         "`duo bench --slots`, c = 0.2, greedy texts of 48 tokens; tokens/s of all texts together.",
         lambda m, s, out: ["-m", "duo", "bench", "-m", str(m.target), "-md", str(m.d120), "--slots", "1,2,4",
                            "-c", "2048", "-n", "48", "--temp", "0", "--ignore-eos", "-f", PROMPTS,
                            "--questions", s.of(8, 4), "--sync-lengths", "2", "--repetitions", "1",
                            "--json-file", str(out)]),
    Step("servers", DEFAULTS, "`duo serve`", 75,
         "A closed loop: as many requests in flight as there are clients; greedy texts of 24 tokens; draft of 2.7 MB.",
         lambda m, s, out: script("run_servers", "--target", m.target, "--draft", m.small_draft, "--clients", "1,4",
                                  "-n", 24, "--requests", s.of(6, 4), "--out", out)),
    Step("pair", PINNED, "duo beside llama.cpp's own loops", 240,
         "Target on core 0, draft (2.7 MB, c = 0.01) on core 1, greedy texts of 48 tokens; llama.cpp's loops are in "
         "`llama_cpp/`, on the same installed libraries.",
         lambda m, s, out: script("run_pair", "--target", m.target, "--draft", m.small_draft, "--useless", m.useless,
                                  "--cores", 0, "--cores-draft", 1, "--lengths", 2, "--lengths-duo", 4,
                                  "--questions", s.of(9, 3), "-n", 48, "--rounds", 1, "--out", out)),
    Step("devices", PINNED, "One device or two", 120,
         "A core stands for a device. `duo bench --placements`, greedy texts of 48 tokens.",
         lambda m, s, out: script("run_devices", "--target", m.target, *_drafts(m), "-f", PROMPTS, "--questions",
                                  s.of(4, 2), "--tokens", 48, "--repetitions", 1, "--out", out)),
    Step("remote", PINNED, "A draft host on loopback", 45,
         "Draft in this process, and in a `duo draft-host`; c = 0.2, greedy texts of 64 tokens.",
         lambda m, s, out: script("run_remote", "--target", m.target, "--draft", m.d120, "--rtt", 0, "--questions",
                                  s.of(4, 2), "--rounds", 1, "--out", out)),
    Step("kernels", ENGINE, "CPU kernels, one core", 310,
         "A target of 0.56 G weights in each type, 64 tokens of context. v(n): the time of a pass over n tokens "
         "divided by that of one.",
         lambda m, s, out: script("run_kernels", "--work", m.kernels, "--cores", 0, "--rounds", s.of(5, 3),
                                  "--out", out)),
    Step("kernels2", ENGINE, "CPU kernels, two cores", 110, "The same with two threads.",
         lambda m, s, out: script("run_kernels", "--work", m.kernels, "--cores", "0-1", "--types",
                                  "q8_0,q4_K_M,q4_0,q6_K,bf16", "--rounds", s.of(5, 3), "--out", out)),
    Step("company", ENGINE, "Batched texts", 110,
         "A text alone with four slots against one slot; four equal texts; a prompt of 2,000 tokens joins a text.",
         lambda m, s, out: script("measure_company", "--target", m.target, "--draft", m.d120, "-n", 48,
                                  "--prompt", 2000, "--rounds", s.of(3, 2), "--out", out)),
    Step("overhead", ENGINE, "duo's own time", 70, "All time between two passes that is neither a model nor a wait.",
         lambda m, s, out: script("run_overhead", "--work", m.folder / "overhead", "--repetitions", s.of(3, 2),
                                  "--out", out)),
    Step("synthetic", ENGINE, "Scheduling alone", 330,
         "Scripted models with exact timing, the real engine. a: how often the best guess is right; c: draft step / "
         "pass; v: the first value and the slope of the pass time by width. Turn-taking is tried with three to nine "
         "lengths.",
         lambda m, s, out: script("run_synthetic", "--grid", "main", "--grid", "poor", "--grid", "cheap", "--grid",
                                  "uneven", "--grid", "between", "--pass-ms", 4, "--questions", 2, "-n", s.of(80, 48),
                                  "--out", out)),
    Step("text", COUNTS, "Equal texts, and right guesses", 60, "The demo pair as it is, texts of 128 tokens.",
         lambda m, s, out: script("measure_text", "--questions", s.of(12, 4), "-n", 128, "--out", out), timed=False),
    Step("chances", COUNTS, "What a draft says of its guesses", 60, "The demo pair, texts of 96 tokens.",
         lambda m, s, out: script("measure_chances", "--questions", s.of(10, 4), "-n", 96, "--out", out), timed=False),
    Step("acceptance", COUNTS, "Rules of acceptance", 60,
         "In each cell: the share of guesses accepted with one guess in a pass; tokens of a pass with four.",
         lambda m, s, out: script("measure_acceptance", "--questions", s.of(10, 4), "-n", 96, "--out", out),
         timed=False),
    Step("head", COUNTS, "A draft head by the age of its states", 40, "demo-eagle3, greedy texts of 96 tokens.",
         lambda m, s, out: script("measure_head", "--questions", s.of(12, 4), "--out", out), timed=False),
]  # fmt: skip

LEFT_OUT = """These tables of [history/](history) are not part of `make bench`: other machines (AVX2, Zen 4), other
servers (llama-server, llama-cpp-python), round trips of 50 ms (they need root), the 13 GB model, accuracy against F32
weights, `-fno-dse`, waiting OpenMP teams, recurrent targets, whole runs of a head, texts with n-grams, soak and fault
runs. They take hours or need something that a checkout does not have."""
