"""The models that a router knows: files of a folder, sections of an INI file, and what the hub's cache holds."""

from __future__ import annotations

import configparser
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from duo.errors import BadValueError
from duo.models.beside import NO_MODEL, PREFIXES, has_model_name
from duo.models.file_name import model_name

FIRST_PART = "-00001-of-"
GLOBAL = "*"
OF_PRESETS = ("load-on-startup", "stop-timeout", "dedup-cache-models", "version")
OF_TARGET = ("-m", "--model")
OF_DRAFT = ("-md", "--model-draft", "--draft-model", "--spec-draft-model")
OF_HUB = ("-hf", "-hfr", "--hf-repo", "-hfd", "-hfrd", "--hf-repo-draft", "--spec-draft-hf")
ON = ("true", "on", "1", "yes", "enabled")
# An option of the server as arguments: (key, value) -> arguments. Raises BadValueError: there is no such option.
Spelled = Callable[[str, str], list[str]]


@dataclass(frozen=True)
class ModelSource:
    """A model that can be loaded. args: those of `duo serve` that name it, and its own options."""

    name: str
    args: tuple[str, ...]
    path: str = ""
    on_startup: bool = False
    stop_s: float = 10.0  # until it is killed
    is_hidden: bool = False  # lists leave it out, because a preset loads the same file

    @property
    def files(self) -> list[str]:
        """Of its target and its draft, as far as its arguments name them."""
        pairs = list(zip(self.args, self.args[1:], strict=False))
        given = [next((b for a, b in reversed(pairs) if a in names), "") for names in (OF_TARGET, OF_DRAFT)]
        return [file for file in given if file.endswith(".gguf")]  # a draft may be a word, such as none


@dataclass(frozen=True)
class Preset:
    """A section of the INI file."""

    args: tuple[str, ...]
    keys: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_model(self) -> bool:
        return any(a in (*OF_TARGET, "-dr", "--docker-repo", "-hf", "-hfr", "--hf-repo", "--pair") for a in self.args)

    @property
    def of_hub(self) -> list[str]:
        """Its model and its draft, as the hub's cache names them, or without :QUANT."""
        return [b for a, b in zip(self.args, self.args[1:], strict=False) if a in OF_HUB]

    def applied(self, source: ModelSource) -> ModelSource:
        """The same model with the section's options behind its own."""
        return replace(
            source,
            args=(*source.args, *self.args),
            on_startup=self.keys.get("load-on-startup", "").lower() in ON or source.on_startup,
            stop_s=_seconds(self.keys["stop-timeout"]) if "stop-timeout" in self.keys else source.stop_s,
        )


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 1e6:
        raise BadValueError(f"stop-timeout is {value!r}; give seconds")
    return seconds


def of_folder(folder: Path) -> list[ModelSource]:
    """Files, and folders with the parts of one model and perhaps its draft and its projector. Raises BadValueError: it
    is no folder, or may not be read."""
    if not os.path.isdir(folder):
        raise BadValueError(f"{folder} (--models-dir) is no folder; check the path")
    try:
        paths = sorted(folder.iterdir())
    except OSError as e:
        raise BadValueError(f"{folder} (--models-dir) cannot be read ({e.strerror}); check its permissions") from None
    sources: list[ModelSource] = []
    for path in paths:
        files = sorted(path.glob("*.gguf")) if os.path.isdir(path) else [path] if path.suffix == ".gguf" else []
        models = [f for f in files if has_model_name(f) and not f.name.startswith(PREFIXES)]
        if not models:
            continue
        model = next((f for f in models if FIRST_PART in f.name), models[-1])
        draft = next((f for f in files if f.name.startswith(PREFIXES)), None)
        args = ["-m", str(model), *(["-md", str(draft)] if draft is not None else [])]
        if any(NO_MODEL in f.name for f in files):  # not the file itself, so that --no-mmproj counts
            args += ["--mmproj", "auto"]
        name = model_name(path)
        if any(s.name == name for s in sources):  # the model's own file is there, too
            name = path.name.removesuffix(".gguf")
        sources.append(ModelSource(name, tuple(args), str(model)))
    return sources


def of_cache(names: Sequence[str]) -> list[ModelSource]:
    """What is in the hub's cache, by user/repo:QUANT."""
    return [ModelSource(name, ("-hf", name, "--offline")) for name in names]


class _Ini(configparser.ConfigParser):
    def optionxform(self, optionstr: str) -> str:
        """As it is: names of variables are upper case."""
        return optionstr


def presets_of(file: Path, spelled: Spelled) -> dict[str, Preset]:
    """The sections of an INI file by name, the global one (`[*]`) among them. Raises BadValueError."""
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as e:
        why = getattr(e, "strerror", None) or "it is not UTF-8"
        raise BadValueError(f"the presets {file} (--models-preset) cannot be read ({why}); check the path") from None
    ini = _Ini(interpolation=None, strict=False, delimiters=("=",), comment_prefixes=(";", "#"), default_section="\0")
    try:
        ini.read_string("[\1]\n" + text)  # llama.cpp's `version = 1` stands before the first section
    except configparser.Error as e:
        line = getattr(e, "lineno", None) or next(iter(getattr(e, "errors", None) or [(2,)]))[0]
        raise BadValueError(f"line {line - 1} of {file} (--models-preset) is no option; write KEY = VALUE") from None
    presets = {}
    for name in ini.sections():
        keys = dict(ini[name])
        if name != "\1":
            presets[name] = Preset(tuple(_arguments(file, name, keys, spelled)), keys)
    return presets


def _arguments(file: Path, section: str, keys: Mapping[str, str], spelled: Spelled) -> list[str]:
    out: list[str] = []
    for key, value in keys.items():
        plain = key.removeprefix("LLAMA_ARG_").lower().replace("_", "-") if key.startswith("LLAMA_ARG_") else key
        if plain in OF_PRESETS:
            continue
        try:
            out += spelled(key, value)
        except BadValueError as e:
            raise BadValueError(f"[{section}] of {file}: {e}") from None
    return out


def _hidden(presets: Mapping[str, Preset], cached: Sequence[str]) -> set[str]:
    """Names of the cache whose files presets with dedup-cache-models load. A preset without a quantisation hides the
    only one of its repository."""
    everywhere = presets.get(GLOBAL, Preset(())).keys
    hidden: set[str] = set()
    for name, preset in presets.items():
        if name != GLOBAL and {**everywhere, **preset.keys}.get("dedup-cache-models", "").lower() in ON:
            for name_of_hub in preset.of_hub:
                matches = [c for c in cached if name_of_hub.lower() in (c.lower(), c.partition(":")[0].lower())]
                hidden.update(matches if len(matches) == 1 else ())
    return hidden


def _over(before: Sequence[str], after: Sequence[str], repeatable: Collection[str]) -> tuple[str, ...]:
    """Both, without what `before` gives of the repeatable options that `after` has."""
    replaced = {*after} & {*repeatable}
    words = iter(before)
    kept: list[str] = []
    for word in words:
        if word in replaced:
            next(words, None)  # its value
        else:
            kept.append(word)
    return (*kept, *after)


def known_models(
    *,
    folder: Path | None,
    presets: Mapping[str, Preset],
    cached: Sequence[str],
    own: Sequence[str],
    repeatable: Collection[str] = (),
) -> dict[str, ModelSource]:
    """All models by name. own: the router's own options for each of them, which count most. repeatable: options whose
    values would add up, and do not from one place to the next.

    Raises BadValueError: a section names no model.
    """
    hidden = _hidden(presets, cached)
    of_hub = [replace(s, is_hidden=s.name in hidden and s.name not in presets) for s in of_cache(cached)]
    sources = {s.name: s for s in of_hub} | {s.name: s for s in (of_folder(folder) if folder else ())}
    everywhere = presets.get(GLOBAL, Preset(()))
    for name, preset in presets.items():
        if name != GLOBAL and name not in sources:
            if not preset.has_model and "/" not in name:
                raise BadValueError(f"[{name}] (--models-preset) names no model; give model or hf-repo")
            sources[name] = ModelSource(name, () if preset.has_model else ("-hf", name))
    models = {}
    for name, source in sources.items():
        own_preset = presets.get(name, Preset(()))
        # An option's last value counts, so what counts most comes last.
        merged = own_preset.applied(everywhere.applied(source))
        args = _over(_over((*source.args, *everywhere.args), own_preset.args, repeatable), own, repeatable)
        models[name] = replace(merged, args=args)
    return models
