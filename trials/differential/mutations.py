"""Variants of well-formed requests with one to three fields that are wrong, or only unusual."""

import copy

from answers import errors
from codec import NO_ID, full, new_id
from differences import IDS, named
from pair import APIS, Asked
from requests import FORMS, LIMITS

# What no variant may do: it would end the node, or the comparison.
# With a negative limit of bytes Apache Kafka fails.
UNTOUCHED = {"UpdateFeatures": {"ValidateOnly"}, "Produce": {"Acks"}, "Fetch": {"MaxBytes"}, "ShareFetch": {"MaxBytes"}}
# What these do is undone some time after the end of their connection, and differs by how a node divides what it gives out.
OF_CONNECTION = ("ShareFetch", "ShareAcknowledge")
# Fields that make an answer late.
WAITING = ("WaitMs", "TimeoutMs", "timeoutMs")


class Mutator:
    """Sends variants of a scenario's requests before them, by chance."""

    def __init__(self, random, share):
        self.random, self.share = random, share
        self.sent = 0

    def before(self, play, name, version, values):
        """At times, one to three variants of a request that is about to be sent, on a connection that may be closed."""
        if self.random.random() >= self.share:
            return
        api = APIS[name]
        for _ in range(self.random.choice((1, 1, 2, 3))):
            at = self.random.choice((version, version, self.random.randint(api.low, api.high)))
            variant = copy.deepcopy(full(api.fields, values, at))
            for _ in range(self.random.choice((1, 1, 1, 2, 3))):
                self.change(play, name, api.fields, variant, at)
            if is_harmful(name, at, variant):
                continue
            self.sent += 1
            channel = play.another()
            answers = Asked(channel, api, at, variant, f"{play.name}, variant {self.sent}").answers()
            channel.end()
            play.channels.remove(channel)
            play.go_on(name, *answers)
            if name in OF_CONNECTION and 0 in errors(answers[0]):
                play.part()

    def change(self, play, name, fields, values, version):
        """One field of a struct, at any depth."""
        field = self.random.choice([field for field in fields if version in field.versions])
        value = values[field.name]
        if field.name in UNTOUCHED.get(name, ()):
            return
        if field.fields and value and self.random.random() < 0.8:
            inner = self.random.choice(value) if isinstance(value, list) else value
            return self.change(play, name, field.fields, inner, version)
        values[field.name] = self.other(play, field, value, version)

    def other(self, play, field, value, version):
        """Another value of a field."""
        if field.kind.startswith("[]"):
            return self.list(play, field, value, version)
        if field.kind in FORMS:
            return self.number(field, value)
        # A null where the schema has none is not a message at all, which other tests send.
        if version in field.null and self.random.random() < 0.3:
            return None
        if field.kind == "uuid":
            return self.random.choice((NO_ID, new_id(self.random)))
        if field.kind == "string":
            return self.text(play, field, value)
        if field.kind in ("bytes", "records"):
            return self.data(field, value)
        return full(field.fields, {}, version)

    def list(self, play, field, value, version):
        value = list(value or ())
        # Not one item twice: maps of Apache Kafka keep one of both, in no order.
        kind = self.random.choice(("empty", "null", "less", "more"))
        if kind == "null" and version in field.null:
            return None
        if kind == "empty":
            return []
        if kind == "less" and value:
            return value[1:]
        item = self.item(play, field, version)
        same = any(named(field, one) == named(field, item) for one in value)
        return value if same else [*value, item]

    def item(self, play, field, version):
        if field.fields:
            return full(field.fields, {}, version)
        if field.element in FORMS:
            return self.number(field, 0)
        return self.text(play, field, "") if field.element == "string" else NO_ID if field.element == "uuid" else b""

    def number(self, field, value):
        kind = field.element if field.kind.startswith("[]") else field.kind
        if kind == "bool":
            return not value
        if kind == "float64":
            # Apache Kafka stores a quota that is no number.
            return self.random.choice((0.0, -1.0, 1e308, float("inf"), 1.5))
        if field.name.endswith(WAITING):
            # An answer that comes too late for its request differs by chance.
            return 100 if "Max" in field.name else 5000
        if field.name in IDS:
            # Small ids are some producer's on one node, and another's on the other.
            return self.random.choice((-1, value, 10**9 + self.random.randrange(10)))
        top = 1 << LIMITS[kind]
        chosen = self.random.choice((0, 1, 2, 3, 100, -1, -2, value + 1, value - 1, -value, top - 1, -top))
        low, high = (0, top - 1) if kind.startswith("uint") else (-top, top - 1)
        return min(max(chosen, low), high)

    def text(self, play, field, value):
        known = ("", "nonsense", play.named("topic"), play.named("group"), play.named("absent"), "__consumer_offsets", "*")
        odd = ("a/b", ".", "..", "ß€\u202e", "x" * 249, "y" * 250, "z" * 32_767, " ", "a\0b", "-1", "1", "0")
        extended = (f"{value or ''}x"[:32_767], (value or "x")[:-1], (value or "").upper())
        chosen = self.random.choice(known + odd + extended)
        if "Group" not in field.name or not chosen or chosen.endswith(play.name):
            return chosen
        # What one run leaves of a group is not for the next.
        return (chosen if len(chosen) < 200 else chosen[: -len(play.name)]) + play.name

    def data(self, field, value):
        if callable(value) or not value:
            return self.random.choice((b"", b"\0", b"nonsense"))
        at = self.random.randrange(len(value))
        changed = value[:at] + bytes([value[at] ^ 1 << self.random.randrange(8)]) + value[at + 1 :]
        # Bytes behind a batch are refused, where Apache Kafka cuts them off.
        longer = value + value if field.kind == "records" else value + b"\0"
        return self.random.choice((b"", value[:at], value + value, changed, changed, longer))


def is_harmful(name, version, values):
    """Whether a request would end the node, slow all others down, or say nothing."""
    if name == "UnregisterBroker":
        return values["BrokerId"] == 1
    if name == "UpdateFeatures":
        return version == 0
    if name == "AlterClientQuotas":
        return any(part["EntityName"] is None for entry in values["Entries"] or () for part in entry["Entity"] or ())
    # With no name Apache Kafka answers for none of the topics, and it adds the limit to the index of the cursor.
    if name == "DescribeTopicPartitions":
        return any(topic["Name"] == "" for topic in values["Topics"]) or (values["Cursor"] or {}).get("PartitionIndex", 0) > 1 << 30
    # Without room for a record Apache Kafka still names transactions that were aborted behind it.
    if name == "Fetch" and values.get("IsolationLevel") == 1:
        rooms = [part["PartitionMaxBytes"] for topic in values["Topics"] for part in topic["Partitions"]]
        if values.get("MaxBytes", 1) <= 0 or any(room <= 0 for room in rooms):
            return True
    # Its records are each node's own, and its number of partitions places every group.
    return name in ("CreatePartitions", "DeleteTopics", "DeleteRecords", "DescribeProducers", "Fetch", "ListOffsets", "Produce") and "__consumer_offsets" in repr(values)
