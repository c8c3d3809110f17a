"""Requests and answers of every API and version as plain values, by the schema of crates/wire: a struct is a dict by Kafka's
names of the fields, with those of all versions; what a version lacks is not written. Values may be wrong, for instance null where
the schema has none: they are written all the same.
"""

import base64
import struct
import uuid

from requests import FORMS, unsigned

NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"


class Malformed(Exception):
    """An answer that is not what its schema says."""


def default(field):
    """The value of a field that a request does not name."""
    text = field.default
    if text == "null":
        return None
    if field.kind.startswith("[]"):
        return []
    if field.kind in ("bytes", "records"):
        return b""
    if field.kind == "string":
        return text or ""
    if field.kind == "uuid":
        return NO_ID
    if field.kind == "bool":
        return text == "true"
    if field.kind == "float64":
        return float(text or 0)
    return int(text or "0", 0) if field.kind in FORMS else {}


def full(fields, values, version):
    """The fields of a struct at a version, with their defaults, to their depth."""
    names = {field.name for field in fields}
    assert names >= values.keys(), f"no such fields: {values.keys() - names}"
    return {
        field.name: _full(field, values.get(field.name, default(field)), version) for field in fields if version in field.versions
    }


def _full(field, value, version):
    if value is None or callable(value) or not field.fields:
        return value
    return [full(field.fields, item, version) for item in value] if isinstance(value, list) else full(field.fields, value, version)


def encode(fields, values, version, flexible):
    """The bytes of a struct, from the values of `full`."""
    out, tags = b"", {}
    for field in fields:
        if version not in field.versions:
            continue
        value = values[field.name]
        if version not in field.tagged:
            out += _write(field, value, version, flexible)
        elif value != _full(field, default(field), version):
            tags[field.tag] = _write(field, value, version, flexible)
    if flexible:
        out += unsigned(len(tags))
        out += b"".join(unsigned(tag) + unsigned(len(data)) + data for tag, data in sorted(tags.items()))
    return out


def _write(field, value, version, flexible):
    if not field.kind.startswith("[]"):
        return _write_one(field, field.kind, value, version, flexible)
    if flexible:
        head = unsigned(0 if value is None else len(value) + 1)
    else:
        head = struct.pack(">i", -1 if value is None else len(value))
    return head + b"".join(_write_one(field, field.element, item, version, flexible) for item in value or ())


def _write_one(field, kind, value, version, flexible):
    if kind in FORMS:
        return struct.pack(">" + FORMS[kind], value)
    if kind == "uuid":
        return id_bytes(value)
    if kind in ("string", "bytes", "records"):
        data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        if flexible:
            return unsigned(0) if data is None else unsigned(len(data) + 1) + data
        return struct.pack(">h" if kind == "string" else ">i", -1 if data is None else len(data)) + (data or b"")
    if field.kind == kind and version in field.null:
        return b"\xff" if value is None else b"\x01" + encode(field.fields, value, version, flexible)
    return encode(field.fields, value, version, flexible)


def id_bytes(text):
    return base64.urlsafe_b64decode(text + "==")


def id_text(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def new_id(random):
    return id_text(uuid.UUID(int=random.getrandbits(128), version=4).bytes)


class Reader:
    """Reads an answer to its last byte."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, length):
        if length < 0 or self.at + length > len(self.data):
            raise Malformed(f"{length} bytes wanted at {self.at} of {len(self.data)}")
        self.at += length
        return self.data[self.at - length : self.at]

    def number(self, form):
        return struct.unpack(">" + form, self.take(struct.calcsize(">" + form)))[0]

    def unsigned(self):
        value, shift = 0, 0
        while True:
            byte = self.number("B")
            value, shift = value | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                return value

    def message(self, fields, version, flexible):
        values = self.struct(fields, version, flexible)
        if self.at != len(self.data):
            raise Malformed(f"{len(self.data) - self.at} bytes are left over")
        return values

    def struct(self, fields, version, flexible):
        present = [field for field in fields if version in field.versions]
        values = {}
        for field in present:
            if version in field.tagged:
                values[field.name] = _full(field, default(field), version)
            else:
                values[field.name] = self.value(field, version, flexible)
        tagged = {field.tag: field for field in present if version in field.tagged}
        for _ in range(self.unsigned() if flexible else 0):
            tag, length = self.unsigned(), self.unsigned()
            end = self.at + length
            if tag not in tagged:
                raise Malformed(f"tag {tag} is unknown")
            values[tagged[tag].name] = self.value(tagged[tag], version, flexible)
            if self.at != end:
                raise Malformed(f"tag {tag} has another length")
        return values

    def value(self, field, version, flexible):
        if not field.kind.startswith("[]"):
            return self.one(field, field.kind, version, flexible)
        count = self.unsigned() - 1 if flexible else self.number("i")
        if count < 0:
            return self.null(field, version)
        return [self.one(field, field.element, version, flexible) for _ in range(count)]

    def null(self, field, version):
        if version not in field.null:
            raise Malformed(f"{field.name} is null")

    def one(self, field, kind, version, flexible):
        if kind in FORMS:
            return self.number(FORMS[kind])
        if kind == "uuid":
            return id_text(self.take(16))
        if kind in ("string", "bytes", "records"):
            length = self.unsigned() - 1 if flexible else self.number("h" if kind == "string" else "i")
            if length < 0:
                return self.null(field, version)
            data = self.take(length)
            return data.decode() if kind == "string" else data
        if field.kind == kind and version in field.null and self.number("b") < 0:
            return None
        return self.struct(field.fields, version, flexible)
