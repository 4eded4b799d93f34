"""The rules of a grammar that is made from a JSON schema."""

from __future__ import annotations

from duo.grammar.repetition import N_BYTES, times, too_large

HEX = "[0-9a-fA-F]"
# A character outside the basic plane is two escapes, and one character by minLength and maxLength.
UNICODE = (
    f'([0-9a-cA-CefEF] {HEX}{{3}} | [dD] [0-7] {HEX}{{2}} | [dD] [89abAB] {HEX}{{2}} "\\\\u" [dD] [c-fC-F] {HEX}{{2}})'
)
TWO = "[0-9] [0-9]"
COMMA = '"," space'  # between items, and between pairs
# White space is one blank at most, so that no model writes blanks for ever. Each rule has the names of those in it.
PRIMITIVES: dict[str, tuple[str, str]] = {
    "space": ('" "?', ""),
    "boolean": ('("true" | "false") space', "space"),
    "null": ('"null" space', "space"),
    "decimal-part": ("[0-9]{1,16}", ""),
    "integral-part": ("[0-9] | [1-9] [0-9]{0,15}", ""),
    "integer": ('("-"? integral-part) space', "integral-part space"),
    "number": (
        '("-"? integral-part) ("." decimal-part)? ([eE] [-+]? integral-part)? space',
        "integral-part decimal-part space",
    ),
    "char": (f'[^"\\\\\\x7F\\x00-\\x1F] | "\\\\" (["\\\\/bfnrt] | "u" {UNICODE})', ""),
    "string": ('"\\"" char* "\\"" space', "char space"),
    "array": ('"[" space ( value ("," space value)* )? "]" space', "value space"),
    "pair": ('string ":" space value', "string value space"),
    "object": ('"{" space ( pair ("," space pair)* )? "}" space', "pair space"),
    "value": ("object | array | string | number | boolean | null", "object array string number boolean null"),
    "uuid": ('"\\"" ' + ' "-" '.join(f"{HEX}{{{n}}}" for n in (8, 4, 4, 4, 12)) + ' "\\"" space', "space"),
    "day": (f'{TWO} {TWO} "-" ( "0" [1-9] | "1" [0-2] ) "-" ( "0" [1-9] | [1-2] [0-9] | "3" [0-1] )', ""),
    "hour": ('( [01] [0-9] | "2" [0-3] ) ":" [0-5] [0-9]', ""),
    "clock": ('hour ":" [0-5] [0-9] ( "." [0-9]{3} )? ( "Z" | ( "+" | "-" ) hour )', "hour"),
    "date": ('"\\"" day "\\"" space', "day space"),
    "time": ('"\\"" clock "\\"" space', "clock space"),
    "date-time": ('"\\"" day "T" clock "\\"" space', "day clock space"),
}  # fmt: skip
FORMATS = {"date": "date", "time": "time", "date-time": "date-time"} | {f"uuid{n}": "uuid" for n in ("", *"12345")}


class Rules:
    """Rules by name. The same rule is there once."""

    def __init__(self) -> None:
        self._bodies: dict[str, str] = {}
        self._names: dict[str, str] = {}  # by body
        self._n_bytes = 0
        self.not_enforced: set[str] = set()
        """Keywords that the rules do not hold a text to, though they can hold it to others of the same name."""

    def primitive(self, name: str) -> str:
        if name not in self._bodies:
            body, others = PRIMITIVES[name]
            self.define(name, body)
            for other in others.split():
                self.primitive(other)
        return name

    def add(self, kind: str, body: str) -> str:
        if body not in self._names:
            self.define(self.new_name(kind), body)
        return self._names[body]

    def string(self, kind: str, characters: str) -> str:
        """The name of a rule for a JSON string with these characters."""
        return self.add(kind, f'"\\"" {characters} "\\"" {self.primitive("space")}')

    def new_name(self, kind: str) -> str:
        """The name of a rule that is defined later."""
        name = f"{kind}-{len(self._bodies)}"
        self._bodies[name] = ""
        return name

    def define(self, name: str, body: str) -> None:
        self._bodies[name] = body
        self._names.setdefault(body, name)
        self._grow(len(name) + len(body))

    def repeated(self, item: str, least: int, most: int | None) -> str:
        """An item (a name, a literal, a class or what is in parentheses) several times. Raises BadValueError."""
        mark = times(least, most)
        # llama.cpp makes a rule of each, which takes its time.
        self._grow(max(least, most or 1) * (len(item) + len("( )?")))
        return item + mark

    def read(self, n_characters: int) -> None:
        """So many characters of a pattern or of names become a rule, which takes its time. Raises BadValueError."""
        self._grow(8 * n_characters)

    def _grow(self, n_bytes: int) -> None:
        self._n_bytes += n_bytes
        if self._n_bytes > N_BYTES:
            raise too_large()

    def text(self) -> str:
        return "\n".join(f"{name} ::= {body}" for name, body in sorted(self._bodies.items()))
