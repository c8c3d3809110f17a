"""The longest legal requests of any API, generated from the schema: one array has as many elements as a request may
contain, and arrays within it one or none; or unknown tagged fields fill the frame. No API is listed here, so none that is
served can be missing from a test that iterates over them.
"""

import struct

from requests import FORMS, Api, unsigned

# The maximum size of a frame and its arrays, with some room for the rest.
BYTES_MAX = 104_857_600 - 8_192
ELEMENTS_MAX = 999_000
LONGEST_TEXT = 32_767

# Placeholders for values that differ between elements: a text, and numbers of each size.
TEXT = b"\xfe\xfdTEXT\xfd\xfe"
MARKS = {TEXT: "8s", b"\xfe\xfdI4": "i", b"\xfe\xfdINT64\xfd": "q", b"\xfe\xfdUUID-OF-TOPIC\xfd": "16s"}
NUMBERS = {"int32": b"\xfe\xfdI4", "int64": b"\xfe\xfdINT64\xfd", "uuid": b"\xfe\xfdUUID-OF-TOPIC\xfd"}

# Existing names by field, so that requests pass the first checks; "=" marks constant ones.
TEXTS = {
    "GroupId": "=longest",
    "groupId": "=longest",
    "TransactionalId": "=longest",
    "ClusterId": "=longest",
    "EntityType": "=user",
    "Key": "=producer_byte_rate",
    "ProtocolType": "=consumer",
    "StatesFilter": "=Stable",
    "StateFilters": "=Ongoing",
    "Feature": "=eligible.leader.replicas.version",
}
FIXED = {
    "Acks": 1,
    "TimeoutMs": 1_000,
    "timeoutMs": 1_000,
    "SessionTimeoutMs": 10_000,
    "RebalanceTimeoutMs": 10_000,
    "MaxWaitMs": 0,
    "SessionId": 0,
    "SessionEpoch": 0,
    "ReplicaId": -1,
    "GenerationId": -1,
    "GenerationIdOrMemberEpoch": -1,
    "NumPartitions": 1,
    "ReplicationFactor": 1,
    "ResourceType": 2,
    "ResourceTypes": 2,
    "BrokerId": 4_242,
    "VoterId": 4_242,
    "MaxVersionLevel": 1,
    "PartitionMaxBytes": 1_024,
    "ResponsePartitionLimit": 2_000,
    "DurationFilter": -1,
}
FALSE = ("AllowAutoTopicCreation",)


class Shape:
    """The shape of a long request: its long array, the contents of elements, the length of texts."""

    def __init__(self, api, version, array, has_own_names, inner=1, text_len=8):
        self.api, self.version, self.array, self.has_own_names = api, version, array, has_own_names
        self.inner, self.text_len = inner, text_len

    def __str__(self):
        array = self.array.name if self.array else "unknown tags"
        names = "own names" if self.has_own_names else "one name"
        return f"{self.api.name} {self.version}, {array}, {names}, {self.inner} within, texts of {self.text_len}"


def arrays(fields, version):
    """Each array of a request, and each field of bytes."""
    for field in fields:
        if version in field.versions and version not in field.tagged:
            if field.kind.startswith("[]") or field.kind in ("bytes", "records"):
                yield field
            yield from arrays(field.fields, version)


def shapes(api: Api, version):
    """All long requests of an API at a version."""
    for array in arrays(api.fields, version):
        if not array.kind.startswith("[]"):
            yield Shape(api, version, array, False)
            continue
        has_inner = any(field.kind.startswith("[]") for field in array.fields if version in field.versions)
        for has_own_names in (True, False):
            for inner in (0, 1) if has_inner else (1,):
                yield Shape(api, version, array, has_own_names, inner)
        if any(field.kind == "string" for field in array.fields) or array.element == "string":
            yield Shape(api, version, array, True, 1, 80)
            yield Shape(api, version, array, True, 0 if has_inner else 1, 240)
            yield Shape(api, version, array, True, 1, 20_000)
    if version in api.flexible:
        yield Shape(api, version, None, False)


class Longest:
    """Encodes such requests. `topic` and `topic_id` exist."""

    def __init__(self, topic, topic_id, texts=None, fixed=None):
        self.topic, self.topic_id = topic, topic_id
        self.texts, self.fixed = {**TEXTS, **(texts or {})}, {**FIXED, **(fixed or {})}

    def frame(self, shape):
        api, version = shape.api, shape.version
        self.shape, self.flexible = shape, version in api.flexible
        self.within = False
        head = struct.pack(">hhih", api.key, version, 77, 3) + b"raw" + (b"\0" if self.flexible else b"")
        content = head + self._struct(api.fields)
        if shape.array is None:
            count = (BYTES_MAX - len(content)) // 4
            content = content[:-1] + unsigned(count) + b"\xe8\x07\x01\0" * count
        assert len(content) <= BYTES_MAX + 8_192, f"{shape}: {len(content)} bytes"
        return struct.pack(">i", len(content)) + content

    def _struct(self, fields):
        version = self.shape.version
        present = (field for field in fields if version in field.versions and version not in field.tagged)
        return b"".join(self._value(field) for field in present) + (b"\0" if self.flexible else b"")

    def _value(self, field):
        if field.kind.startswith("[]"):
            return self._array(field)
        if field.kind in ("bytes", "records"):
            return self._bytes(b"\7" * (BYTES_MAX - 4_096) if field is self.shape.array else b"some")
        if field.fields and self.shape.version in field.null:
            return b"\xff"
        return self._one(field, field.kind)

    def _array(self, field):
        if field is self.shape.array:
            return self._long(field)
        count = self.shape.inner if self.within else 1
        return self._count(count) + self._one(field, field.element) * count

    def _long(self, field):
        self.within = True
        element = self._one(field, field.element)
        self.within = False
        count = min(BYTES_MAX // len(element), ELEMENTS_MAX // (1 + self._inner(field)))
        return self._count(count) + repeated(element, count)

    def _inner(self, field):
        """The number of elements in nested arrays."""
        nested = [inner for inner in field.fields if inner.kind.startswith("[]") and self.shape.version in inner.versions]
        return self.shape.inner * sum(1 + self._inner(inner) for inner in nested)

    def _count(self, count):
        return unsigned(count + 1) if self.flexible else struct.pack(">i", count)

    def _bytes(self, data):
        return self._count(len(data)) + data

    def _one(self, field, kind):
        own = self.within and self.shape.has_own_names
        if kind == "string":
            return self._text(field, own)
        if kind == "bytes":
            return self._bytes(b"some")
        if field.fields and kind not in FORMS:
            return self._struct(field.fields)
        if kind == "uuid":
            return NUMBERS["uuid"] if own else self.topic_id
        if kind == "bool":
            return b"\0" if field.name in FALSE else b"\1"
        fixed = self.fixed.get(f"{self.shape.api.name}.{field.name}", self.fixed.get(field.name))
        if fixed is None and own and kind in NUMBERS:
            return NUMBERS[kind]
        return struct.pack(">" + FORMS[kind], fixed or 0)

    def _text(self, field, own):
        if self.shape.version in field.null and field.is_null_by_default:
            return b"\0" if self.flexible else b"\xff\xff"
        known = self.texts.get(field.name, self.topic)
        text = TEXT + b"n" * (self.shape.text_len - len(TEXT)) if own and known[0] != "=" else known.lstrip("=").encode()
        return (unsigned(len(text) + 1) if self.flexible else struct.pack(">h", len(text))) + text


def repeated(element, count):
    """Repeats an element, with unique values for its placeholders."""
    form, marks, at = ">", [], 0
    while at < len(element):
        found = min(((element.find(mark, at) % (1 << 62), mark) for mark in MARKS), key=lambda pair: pair[0])
        where, mark = found
        if where >= len(element):
            break
        form += f"{where - at}s" * (where > at) + MARKS[mark]
        marks += [element[at:where]] * (where > at) + [mark]
        at = where + len(mark)
    if not marks:
        return element * count
    if at < len(element):
        form, marks = form + f"{len(element) - at}s", marks + [element[at:]]
    pack = struct.Struct(form).pack
    kinds = [MARKS.get(part) for part in marks]

    def values(index):
        own = {"8s": b"%08x" % index, "i": index, "q": index, "16s": b"longest!%08x" % index}
        return [own[kind] if kind else part for kind, part in zip(kinds, marks)]

    return b"".join(pack(*values(index)) for index in range(count))
