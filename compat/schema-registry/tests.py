"""Messages of Confluent's serializers with the schemas of a real registry, read by `thalweg consume` and by the console."""

import datetime
import decimal
import json
import pathlib
import subprocess
import sys

import grpc_tools
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

import registry
from registry import consumed, searched
from suite import BOOTSTRAP, main, unique

HERE = pathlib.Path(__file__).resolve().parent


def client():
    return SchemaRegistryClient({"url": registry.url()})


def send(topic, *records):
    """Sends keys and values, as bytes, to the topic's only partition."""
    failures = []
    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    for key, value in records:
        producer.produce(topic, key=key, value=value, partition=0, on_delivery=lambda error, _: error and failures.append(error))
    assert producer.flush(20) == 0 and not failures, failures


def value_of(topic):
    return SerializationContext(topic, MessageField.VALUE)


def check(topic, kind, *expected):
    """The command line and the console decode the values of a topic."""
    lines, errors = consumed(topic)
    assert [json.loads(line) for line in lines] == list(expected), (lines, errors)
    found = searched(topic)
    assert [json.loads(message["value"]) for message in found] == list(expected), found
    for message in found:
        assert (message["value_schema"]["type"], message["value_schema"]["problem"]) == (kind, None), message


EVERYTHING = {
    "type": "record",
    "name": "Everything",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string", "int"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]}},
        {"name": "states", "type": {"type": "array", "items": "State"}},
        {"name": "tags", "type": {"type": "map", "values": "double"}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "next", "type": ["null", "Everything"]},
    ],
}


def test_avro_of_every_type():
    topic = unique("avro")
    serializer = AvroSerializer(client(), json.dumps(EVERYTHING))
    at = datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc)
    order = {"id": 1 << 40, "note": None, "price": decimal.Decimal("-1.25"), "state": "PAID", "states": ["OPEN", "PAID"]}
    order |= {"tags": {"a": 0.5}, "hash": b"\x01\xff", "at": at, "next": None}
    outer = {**order, "note": "ä\"", "next": {**order, "note": 7}}
    send(topic, *((None, serializer(value, value_of(topic))) for value in (order, outer)))
    read = {**order, "price": -1.25, "hash": "\x01\xff", "at": int(at.timestamp() * 1000)}
    check(topic, "AVRO", read, {**read, "note": "ä\"", "next": {**read, "note": 7}})


def test_avro_with_references():
    names = [unique(stem) for stem in ("currency", "money", "order")]
    currency = {"type": "enum", "name": "Currency", "namespace": "pay", "symbols": ["EUR", "USD"]}
    money = {"type": "record", "name": "Money", "namespace": "pay"}
    money["fields"] = [{"name": "cents", "type": "long"}, {"name": "in", "type": "Currency"}]
    order = {"type": "record", "name": "Order", "namespace": "shop"}
    order["fields"] = [{"name": "total", "type": "pay.Money"}, {"name": "paid", "type": ["null", "pay.Money"]}]
    registered = client()
    registered.register_schema(names[0], Schema(json.dumps(currency), "AVRO"))
    to_currency = [SchemaReference("pay.Currency", names[0], 1)]
    registered.register_schema(names[1], Schema(json.dumps(money), "AVRO", to_currency))
    to_money = [SchemaReference("pay.Money", names[1], 1)]
    serializer = AvroSerializer(registered, Schema(json.dumps(order), "AVRO", to_money))
    value = {"total": {"cents": 250, "in": "USD"}, "paid": {"cents": -1, "in": "EUR"}}
    send(names[2], (None, serializer(value, value_of(names[2]))))
    check(names[2], "AVRO", value)


def test_versions_of_a_subject():
    topic = unique("versions")
    fields = [{"name": "id", "type": "int"}]
    for value in ({"id": 1}, {"id": 2, "more": "x"}):
        record = json.dumps({"type": "record", "name": "Row", "fields": fields})
        send(topic, (None, AvroSerializer(client(), record)(value, value_of(topic))))
        fields.append({"name": "more", "type": "string", "default": ""})
    check(topic, "AVRO", {"id": 1}, {"id": 2, "more": "x"})


def test_keys_and_a_search():
    topic = unique("keys")
    keys = AvroSerializer(client(), '"string"')
    values = AvroSerializer(client(), '{"type":"record","name":"V","fields":[{"name":"n","type":"int"}]}')
    key_of = SerializationContext(topic, MessageField.KEY)
    send(topic, *((keys(f"k{n}", key_of), values({"n": n}, value_of(topic))) for n in range(20)))
    found = searched(topic, expression="payload.n == 17")
    assert [(message["key"], message["value"]) for message in found] == [('"k17"', '{"n":17}')], found
    lines, _ = consumed(topic, "--filter", "payload.n > 17")
    assert lines == ['{"n":18}', '{"n":19}'], lines


def generated():
    """The module of the messages in shop.proto, by protoc."""
    out, google = registry.WORK / "generated", pathlib.Path(grpc_tools.__file__).parent / "_proto"
    if not out.exists():
        out.mkdir()
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{HERE}", f"-I{google}", f"--python_out={out}"]
        subprocess.run([*command, *map(str, HERE.glob("*.proto"))], check=True)
        sys.path.insert(0, str(out))
    import shop_pb2

    return shop_pb2


def proto_order(shop):
    order = shop.Order(id=7, state=shop.PAID, card_number="4711", tags={"k": 3}, raw=b"\x01\xff")
    order.total.cents, order.total.currency = -5, 1
    order.at.FromSeconds(60)
    order.lines.add(item_name="x", tags={"y": True})
    return order


ORDER = {"id": 7, "total": {"cents": -5, "currency": "USD"}, "lines": [{"tags": {"y": True}, "item_name": "x", "parts": []}]}
ORDER |= {"tags": {"k": 3}, "raw": "Af8=", "card_number": "4711", "at": "1970-01-01T00:01:00Z", "state": "PAID"}


def test_protobuf_with_imports():
    """The serializer registers descriptors, of the imported files first."""
    shop, topic = generated(), unique("protobuf")
    serializer = ProtobufSerializer(shop.Order, client(), {"use.deprecated.format": False})
    send(topic, (None, serializer(proto_order(shop), value_of(topic))))
    check(topic, "PROTOBUF", ORDER)


def test_nested_protobuf_behind_a_map():
    """The serializer counts the entries of a map among the nested messages."""
    shop, topic = generated(), unique("nested")
    for message in (shop.Order.Line(item_name="z"), shop.Order.Line.Part(number=3), shop.Last(name="n")):
        serializer = ProtobufSerializer(type(message), client(), {"use.deprecated.format": False})
        context = value_of(topic + message.DESCRIPTOR.name)
        send(topic, (None, serializer(message, context)))
    check(topic, "PROTOBUF", {"tags": {}, "item_name": "z", "parts": []}, {"number": 3}, {"name": "n"})


def test_protobuf_registered_as_text():
    """As Java's serializer registers it; Python's client cannot read such a schema."""
    shop, topic, registered = generated(), unique("text"), client()
    subjects = {}
    for name in ("currency.proto", "money.proto", "shop.proto"):
        text = (HERE / name).read_text()
        subjects[name] = f"{topic}-value" if name == "shop.proto" else f"{topic}-{name}"
        references = [SchemaReference(used, subjects[used], 1) for used in subjects if f'import "{used}"' in text]
        registered.register_schema(subjects[name], Schema(text, "PROTOBUF", references))
    prefix = b"\0" + registered.get_latest_version(f"{topic}-value").schema_id.to_bytes(4, "big")
    # The first message of the file, and the first nested one in it, as Java counts: without the entries of maps.
    order = prefix + b"\0" + proto_order(shop).SerializeToString()
    line = prefix + b"\4\0\0" + shop.Order.Line(item_name="z").SerializeToString()
    send(topic, (None, order), (None, line))
    check(topic, "PROTOBUF", ORDER, {"tags": {}, "item_name": "z", "parts": []})


def test_json_with_a_reference():
    topic, registered = unique("json"), client()
    name = {"$schema": "http://json-schema.org/draft-07/schema#", "$id": "name.json", "type": "string"}
    registered.register_schema(f"{topic}-name", Schema(json.dumps(name), "JSON"))
    person = {"$schema": name["$schema"], "$id": "person.json", "title": "Person", "type": "object"}
    person["properties"] = {"name": {"$ref": "name.json"}, "age": {"type": "integer"}}
    schema = Schema(json.dumps(person), "JSON", [SchemaReference("name.json", f"{topic}-name", 1)])
    serializer = JSONSerializer(schema, registered)
    send(topic, (None, serializer({"name": "Ann", "age": 30}, value_of(topic))))
    check(topic, "JSON", {"name": "Ann", "age": 30})


def test_an_unknown_schema_is_reported():
    topic = unique("unknown")
    send(topic, (None, b"\0\0\x7f\0\1x"), (None, b"plain"))
    lines, errors = consumed(topic)
    assert "schema 8323073" in errors and "not decoded" in errors and lines[-1] == "plain", (lines, errors)
    [unknown, plain] = searched(topic)
    assert "404" in unknown["value_schema"]["problem"], unknown
    assert plain["value"] == "plain" and plain.get("value_schema") is None, plain


if __name__ == "__main__":
    main(globals(), parallel=1)
