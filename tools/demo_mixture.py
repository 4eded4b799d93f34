"""Trains a small mixture of experts with an MTP layer: python tools/demo_mixture.py docs.json.xz build/mixture.gguf.

It begins as the demo target, most of whose feed-forward units become experts (duo.train.upcycling), and learns what the
demo target would write, on the text that the pair was made from. Then its MTP layer learns what the mixture writes.
docs.json.xz: as for tools/demo_head.py; the same documents are left out. A run that was stopped goes on.

tests/data/README.md says with which options tests/data/mixture-target.gguf was made.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from demo_head import divided, write_data

from duo import Duo
from duo.models.demo import demo_pair
from duo.options.train import TrainOptions
from duo.options.validate import train_draft_options
from duo.train.course import Course, TrainingRequest
from duo.train.dataset import Lessons
from duo.train.draft import read_llama
from duo.train.mixture import Mixture, MixtureShape, experts_of
from duo.train.mixture_file import write_mixture
from duo.train.mixture_task import MixtureTask, MtpTask
from duo.train.mtp import MtpLayer
from duo.train.sizes import TargetShape
from duo.train.target_file import ModelFile
from duo.train.upcycling import begun, upcycled

EXPERTS = {"n_dense": 1, "n_expert": 16, "n_used": 4, "n_ff_expert": 32, "n_shared": 4}
N_STEPS = 3  # of the MTP layer on its own states
N_COMPARED, N_LENGTH = 96, 256  # texts to which the first weights are fitted, and their tokens


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Training:
    """Both stages. Each has a folder of lessons and checkpoints."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._work = args.out.with_name(args.out.name + ".work")
        self._work.mkdir(parents=True, exist_ok=True)
        self._texts = divided(args.docs)[0]
        self._data = write_data(self._texts, self._work / "data.jsonl")
        self._file = ModelFile(demo_pair()[0])

    def run(self) -> None:
        mixture, of_mixture = self._mixture()
        trunk = self._work / "trunk.gguf"
        write_mixture(trunk, mixture, None, self._file, "q8_0", of_mixture)
        mtp, of_mtp = self._mtp(mixture, trunk)
        card = {**of_mixture, "mtp": {name: of_mtp[name] for name in ("training", "acceptance", "recipe")}}
        n = write_mixture(self._args.out, mixture, mtp, self._file, self._args.type, card)
        say(f"{self._args.out}: {n / 1e6:.2f} MB")

    def _mixture(self) -> tuple[Mixture, dict[str, Any]]:
        dense = read_llama(self._file)
        shape = MixtureShape(**asdict(dense.shape), **EXPERTS)
        course = self._course(self._file.path, "mixture", self._args.tokens, self._args.minutes, self._args.lr)
        course.teach()
        fresh = begins(course)  # otherwise the weights are in the checkpoint
        mixture = upcycled(dense, shape, self._compared(), self._args.seed) if fresh else Mixture(shape)
        trained = course.train(MixtureTask(mixture), asdict(shape))
        mixture.load_state_dict(last_weights(course))
        trained["acceptance"] = {"tokens_per_pass": trained["training"]["history"][-1][2]}
        return mixture, course.card(
            "demo_mixture", trained | {"balance": balance(mixture, Lessons(course.folder, "check"))}
        )

    def _mtp(self, mixture: Mixture, trunk: Path) -> tuple[MtpLayer, dict[str, Any]]:
        course = self._course(trunk, "mtp", self._args.mtp_tokens, self._args.mtp_minutes, self._args.mtp_lr)
        course.teach()
        layer = MtpLayer(mixture)
        if begins(course):
            begun(layer, self._compared())
        about = asdict(mixture.sizes) | {"steps": N_STEPS}
        return layer, course.card("demo_mixture", course.train(MtpTask(layer, N_STEPS), about))

    def _course(self, teacher: Path, name: str, n_tokens: int, minutes: float, lr: float) -> Course:
        a = self._args
        options = train_draft_options({
            "work": str(self._work / name), "tokens": n_tokens, "minutes": minutes, "epochs": a.epochs, "lr": lr,
            "length": N_LENGTH, "written": a.written, "batch_tokens": a.batch_tokens, "seed": a.seed,
            "train_device": "cpu",
        })  # fmt: skip
        engine = {"n_threads": a.threads, "n_threads_batch": a.threads}
        request = TrainingRequest(
            teacher, [self._data], self._work / f"{name}.gguf", cast("TrainOptions", options), engine, say, _no_bar
        )
        return Course(request, TargetShape.of(ModelFile(teacher)), ())

    def _compared(self) -> torch.Tensor:
        """Pieces of texts of all kinds."""
        with Duo(self._file.path, n_ctx=N_LENGTH, n_threads=self._args.threads) as d:
            pieces = [text[i : i + 2000] for text in self._texts for i in range(0, len(text), 2000)]
            order = np.random.default_rng(self._args.seed).permutation(len(pieces))[: 2 * N_COMPARED]
            ids = [d.tokenize(pieces[i])[:N_LENGTH] for i in order]
        return torch.tensor([x for x in ids if len(x) == N_LENGTH][:N_COMPARED])


def last_weights(course: Course) -> dict[str, torch.Tensor]:
    """Those with the longest chains on texts that the teacher wrote may be worse on a text of the data: 4.0 nats beside
    3.8, measured."""
    weights: dict[str, torch.Tensor] = torch.load(course.folder.path / "checkpoint.pt", weights_only=True)["model"]
    return weights


def begins(course: Course) -> bool:
    """Whether nothing was trained yet."""
    return not (course.folder.path / "checkpoint.pt").exists()


@torch.no_grad()
def balance(mixture: Mixture, lessons: Lessons) -> list[list[float]]:
    """Of each layer with experts: how often each one is chosen on the texts that check the training, relative to an
    equal share."""
    for e in experts_of(mixture):
        e.train()
        e.load.zero_()
    for items in lessons.epoch(0, 0, 4096):
        mixture.states(lessons.batch(items, torch.device("cpu")).tokens)
    shares = [[round(float(x), 2) for x in e.load / e.load.mean()] for e in experts_of(mixture)]
    mixture.eval()
    return shares


def _no_bar(what: str, done: float, total: float) -> None:
    pass


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("docs", type=Path)
    p.add_argument("out", type=Path)
    p.add_argument("--tokens", type=int, default=1_000_000, help="of the mixture's lessons")
    p.add_argument("--minutes", type=float, default=60, help="of its training")
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--mtp-tokens", type=int, default=600_000, help="of the MTP layer's lessons")
    p.add_argument("--mtp-minutes", type=float, default=40, help="of its training")
    p.add_argument("--mtp-lr", type=float, default=5e-4)
    p.add_argument("--epochs", type=float, default=6, help="at most")
    p.add_argument("--written", type=float, default=0.25, help="share of the texts that the teacher goes on with")
    p.add_argument("--batch-tokens", type=int, default=768)
    p.add_argument("--type", default="q8_0", help="of the file's weights")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    Training(args).run()


if __name__ == "__main__":
    main()
