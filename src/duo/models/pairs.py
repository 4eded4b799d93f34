"""Named pairs of models, from models.yaml and from the user's own file, which takes precedence."""

from __future__ import annotations

import difflib
import os
import shutil
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import yaml
from platformdirs import user_config_path
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator
from typing_extensions import Self

from duo.errors import BadValueError, DuoError, UnknownModelError
from duo.models.hub.repository import Hub, HubModel
from duo.options.speculation import NGRAMS
from duo.support.atomic import write_whole
from duo.support.home import below_home, expanded
from duo.support.wording import one_line

Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
# Must not look like a number or a flag, because names are used on command lines.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9._-]{0,63}$")]
Gigabytes = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ModelRef(BaseModel):
    """One model: in a repository on the hub, or a local file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    repo: Annotated[str, StringConstraints(pattern=r"^[\w.-]+/[\w.-]+$")] | None = None
    quant: Annotated[str, StringConstraints(pattern=r"^[\w.-]+$")] | None = None
    file: Text | None = None  # in the repository; without repo a path, relative to the list's folder
    memory_gb: Gigabytes | None = None  # with N_CTX_DEFAULT tokens of context
    dense_gb: Gigabytes | None = None  # of memory_gb, what is not experts: what a device needs

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.repo is None and self.file is None:
            raise ValueError("give repo (user/repo), or file with a path")
        if self.quant is not None and (self.repo is None or self.file is not None):
            raise ValueError("quant needs repo, and excludes file")
        if self.dense_gb is not None and not self.dense_gb < (self.memory_gb or 0):
            raise ValueError("dense_gb is a part of memory_gb; give both, and the smaller one here")
        return self

    def __str__(self) -> str:
        return str(HubModel(self.repo, self.quant, self.file)) if self.repo is not None else str(self.file)


class Pair(BaseModel):
    """A target and what makes guesses for it: a draft, the target's own MTP layers, or n-grams alone."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    target: ModelRef
    draft: ModelRef | None = None
    head: Literal["mtp", "dspark", "dflash", "eagle3"] | None = None  # the draft's kind; without one: the target's own
    ngrams: Text | None = None  # when they help
    gain: Text | None = None  # in speed, who measured it and where
    sources: tuple[Text, ...] = ()  # where names and sizes were seen
    licence: Text | None = None
    placement: dict[Text, str] = {}  # description of a machine -> options for it
    notes: Text | None = None

    @model_validator(mode="after")
    def _something_guesses(self) -> Self:
        if self.draft is None and self.head not in (None, "mtp"):
            raise ValueError(f"a head of the kind {self.head} is a file; give it as draft")
        if self.draft is None and self.head is None and self.ngrams is None:
            raise ValueError("give draft, head: mtp (the target's own MTP layers) or ngrams")
        return self

    @property
    def own_layers(self) -> bool:
        """The target's file has MTP layers, which are its draft."""
        return self.draft is None and self.head == "mtp"

    @property
    def spec_type(self) -> str | None:
        """The value of --spec-type that the pair needs; None: it has a draft file and needs none."""
        return None if self.draft is not None else "draft-mtp" if self.own_layers else NGRAMS

    @property
    def draft_gb(self) -> float:
        """Memory of a draft file; 0: there is none, or it is unknown."""
        return 0.0 if self.draft is None else self.draft.memory_gb or 0.0


class _List(BaseModel):
    model_config = ConfigDict(extra="forbid")

    pairs: list[Pair]


class Entry(NamedTuple):
    pair: Pair
    folder: Path  # where its relative paths start
    own: bool  # whether it is from the user's file


def shipped_file() -> Path:
    """models.yaml, in the package or at the top of a checkout."""
    package = Path(__file__).parents[1]
    file = next((p for p in (package / "models.yaml", package.parents[1] / "models.yaml") if p.is_file()), None)
    if file is None:
        raise DuoError("duo's list of pairs (models.yaml) is missing from this installation; install duo again")
    return file


def user_file() -> Path:
    return below_home(lambda: user_config_path("duo")) / "models.yaml"


def _line(node: yaml.Node | None, path: tuple[int | str, ...]) -> int:
    """The line, counted from 1, of the deepest part of `path` that exists in the document."""
    line = 0
    for step in (None, *path):
        if isinstance(node, yaml.MappingNode) and step is not None:
            item = next(((k, v) for k, v in node.value if k.value == step), None)
            if item is None:
                break
            line, node = item[0].start_mark.line, item[1]
            continue
        if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
        elif step is not None:
            break
        line = line if node is None else node.start_mark.line
    return line + 1


def _path_text(path: tuple[int | str, ...]) -> str:
    text = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path)
    return text.lstrip(".") or "the list"


def parse(text: str, file: Path) -> list[Pair]:
    """The pairs in a list. Raises BadValueError, which names file, line and field."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.MarkedYAMLError as e:
        line = 1 if e.problem_mark is None else e.problem_mark.line + 1
        raise BadValueError(f"{file}, line {line}: this is not YAML ({e.problem or e.context}); correct it") from None
    except (yaml.YAMLError, RecursionError, ValueError) as e:
        raise BadValueError(f"{file} is not YAML ({one_line(e)}); correct it") from None
    except (LookupError, TypeError, AttributeError):  # PyYAML raises these for values such as !!int ""
        raise BadValueError(f"{file} is not YAML (a value does not have the type of its !! tag); correct it") from None
    try:
        pairs = _List.model_validate({"pairs": []} if data is None else data).pairs
    except ValidationError as e:
        first = e.errors(include_url=False)[0]
        bad_input = first["input"]
        is_plain = isinstance(bad_input, str | int | float | None) and first["type"] != "missing"
        value = f" is {bad_input!r}, but" if is_plain else ":"
        why = first["msg"].removeprefix("Value error, ")
        where = f"{file}, line {_line(node, first['loc'])}"
        raise BadValueError(
            f"{where}: {_path_text(first['loc'])}{value} {why[0].lower() + why[1:]}; correct it"
        ) from None
    seen: set[str] = set()
    for i, p in enumerate(pairs):
        if p.name in seen:
            where = f"{file}, line {_line(node, ('pairs', i, 'name'))}"
            raise BadValueError(f"{where}: pairs[{i}].name is {p.name!r}, which is already in use; choose another name")
        seen.add(p.name)
    return pairs


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as e:
        if os.path.isdir(file):
            raise BadValueError(f"the list of pairs {file} is a folder; move it away") from None
        raise BadValueError(f"the list of pairs {file} cannot be read ({e.strerror}); check its permissions") from None
    except UnicodeDecodeError as e:
        raise BadValueError(f"the list of pairs {file} is not UTF-8 (byte {e.start}); convert it") from None


def read(file: Path) -> list[Pair]:
    return parse(_text(file), file)


@cache
def _shipped() -> tuple[Pair, ...]:
    return tuple(read(shipped_file()))


def entries() -> dict[str, Entry]:
    """All pairs by name. The user's own replace those that come with duo. Raises BadValueError if a list is broken."""
    data = Path(__file__).parents[1] / "data"  # the demo pair is there
    by_name = {p.name: Entry(p, data, False) for p in _shipped()}
    own = user_file()
    if os.path.exists(own):  # unlike pathlib, False where it may not be looked at
        by_name |= {p.name: Entry(p, own.parent, True) for p in read(own)}
    return by_name


def unknown(name: str, names: Iterable[str], flag: str = "") -> UnknownModelError:
    """The exception for an unknown pair, with the nearest names."""
    close = difflib.get_close_matches(name, list(names), 3, 0.4)
    advice = f"did you mean {' or '.join(close)}?" if close else "see duo pairs"
    shown = name if name.isprintable() else repr(name)
    return UnknownModelError(f"there is no pair {shown}{f' ({flag})' if flag else ''}; {advice}")


def find(name: str, flag: str = "") -> Entry:
    """flag: the option that gave the name. Raises UnknownModelError."""
    by_name = entries()
    if name not in by_name:
        raise unknown(name, by_name, flag)
    return by_name[name]


def path_of(model: ModelRef, folder: Path, fetch: Callable[[HubModel], Path], head: str | None = None) -> Path:
    """The model's file. head: its kind, if it is one. fetch: gets a file from the hub; what it raises is passed on."""
    if model.repo is None:
        return local_path(model, folder)
    heads = () if head is None or model.file is not None else (head,)
    return fetch(HubModel(model.repo, model.quant, model.file, heads))


def local_path(model: ModelRef, folder: Path) -> Path:
    """The file of a model that is in no repository. Raises BadValueError."""
    return folder / expanded(str(model.file))


def paths(name: str, fetch: Callable[[HubModel], Path] | None = None) -> tuple[Path, Path | None]:
    """Target and draft of a pair, downloaded if necessary; None: it has no draft file. Raises UnknownModelError, and
    what fetch raises."""
    entry = find(name)
    p, fetch = entry.pair, fetch or Hub().fetch
    target = path_of(p.target, entry.folder, fetch)
    return target, None if p.draft is None else path_of(p.draft, entry.folder, fetch, p.head)


def add(pair: Pair, *, replace: bool = False) -> Path:
    """Writes a pair to the user's file. Returns that file. Raises BadValueError (the name is in use) or DuoError
    (disk)."""
    file = user_file()
    old = _text(file) if os.path.exists(file) else ""
    pairs = parse(old, file)
    entry = pair.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    if any(p.name == pair.name for p in pairs):
        if not replace:
            raise BadValueError(f"{file} already has a pair {pair.name}; use --replace, or another name")
        others = [
            p.model_dump(mode="json", exclude_none=True, exclude_defaults=True) for p in pairs if p.name != pair.name
        ]
        text = _dump({"pairs": [*others, entry]})
    else:
        text = _appended(old, entry, file)
    try:
        real = file.resolve()  # a link stays one
        real.parent.mkdir(parents=True, exist_ok=True)
        # A text that duo has written holds no comments; an earlier backup may.
        if old.strip() and not text.startswith(old.rstrip("\n")) and old != _dump(yaml.safe_load(old)):
            shutil.copy2(real, real.with_name(f"{real.name}.bak"))
        write_whole(real, text.encode())
    except RuntimeError:  # a link to itself, before Python 3.13
        raise BadValueError(f"{file} is a link that leads nowhere; remove it") from None
    except OSError as e:
        raise DuoError(f"{file} cannot be written ({e.strerror}); check its permissions") from None
    return file


def _dump(data: Any) -> str:
    return str(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=1000))


def _appended(text: str, entry: dict[str, Any], file: Path) -> str:
    """The list with one more entry. Comments are kept where that is possible."""
    pairs: list[dict[str, Any]] = (yaml.safe_load(text) or {"pairs": []})["pairs"] if text.strip() else []
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    items = node.value[0][1] if isinstance(node, yaml.MappingNode) and node.value else None
    if isinstance(items, yaml.SequenceNode) and items.value and not items.flow_style:
        indent = " " * items.start_mark.column
        block = "".join(f"{indent}{line}\n" for line in _dump([entry]).splitlines())
        longer = text.rstrip("\n") + "\n" + block
        try:
            if len(parse(longer, file)) == len(pairs) + 1:
                return longer
        except BadValueError:
            pass
    return _dump({"pairs": [*pairs, entry]})
