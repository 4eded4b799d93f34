"""The measurements of `duo doctor -ngl N`: a model that is on devices, whole or in part."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from duo import _core
from duo.benchmark.doctor import N_CONTEXT, Progress, context_of, divergence, options, passes_of, times_of, what_pays
from duo.errors import BadValueError, UnknownModelError
from duo.models.header import read_header
from duo.placement import kernels
from duo.placement.device_rooms import devices_for
from duo.placement.devices import default_flash_attn, devices
from duo.support.wording import plural


@dataclass
class DeviceReport:
    model: str
    devices: list[str]
    n_gpu_layers: int
    n_all: int  # layers as -ngl counts them
    n_threads: int
    duo_types: list[str]  # weight types of the CPU's part that duo's kernels compute
    differ: list[int]  # widths whose logits differ from those of one row
    differ_again: list[int]  # widths whose logits differ if the pass is made again
    differ_by: float  # KL(one row || the widest pass) of the next token in nats, mean over the rows
    divergence: float  # KL(CPU || here), the same
    ms: dict[int, float]  # width -> milliseconds of a pass
    prompt_ms: float  # of the 544 tokens before

    def v(self, width: int) -> float:
        """Time of a pass over `width` tokens, in passes over one token."""
        return self.ms[width] / self.ms[1]

    def verdict(self) -> list[str]:
        """The conclusions, one sentence each."""
        sentences = [f"{self.n_gpu_layers} of {plural(self.n_all, 'layer')} on {', '.join(self.devices)}."]
        if not self.differ:
            sentences.append("Logits are equal, bit for bit, at widths 1 to 16.")
        else:
            widths = ", ".join(map(str, self.differ))
            sentences.append(
                f"Logits differ from those of one row at widths {widths} (KL divergence {self.differ_by:.1e} nats): "
                "where two tokens nearly tie, the text may differ with and without a draft."
            )
        if self.differ_again:
            widths = ", ".join(map(str, self.differ_again))
            sentences.append(f"The same pass gives other logits when it is made again, at widths {widths}.")
        return [*sentences, what_pays(self.v(4))]


def examine_placed(
    path: str,
    n_gpu_layers: int,
    names: Sequence[str],
    n_threads: int,
    *,
    repeat: int = 5,
    progress: Progress = lambda _: None,
) -> DeviceReport:
    """Loads the model with n_gpu_layers layers on the devices, and once on the CPU to compare.

    names: of the devices; empty: every GPU. Raises DoesNotFitError, UnknownModelError, or BadValueError: there is no
    such device.
    """
    if not os.path.isfile(path):
        raise UnknownModelError(f"there is no file {path}; check the path")
    device_names = devices_for(names, devices())
    if not device_names:
        raise BadValueError("there is no GPU here; leave -ngl out, and duo doctor checks the CPU's kernels")
    n_all = read_header(path).n_layer + 1
    n = n_all if n_gpu_layers < 0 else min(n_gpu_layers, n_all)
    duo_types = kernels.chosen_types("auto", path, n, [n_threads], n_threads)
    progress(f"{plural(n, 'layer')} on {', '.join(device_names)}")
    o = options(path, n_threads, duo_types, N_CONTEXT + 32)
    o.devices, o.n_gpu_layers = list(device_names), n
    o.flash_attn = default_flash_attn(devices(), device_names)
    probe = _core.Probe(o)
    context = context_of(probe, N_CONTEXT)
    tokens = context_of(probe, 40)[-16:]
    alone, wide = passes_of(probe, context, tokens)
    differ = [w for w, rows in wide.items() if rows.tobytes() != alone[:w].tobytes()]
    differ_by = divergence(alone, wide[max(wide)])
    again = [
        w
        for w, rows in wide.items()
        if (probe.decode(tokens[:w], len(context)), probe.logits())[1].tobytes() != rows.tobytes()
    ]
    ms = times_of(probe, context, tokens, repeat)
    prompt_ms = probe.decode(context, 0) / 1e3
    del probe
    progress("the CPU alone")
    probe = _core.Probe(options(path, n_threads, duo_types, N_CONTEXT + 32))
    probe.decode(context, 0)
    probe.decode(tokens, len(context))
    from_cpu = divergence(probe.logits(), wide[len(tokens)])
    return DeviceReport(
        Path(path).name, list(device_names), n, n_all, n_threads, duo_types, differ, again, differ_by, from_cpu, ms,
        prompt_ms,
    )  # fmt: skip
