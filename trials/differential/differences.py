"""Compares two answers field by field: ids by a one-to-one map between the nodes, times by whether they are set, lists of structs
without their order, records by their batches.
"""

import collections

from allowed import is_allowed
from batches import batches
from codec import NO_ID
from requests import FORMS

# Fields with an id that a node has made up. Those of the kind uuid are among them.
IDS = {"MemberId", "Leader", "TokenId", "Hmac", "ClusterId", "ProducerId", "ProducerIds", "SessionId", "producerId", "SubscriptionId"}
# Values of such fields that mean the same on every node.
NONE = (None, "", b"", -1, 0, NO_ID)
# Moments and durations of a node's own.
TIMES = {
    "IssueTimestamp", "ExpiryTimestamp", "MaxTimestamp", "IssueTimestampMs", "ExpiryTimestampMs", "MaxTimestampMs",
    "LogAppendTimeMs", "LastTimestamp", "TransactionStartTimeMs", "LastFetchTimestamp", "LastCaughtUpTimestamp", "controlTimestamp",
}  # fmt: skip
# Fields that say where a node is, or how much room it has.
PLACES = {"Port", "LogDir", "TotalBytes", "UsableBytes", "ThrottleTimeMs"}


class Twins:
    """The ids of Apache Kafka with those of Thalweg that stand for the same thing."""

    def __init__(self):
        self.ours, self.kafkas = {}, {}

    def same(self, name, kafka, ours):
        """Whether two ids in a field stand for the same; ids that are both new do from now on."""
        if not (is_made(kafka) and is_made(ours)):
            return kafka == ours
        kafka, ours = key(name, kafka), key(name, ours)
        if kafka in self.ours or ours in self.kafkas:
            return self.ours.get(kafka) == ours
        self.ours[kafka], self.kafkas[ours] = ours, kafka
        return True

    def other(self, name, kafka):
        """The id of Thalweg for one of Apache Kafka; itself, where it is no node's."""
        found = self.ours.get(key(name, kafka), kafka)
        return found[1] if isinstance(found, tuple) else found

    def text(self, kafka):
        """A text of Apache Kafka, with the ids of Thalweg in it."""
        for one, other in self.ours.items():
            if isinstance(one, str) and one in kafka:
                kafka = kafka.replace(one, other)
        return kafka


def is_made(id):
    """Whether a node may have made up an id: those that clients make up are shorter."""
    return id not in NONE and not (isinstance(id, str) and len(id) < len(NO_ID))


def key(name, id):
    """An id, told from numbers that are ids of something else."""
    return (name.removesuffix("s").lower(), id) if isinstance(id, int) else id


class Comparison:
    """One pair of answers of an API at a version."""

    def __init__(self, twins, api, version):
        self.twins, self.api, self.version = twins, api, version

    def of(self, kafka, ours):
        """The places that differ, with both values; allowed ones left out."""
        found = self.struct(self.api.answer, kafka, ours, "")
        return [(path, one, other) for path, one, other in found if not is_allowed(self.api.name, path, one, other)]

    def struct(self, fields, kafka, ours, path):
        code, other = kafka.get("ErrorCode"), ours.get("ErrorCode")
        # Where Apache Kafka fails, or the errors differ as they may, so does what stands beside them. What Thalweg takes and
        # Apache Kafka does not is a difference.
        if (code == -1 and other != 0) or (code != other and is_allowed(self.api.name, f"{path}.ErrorCode" if path else "ErrorCode", code, other)):
            return
        for field in fields:
            if field.name in kafka or field.name in ours:
                place = f"{path}.{field.name}" if path else field.name
                yield from self.field(field, kafka.get(field.name), ours.get(field.name), place)

    def field(self, field, kafka, ours, path):
        if field.name in PLACES or (field.name == "Host" and kafka):
            return
        if kafka is None or ours is None:
            if kafka is not ours:
                yield path, kafka, ours
        elif field.name in TIMES:
            if (kafka < 0) != (ours < 0):
                yield path, kafka, ours
        elif field.kind == "records":
            yield from self.records(kafka, ours, path)
        elif field.name == "AcquiredRecords":
            if deliveries(kafka) != deliveries(ours):
                yield path, kafka, ours
        elif not isinstance(kafka, list):
            yield from self.one(field, kafka, ours, path)
        else:
            yield from self.list(field, kafka, ours, path)

    def list(self, field, kafka, ours, path):
        """Pairs the items by what names them, in no order; an item without its like is a difference."""
        if field.element in FORMS and field.name != "Partitions" and len(kafka) == len(ours):
            for one, other in zip(kafka, ours):
                yield from self.one(field, one, other, f"{path}[]")
            return
        pairs = collections.defaultdict(lambda: ([], []))
        for side, (items, known) in enumerate(((kafka, self.twins.ours), (ours, self.twins.kafkas))):
            for item in sorted(items, key=lambda item: self.order(field, item, known)):
                pairs[self.order(field, named(field, item), known)][side].append(item)
        lonely = [[], []]
        for ones, others in pairs.values():
            for one, other in zip(ones, others):
                yield from self.one(field, one, other, f"{path}[{shown(field, one)}]")
            lonely[0] += ones[len(others) :]
            lonely[1] += others[len(ones) :]
        if any(lonely):
            yield f"{path}[]", *lonely

    def one(self, field, kafka, ours, path):
        if isinstance(kafka, dict):
            yield from self.struct(field.fields, kafka, ours, path)
        elif field.element == "uuid" or field.name in IDS:
            if not self.twins.same(field.name, kafka, ours):
                yield path, kafka, ours
        elif kafka != ours and not (isinstance(kafka, str) and self.twins.text(kafka) == ours):
            yield path, kafka, ours

    def order(self, field, item, known):
        """A text by which the items of a list are paired: that of an item without ids that are not known yet."""
        if isinstance(item, dict):
            parts = (self.order(inner, item[inner.name], known) for inner in field.fields if inner.name in item)
            return "".join(parts)
        if isinstance(item, list):
            return "[" + "".join(sorted(self.order(field, inner, known) for inner in item)) + "]"
        if field.name in TIMES or field.name in PLACES:
            return "*,"
        if field.element == "uuid" or field.name in IDS:
            if not is_made(item):
                return f"{item!r},"
            item = key(field.name, item)
            return f"{known.get(item, '*') if known is self.twins.ours else item if item in known else '*'},"
        return f"{item!r},"

    def records(self, kafka, ours, path):
        kafka, ours = batches(kafka), batches(ours)
        if len(kafka) != len(ours):
            yield f"{path}[]", kafka, ours
            return
        for one, other in zip(kafka, ours):
            for name in one:
                is_same = one[name] == other[name] or (name == "producerId" and self.twins.same(name, one[name], other[name]))
                if not is_same and name != "controlTimestamp":
                    yield f"{path}[].{name}", one[name], other[name]


def deliveries(acquired):
    """How often each record of a member was delivered. What stands in one range, and what in several, is each node's own."""
    return {
        offset: one["DeliveryCount"] for one in acquired for offset in range(one["FirstOffset"], one["LastOffset"] + 1)
    }


def shown(field, item):
    """What the path to an item says of it: the names of settings and of internal topics."""
    name = item.get("Name", item.get("Topic")) if isinstance(item, dict) else None
    return name if name and (field.name == "Configs" or name.startswith("__")) else ""


def named(field, item):
    """What names an item of a list: its keys by the schema, or the first of its fields that is not an error."""
    if not isinstance(item, dict):
        return item
    present = [inner for inner in field.fields if inner.name in item]
    keys = [inner.name for inner in present if inner.is_key]
    plain = [inner.name for inner in present if not inner.fields and not inner.name.startswith("Error")]
    return {name: item[name] for name in keys or plain[:1]}
