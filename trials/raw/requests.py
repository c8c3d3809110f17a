"""Requests of every API at every version, generated from the schema of crates/wire: well formed, so that they reach the code
that serves them, with hostile or unlucky values. Seeded, so that failures can be reproduced.
"""

import pathlib
import re
import struct

from wire import batch, unsigned

SCHEMA = pathlib.Path(__file__).resolve().parents[2] / "crates" / "wire" / "schema" / "request"
HEAD = re.compile(r"^request (\w+)Request key=(\d+) versions=(\d+)(?:-(\d+))? flexible=(\S+)")
MEMBER_ID = re.compile(rb"raw-[0-9a-f]{8}-[0-9a-f-]{27}")
LIMITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63, "uint16": 16}
FORMS = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint16": "H", "float64": "d", "bool": "?"}

class Versions:
    """`3+`, `0-12`, `7` or `none`."""

    def __init__(self, text):
        low, _, high = text.rstrip("+").partition("-")
        self.low = int(low) if low.isdigit() else 1 << 15
        self.high = int(high) if high else (1 << 15 if text.endswith("+") else self.low)

    def __contains__(self, version):
        return self.low <= version <= self.high


class Field:
    def __init__(self, words):
        self.name, self.kind = words[0], words[1]
        self.versions = Versions(words[2])
        options = dict(word.split("=", 1) for word in words[3:] if "=" in word)
        self.null = Versions(options.get("null", "none"))
        self.default = options.get("default")
        self.is_key = "key" in words
        self.is_null_by_default = self.default == "null"
        tag, _, tagged = options.get("tag", "").partition("@")
        self.tag, self.tagged = (int(tag), Versions(tagged)) if tag else (None, Versions("none"))
        self.fields = []

    @property
    def element(self):
        return self.kind.removeprefix("[]")


class Api:
    """One API: its key, its versions, the fields of its request and those of its answer."""

    def __init__(self, text):
        request, answer = (part.splitlines() for part in text.split("\nresponse "))
        self.name, key, low, high, flexible = HEAD.match(request[0]).groups()
        self.key, self.low, self.high = int(key), int(low), int(high or low)
        self.flexible = Versions(flexible)
        self.fields, self.answer = tree(request[1:]), tree(answer[1:])


def tree(lines):
    """The fields that these lines describe, each with those below it."""
    fields, structs = [], {}
    nesting = [(0, fields)]
    for line in filter(str.strip, lines):
        depth, words = len(line) - len(line.lstrip()), line.split()
        while nesting[-1][0] >= depth:
            nesting.pop()
        if words[0] == "struct":
            structs[words[1]] = []
            nesting.append((depth, structs[words[1]]))
            continue
        field = Field(words)
        nesting[-1][1].append(field)
        nesting.append((depth, field.fields))
    resolve(fields, structs)
    return fields


def resolve(fields, structs):
    for field in fields:
        field.fields = field.fields or structs.get(field.element, [])
        resolve(field.fields, structs)


def apis():
    """All requests of the schema, by key."""
    found = (Api(path.read_text()) for path in sorted(SCHEMA.glob("*.txt")))
    return {api.key: api for api in found}


class Writer:
    """Encodes requests with values from `random`, many of which the broker knows: these names, and the ids of
    topics and members from its answers."""

    def __init__(self, random, names):
        self.random, self.names = random, names
        self.ids, self.members = [bytes(15) + b"\1"], [b"", b"member"]

    def learn(self, answer):
        """Remembers the ids in an answer."""
        self.members = (self.members + MEMBER_ID.findall(answer))[-8:]
        at = answer.find(self.names[0])
        if at >= 0:
            # In answers, an id follows its name.
            self.ids = self.ids[:1] + [answer[at + len(self.names[0]) :][:16].ljust(16, b"\0")]

    def body(self, api, version):
        return self._struct(api.fields, version, version in api.flexible)

    def frame(self, api, version, correlation):
        """The whole frame, with the version's header."""
        client = b"raw"
        head = struct.pack(">hhih", api.key, version, correlation, len(client)) + client
        head += b"\0" if version in api.flexible else b""
        content = head + self.body(api, version)
        return struct.pack(">i", len(content)) + content

    def _struct(self, fields, version, flexible):
        out, tags = b"", {}
        for field in fields:
            if version not in field.versions:
                continue
            if version in field.tagged:
                if self.random.random() < 0.5:
                    tags[field.tag] = self._value(field, version, flexible)
            else:
                out += self._value(field, version, flexible)
        if flexible:
            out += unsigned(len(tags))
            out += b"".join(unsigned(tag) + unsigned(len(value)) + value for tag, value in sorted(tags.items()))
        return out

    def _value(self, field, version, flexible):
        is_null = version in field.null and self.random.random() < 0.2
        if field.kind.startswith("[]"):
            return self._array(field, version, flexible, is_null)
        return self._one(field, field.kind, version, flexible, is_null)

    def _array(self, field, version, flexible, is_null):
        count = self.random.choice((0, 1, 1, 1, 2, 3, 30))
        if flexible:
            head = unsigned(0 if is_null else count + 1)
        else:
            head = struct.pack(">i", -1 if is_null else count)
        if is_null:
            return head
        return head + b"".join(self._one(field, field.element, version, flexible, False) for _ in range(count))

    def _one(self, field, kind, version, flexible, is_null):
        if kind in FORMS:
            return struct.pack(">" + FORMS[kind], self._number(field, kind))
        if kind == "uuid":
            return self.random.choice((bytes(16), self.random.randbytes(16), *self.ids * 4))
        if kind == "string":
            return self._length(self._text(field), "h", flexible, is_null)
        if kind in ("bytes", "records"):
            data = self._records() if kind == "records" or self.random.random() < 0.3 else self._noise()
            return self._length(data, "i", flexible, is_null)
        if version in field.null and kind == field.kind:
            return b"\xff" if is_null else b"\x01" + self._struct(field.fields, version, flexible)
        return self._struct(field.fields, version, flexible)

    def _length(self, data, form, flexible, is_null):
        if flexible:
            return b"\0" if is_null else unsigned(len(data) + 1) + data
        return struct.pack(">" + form, -1) if is_null else struct.pack(">" + form, len(data)) + data

    def _number(self, field, kind):
        if kind == "bool":
            return self.random.random() < 0.5
        if kind == "float64":
            return self.random.choice((0.0, -1.0, 1e308, float("nan"), float("inf")))
        if field.name.endswith(("WaitMs", "TimeoutMs", "timeoutMs")) and self.random.random() < 0.9:
            return self.random.choice((0, 1, 50, 100))
        if field.name == "Acks":
            # Never 0, which gets no answer.
            return self.random.choice((1, -1, 1, -1, 2))
        bits, signed = LIMITS[kind], kind != "uint16"
        small = (0, 0, 0, 1, 1, 2, 3, 7, 100)
        edges = ((1 << bits) - 1, 1 << (bits - 1)) + ((-1, -1, -2, -(1 << bits)) if signed else ())
        return self.random.choice(small + edges)

    def _text(self, field):
        if "MemberId" in field.name and self.random.random() < 0.7:
            return self.random.choice(self.members)
        if self.random.random() < 0.75:
            return self.random.choice(self.names)
        odd = (b"", b".", b"..", b"a/b", b"\0", "ß€\u202e".encode(), b"x" * 249, b"y" * 250, b"z" * 32_767)
        return self.random.choice(odd)

    def _noise(self):
        return self.random.randbytes(self.random.choice((0, 1, 10, 61, 100, 1000)))

    def _records(self):
        """One or more batches, most of them with an error behind a valid CRC."""
        if self.random.random() < 0.1:
            return self._noise()
        values = [self._noise() for _ in range(self.random.choice((1, 1, 2, 5)))]
        whole = batch(
            values,
            producer_id=self.random.choice((-1, -1, 0, 1, 1 << 62)),
            epoch=self.random.choice((-1, 0, 1, 32_767)),
            sequence=self.random.choice((-1, 0, 1, 2**31 - 1)),
            attributes=self.random.choice((0, 0, 0, 1, 2, 3, 4, 5, 7, 8, 16, 32, 48, 64, -1)),
        )
        if self.random.random() < 0.4:
            at = self.random.randrange(len(whole))
            whole = whole[:at] + self.random.randbytes(1) + whole[at + 1 :]
        if self.random.random() < 0.1:
            whole = whole[: self.random.randrange(len(whole))]
        return whole * self.random.choice((1, 1, 1, 2))
