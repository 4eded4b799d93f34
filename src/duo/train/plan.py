"""`--plan`: what a training needs, computed from sizes and speeds, before anything is done."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any, cast

from duo.options.train import DraftOptions, HeadOptions, TrainOptions
from duo.support.wording import gigabytes
from duo.train.course import recipe_of
from duo.train.sizes import NetworkSizes, TargetShape, draft_network, head_network, target_layers

# Of a device's speed; measured on two cores of a Zen 5 with the demo target.
SHARE_TEACH = 0.4
SHARE_TRAIN = 0.3
N_WRITTEN_AT_ONCE = 16


@dataclass(frozen=True)
class DeviceSpeed:
    """The speed of the device that trains."""

    flops: float  # of products per second
    bandwidth: float  # bytes per second

    def words(self) -> str:
        return f"{short(self.flops / 1e12)} TFLOPS, {short(self.bandwidth / 1e9)} GB/s"


@dataclass(frozen=True)
class TrainingPlan:
    """Bytes and seconds."""

    target: str
    network: NetworkSizes
    n_parameters: int
    n_products: int  # multiply-adds of one guess
    disk: int
    memory_teach: int
    memory_train: int
    seconds_write: float
    seconds_read: float
    seconds_train: float
    speed: DeviceSpeed

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[str]:
        n = self.network
        total_s = self.seconds_write + self.seconds_read + self.seconds_train
        return [
            f"{self.target}; to train: width {n.n_embd}, {n.n_head} heads of {n.n_head_dim}, feed-forward {n.n_ff}, "
            f"{n.n_rows} tokens: {short(self.n_parameters / 1e6)} M parameters",
            f"disk: {gigabytes(self.disk)} for the teacher's data and the checkpoint",
            f"memory: {gigabytes(self.memory_teach)} for the target while it teaches, then "
            f"{gigabytes(self.memory_train)} for the training",
            f"time at {self.speed.words()}: the target writes {hours(self.seconds_write)}, reads "
            f"{hours(self.seconds_read)}; the training takes {hours(self.seconds_train)}; together {hours(total_s)}",
        ]


def short(x: float) -> str:
    """Three digits, but no exponent for large numbers."""
    return f"{x:.0f}" if x >= 1000 else f"{x:.3g}"


def hours(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def plan_of(t: TargetShape, o: TrainOptions, *, head: bool, speed: DeviceSpeed) -> TrainingPlan:
    """Raises BadValueError: sizes that do not go together."""
    layers: tuple[int, ...] = ()
    if head:
        ho = cast("HeadOptions", o)
        layers = target_layers(t, ho["layers"])
        net, n_steps = head_network(t, ho), ho["steps"]
        n_once = len(layers) * t.n_embd * net.n_embd  # `fc`, once per token
        per_guess = _head_products(net)
        n_parameters = per_guess + n_once + t.n_vocab * net.n_embd
        learned = n_parameters - (t.n_vocab * net.n_embd if net.n_embd == t.n_embd else 0)
    else:
        net, n_steps, n_once = draft_network(t, cast("DraftOptions", o)), 1, 0
        per_guess = _draft_products(net)
        n_parameters = learned = per_guess + t.n_vocab * net.n_embd
    recipe = recipe_of(t, o, layers)
    n_tokens, length = o["tokens"], recipe.length
    # Each round reads all weights once for the texts that are written together.
    rounds = o["written"] * n_tokens / N_WRITTEN_AT_ONCE
    write = rounds * max(
        t.n_bytes / speed.bandwidth, 2 * N_WRITTEN_AT_ONCE * t.n_parameters / speed.flops / SHARE_TEACH
    )
    trained = o["epochs"] * n_tokens
    attention = n_steps * net.n_layer * net.n_head * net.n_head_dim * 2 * length
    train = trained * 6 * (n_steps * per_guess + n_once + attention) / speed.flops / SHARE_TRAIN
    if o["minutes"] is not None:
        train = min(train, 60 * o["minutes"])
    activations = _activations(net, n_steps, o["batch_tokens"], length, len(layers) * t.n_embd)
    cache = 4 * t.n_layer * t.n_head_kv * t.n_head_dim * length * N_WRITTEN_AT_ONCE
    return TrainingPlan(
        target=t.name,
        network=net,
        n_parameters=n_parameters,
        n_products=per_guess,
        disk=recipe.total_bytes(n_tokens) + 20 * n_parameters,
        memory_teach=t.n_bytes + cache,
        # Weights, gradients and two moments in 32 bits, and the best weights so far.
        memory_train=16 * learned + 8 * n_parameters + activations,
        seconds_write=write,
        seconds_read=2 * n_tokens * t.n_parameters / speed.flops / SHARE_TEACH,
        seconds_train=train,
        speed=speed,
    )  # fmt: skip


def _head_products(n: NetworkSizes) -> int:
    attention = (n.n_head + 2 * n.n_head_kv) * n.n_head_dim * 2 * n.n_embd + n.n_head * n.n_head_dim * n.n_embd
    return attention + 3 * n.n_embd * n.n_ff + n.n_embd * n.n_rows


def _draft_products(n: NetworkSizes) -> int:
    attention = (2 * n.n_head + 2 * n.n_head_kv) * n.n_head_dim * n.n_embd
    return n.n_layer * (attention + 3 * n.n_embd * n.n_ff) + n.n_embd * n.n_rows


def _activations(n: NetworkSizes, n_steps: int, n_tokens: int, length: int, n_features: int) -> int:
    """Bytes that the backward pass needs: what each layer of each step keeps for each token, about."""
    per_token = 16 * n.n_embd + 6 * n.n_head * n.n_head_dim + 4 * n.n_ff + 2 * n.n_head * min(length, n_tokens)
    return n_tokens * (n_steps * (n.n_layer * 4 * per_token + 3 * 4 * n.n_rows) + 6 * n_features)


def measured(device_name: str, precision: str) -> DeviceSpeed:
    """The speed of --train-device, measured with a product of matrices and a copy in half a second.

    Raises BadValueError: unknown device; MissingPackageError: PyTorch is not installed.
    """
    from duo.train.pytorch import device_of, has_bf16, need_torch

    need_torch("--plan measures this machine with PyTorch", "or say how fast your device is (--tflops, --bandwidth)")
    import torch

    device = device_of(device_name)
    bf16 = precision == "bf16" or (precision == "auto" and has_bf16(device))
    x = torch.randn(1024, 1024, device=device, dtype=torch.bfloat16 if bf16 else torch.float32)
    big = torch.zeros(1 << 26, device=device)
    return DeviceSpeed(
        2 * 1024**3 * _per_second(lambda: x @ x, device), 2 * big.nbytes * _per_second(big.clone, device)
    )


def _per_second(call: Any, device: Any) -> float:
    import torch

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    call()
    wait()
    n, began = 0, time.monotonic()
    while (passed := time.monotonic() - began) < 0.25 or n < 2:
        call()
        wait()
        n += 1
    return n / passed
