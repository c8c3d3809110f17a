"""Settings, ACLs, users, quotas, tokens, features, and what is asked about the cluster."""

import base64
import hashlib
import hmac
import time

from codec import NO_ID
from data_scenarios import ABSENT_ID, create
from nodes import USERS

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


def configured(k, kind, name, keys=None):
    resource = {"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": keys}
    k.ask("DescribeConfigs", Resources=[resource], IncludeSynonyms=True, IncludeDocumentation=False)


def altered(k, kind, name, *changes, validate=False):
    """By (key, operation, value): 0 sets, 1 deletes, 2 appends, 3 subtracts."""
    configs = [{"Name": key, "ConfigOperation": operation, "Value": value} for key, operation, value in changes]
    resource = {"ResourceType": kind, "ResourceName": name, "Configs": configs}
    k.ask("IncrementalAlterConfigs", Resources=[resource], ValidateOnly=validate)


def configs(k):
    """Settings of topics, brokers, groups, metrics of clients and loggers: described and changed, well and badly."""
    topic, _ = create(k, retention_ms="500000")
    group, metrics = k.named("group"), k.named("metrics")
    configured(k, TOPIC, topic)
    configured(k, TOPIC, topic, ["retention.ms", "no.such"])
    configured(k, TOPIC, topic, [])
    for kind, name in ((TOPIC, k.named("absent")), (TOPIC, "a/b"), (TOPIC, ""), (0, "x"), (1, "x"), (3, "x"), (99, "x"), (BROKER, "7"), (BROKER, "x")):
        configured(k, kind, name, ["retention.ms"])
    changes = [
        (("retention.ms", 0, "1000"),),
        (("retention.ms", 0, "1000"), ("segment.ms", 0, "2000")),
        (("retention.ms", 1, None),),
        (("cleanup.policy", 2, "compact"),),
        (("cleanup.policy", 3, "delete"),),
        (("cleanup.policy", 2, "compact"), ("cleanup.policy", 0, "delete")),
        (("retention.ms", 2, "1"),),
        (("retention.ms", 0, None),),
        (("retention.ms", 0, "soon"),),
        (("retention.ms", 0, ""),),
        (("retention.ms", 0, "-2"),),
        (("no.such", 0, "1"),),
        (("", 0, "1"),),
        (("retention.ms", 9, "1"),),
        (("min.insync.replicas", 0, "0"),),
        (("compression.type", 0, "nonsense"),),
        (("unclean.leader.election.enable", 0, "perhaps"),),
        (("message.timestamp.type", 0, "LogAppendTime"),),
        (("leader.replication.throttled.replicas", 0, "0:1"),),
        (("leader.replication.throttled.replicas", 0, "nonsense"),),
        (("remote.storage.enable", 0, "true"),),
        (("internal.segment.bytes", 0, "1000"),),
        (),
    ]
    for change in changes:
        altered(k, TOPIC, topic, *change, validate=True)
        altered(k, TOPIC, topic, *change)
    for kind, name in ((TOPIC, k.named("absent")), (TOPIC, "a/b"), (TOPIC, ""), (0, "x"), (1, "x"), (3, "x"), (99, "x"), (BROKER, "7"), (BROKER, "x")):
        altered(k, kind, name, ("retention.ms", 0, "1000"))
    configured(k, TOPIC, topic)
    twice = {"ResourceType": TOPIC, "ResourceName": topic, "Configs": [{"Name": "retention.ms", "Value": "7000"}]}
    k.ask("IncrementalAlterConfigs", Resources=[twice, twice])
    for configs_of in ([("retention.ms", "7000")], [("retention.ms", "soon")], [("no.such", "1")], [("retention.ms", None)], []):
        pairs = [{"Name": key, "Value": value} for key, value in configs_of]
        for kind, name in ((TOPIC, topic), (TOPIC, k.named("absent"))):
            k.ask("AlterConfigs", Resources=[{"ResourceType": kind, "ResourceName": name, "Configs": pairs}])
    configured(k, TOPIC, topic)
    groups_settings(k, group)
    for change in (("interval.ms", 0, "1000"), ("metrics", 0, "*"), ("match", 0, "client_id=none"), ("match", 0, "nonsense"), ("interval.ms", 0, "1"), ("x", 0, "1")):
        altered(k, CLIENT_METRICS, metrics, change)
    configured(k, CLIENT_METRICS, metrics)
    altered(k, CLIENT_METRICS, "", ("interval.ms", 0, "1000"))
    for kinds in ([], [CLIENT_METRICS], [TOPIC, GROUP], [BROKER, LOGGER], [99]):
        k.ask("ListConfigResources", ResourceTypes=kinds)
    altered(k, CLIENT_METRICS, metrics, ("interval.ms", 1, None), ("metrics", 1, None), ("match", 1, None))
    brokers_settings(k)


def groups_settings(k, group):
    changes = [
        ("consumer.session.timeout.ms", 0, "50000"),
        ("consumer.session.timeout.ms", 0, "1"),
        ("consumer.heartbeat.interval.ms", 0, "6000"),
        ("share.auto.offset.reset", 0, "earliest"),
        ("share.auto.offset.reset", 0, "nonsense"),
        ("share.record.lock.duration.ms", 0, "20000"),
        ("share.isolation.level", 0, "read_committed"),
        ("no.such", 0, "1"),
        ("consumer.session.timeout.ms", 1, None),
    ]
    configured(k, GROUP, group)
    for change in changes:
        altered(k, GROUP, group, change)
    configured(k, GROUP, group)
    altered(k, GROUP, "", ("consumer.session.timeout.ms", 0, "50000"))
    configured(k, GROUP, "")


def brokers_settings(k):
    changes = [
        ("log.retention.ms", 0, "90000000"),
        ("log.retention.ms", 0, "soon"),
        ("log.retention.ms", 1, None),
        ("log.cleaner.threads", 0, "2"),
        ("log.cleaner.threads", 0, "100"),
        ("log.cleaner.threads", 1, None),
        ("num.io.threads", 0, "0"),
        ("log.dirs", 0, "/tmp/x"),
        ("broker.id", 0, "5"),
        ("node.id", 0, "5"),
        ("no.such", 0, "1"),
        ("max.connections", 0, "nonsense"),
        ("max.connections.per.ip.overrides", 0, "nonsense"),
        ("follower.replication.throttled.rate", 0, "1000"),
        ("follower.replication.throttled.rate", 1, None),
        ("sasl.kerberos.min.time.before.relogin", 0, "70000"),
        ("sasl.kerberos.min.time.before.relogin", 1, None),
        ("message.max.bytes", 0, "-1"),
        ("listeners", 0, "PLAINTEXT://127.0.0.1:1"),
        ("min.insync.replicas", 0, "2"),
        ("min.insync.replicas", 1, None),
        ("remote.log.index.file.cache.total.size.bytes", 0, "2048"),
        ("remote.log.index.file.cache.total.size.bytes", 1, None),
    ]
    for name in ("1", ""):
        for change in changes:
            altered(k, BROKER, name, change, validate=True)
            altered(k, BROKER, name, change)
        configured(k, BROKER, name)
    configured(k, BROKER, "1", ["log.retention.ms", "no.such", "node.id", "listeners"])
    configured(k, LOGGER, "1", ["no.such"])
    for change in (("no.such", 0, "INFO"), ("kafka", 0, "NONSENSE"), ("kafka", 2, "INFO"), ("kafka", 0, None)):
        altered(k, LOGGER, "1", change)
    altered(k, LOGGER, "7", ("kafka", 0, "INFO"))


def acl(k, **more):
    base = {"ResourceType": TOPIC, "ResourceName": k.named("topic"), "ResourcePatternType": 3, "Principal": f"User:{k.name}"}
    return base | {"Host": "*", "Operation": 3, "PermissionType": 3} | more


def acls(k):
    """ACLs: created, good and bad, described by filters, deleted by filters."""
    good = [acl(k), acl(k, ResourcePatternType=4, ResourceName=k.named("prefix")), acl(k, Host="1.2.3.4", PermissionType=2), acl(k, ResourceType=3, Operation=2)]
    bad = [
        acl(k, ResourceType=0), acl(k, ResourceType=1), acl(k, ResourceType=99), acl(k, ResourceName=""), acl(k, ResourcePatternType=0),
        acl(k, ResourcePatternType=1), acl(k, ResourcePatternType=2), acl(k, Principal="nonsense"), acl(k, Principal=""), acl(k, Principal="User:"),
        acl(k, Host=""), acl(k, Operation=0), acl(k, Operation=1), acl(k, Operation=99), acl(k, PermissionType=0), acl(k, PermissionType=1),
        acl(k, ResourceType=4, ResourceName="not-the-cluster"), acl(k, ResourceType=3, Operation=5), acl(k, Host="a host"),
    ]  # fmt: skip
    k.ask("CreateAcls", Creations=good)
    for one in bad:
        k.ask("CreateAcls", Creations=[one])
    k.ask("CreateAcls", Creations=[good[0], good[0]])
    k.ask("CreateAcls", Creations=[])
    every = {"ResourceTypeFilter": 1, "ResourceNameFilter": None, "PatternTypeFilter": 1, "PrincipalFilter": f"User:{k.name}", "HostFilter": None}
    every |= {"Operation": 1, "PermissionType": 1}
    filters = [
        {}, {"ResourceTypeFilter": 2}, {"ResourceNameFilter": k.named("prefix")}, {"PatternTypeFilter": 2, "ResourceNameFilter": k.named("prefix") + "-x"},
        {"PatternTypeFilter": 3}, {"PatternTypeFilter": 4}, {"HostFilter": "1.2.3.4"}, {"Operation": 3}, {"PermissionType": 2},
        {"ResourceTypeFilter": 0}, {"PatternTypeFilter": 0}, {"Operation": 0}, {"PermissionType": 0}, {"ResourceNameFilter": ""},
        {"ResourceTypeFilter": 99}, {"PrincipalFilter": "nonsense"}, {"PrincipalFilter": ""}, {"HostFilter": ""},
    ]  # fmt: skip
    for one in filters:
        k.ask("DescribeAcls", **(every | one))
    for one in filters[7:]:
        k.ask("DeleteAcls", Filters=[every | one])
    k.ask("DeleteAcls", Filters=[every | filters[2], every])
    k.ask("DeleteAcls", Filters=[])
    k.ask("DescribeAcls", **every)


def quotas(k):
    """Quotas of users, clients and addresses: set, described by filters, removed."""
    user, client = ("user", k.named("user")), ("client-id", k.named("client"))

    def alter(entity, *ops, validate=False):
        entry = {
            "Entity": [{"EntityType": kind, "EntityName": name} for kind, name in entity],
            "Ops": [{"Key": key, "Value": value, "Remove": remove} for key, value, remove in ops],
        }
        k.ask("AlterClientQuotas", Entries=[entry], ValidateOnly=validate)

    rate = ("producer_byte_rate", 1e6, False)
    alter([user], rate, validate=True)
    alter([user], rate)
    alter([user, client], ("consumer_byte_rate", 2e6, False), ("request_percentage", 50.0, False))
    alter([client], ("controller_mutation_rate", 10.0, False))
    alter([("ip", "127.0.0.9")], ("connection_creation_rate", 100.0, False))
    wrong = [
        ([], rate), ([("", "x")], rate), ([("nonsense", "x")], rate), ([user, user], rate), ([("ip", "127.0.0.9"), user], rate),
        ([("ip", "not an address")], ("connection_creation_rate", 1.0, False)), ([("ip", "127.0.0.9")], rate), ([user], ("connection_creation_rate", 1.0, False)),
        ([user], ("nonsense", 1.0, False)), ([user], ("producer_byte_rate", -1.0, False)), ([user], ("producer_byte_rate", 0.0, False)),
        ([user], ("producer_byte_rate", 1.5, False)), ([user], ("producer_byte_rate", float("inf"), False)), ([user], ("request_percentage", 1e300, False)),
        ([user], ("consumer_byte_rate", 1.0, True)), ([("user", "")], rate), ([("client-id", "")], rate), ([user], ("", 1.0, False)),
        ([("ip", "127.0.0.9")], ("connection_creation_rate", 1.5, False)),
    ]  # fmt: skip
    for entity, op in wrong:
        alter(entity, op)
    alter([user], rate, rate)
    k.ask("AlterClientQuotas", Entries=[])
    components = [
        [], [("user", 0, user[1])], [("user", 0, user[1]), ("client-id", 0, client[1])], [("client-id", 0, client[1])], [("ip", 0, "127.0.0.9")],
        [("user", 1, None)], [("user", 2, None)], [("user", 3, None)], [("user", 0, None)], [("user", 1, "x")], [("", 0, "x")], [("nonsense", 0, "x")],
        [("user", 0, "x"), ("user", 0, "x")], [("ip", 0, "127.0.0.9"), ("user", 0, "x")],
    ]  # fmt: skip
    for parts in components:
        for strict in (True, False):
            filters = [{"EntityType": kind, "MatchType": match, "Match": value} for kind, match, value in parts]
            k.ask("DescribeClientQuotas", Components=filters, Strict=strict)
    alter([user], ("producer_byte_rate", 0.0, True))
    alter([user, client], ("consumer_byte_rate", 0.0, True), ("request_percentage", 0.0, True))
    alter([client], ("controller_mutation_rate", 0.0, True))
    alter([("ip", "127.0.0.9")], ("connection_creation_rate", 0.0, True))


def users(k):
    """SCRAM users: set, described, deleted, used."""
    name, salt, secret = k.named("user"), b"a salt of bytes", "its secret"

    def upserted(mechanism=1, iterations=4096, user=name, used=salt):
        salted = hashlib.pbkdf2_hmac("sha256" if mechanism == 1 else "sha512", secret.encode(), salt, max(iterations, 1)) if 0 < iterations < 10**6 else b"x"
        return {"Name": user, "Mechanism": mechanism, "Iterations": iterations, "Salt": used, "SaltedPassword": salted}

    def alter(upsertions=(), deletions=()):
        k.ask("AlterUserScramCredentials", Upsertions=list(upsertions), Deletions=[{"Name": user, "Mechanism": mechanism} for user, mechanism in deletions])

    alter([upserted()])
    alter([upserted(2)])
    # A user may change once in a request.
    alter([upserted(), upserted(2)])
    for wrong in (upserted(0), upserted(9), upserted(iterations=1), upserted(iterations=16385), upserted(iterations=-1), upserted(user=""), upserted(used=b"")):
        alter([wrong])
    alter([upserted(), upserted()])
    alter([upserted()], [(name, 1)])
    alter([], [(k.named("absent"), 1), (name, 9), ("", 1)])
    alter()
    for asked in ([name], [name, k.named("absent")], [name, name], [""], [], None):
        k.ask("DescribeUserScramCredentials", Users=None if asked is None else [{"Name": user} for user in asked])
    for mechanism, digest in (("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")):
        scram(k, mechanism, digest, name, secret)
        scram(k, mechanism, digest, name, "another secret")
        scram(k, mechanism, digest, k.named("absent"), secret)
    alter([], [(name, 1), (name, 2)])


def login(k):
    return k.another([node.login_port for node in k.pair.nodes.both])


def scram(k, mechanism, digest, user, secret):
    """A login by SCRAM, whose answers have each node's own nonce: only errors are compared, by hand."""
    channel = login(k)
    k.ask("SaslHandshake", channel, at=1, Mechanism=mechanism)
    bare = f"n={user},r=nonce"
    first = k.pair.both(channel, "SaslAuthenticate", k.version("SaslAuthenticate"), {"AuthBytes": f"n,,{bare}".encode()}, k.name)
    if any(isinstance(answer, str) or answer["ErrorCode"] for answer in first):
        return
    finals = []
    for answer in first:
        given = dict(part.split("=", 1) for part in answer["AuthBytes"].decode().split(","))
        finals.append(final_message(digest, secret, bare, answer["AuthBytes"].decode(), given))
    k.ask("SaslAuthenticate", channel, AuthBytes=lambda known, finals=finals: finals[known.side])


def final_message(digest, secret, bare, server_first, given):
    salted = hashlib.pbkdf2_hmac(digest, secret.encode(), base64.b64decode(given["s"]), int(given["i"]))
    key = hmac.digest(salted, b"Client Key", digest)
    without = f"c=biws,r={given['r']}"
    signed = hmac.digest(hashlib.new(digest, key).digest(), f"{bare},{server_first},{without}".encode(), digest)
    return f"{without},p={base64.b64encode(bytes(a ^ b for a, b in zip(key, signed))).decode()}".encode()


def logins(k):
    """SASL: mechanisms, users and secrets that are right and wrong, requests before and after."""
    plain = b"\0alice\0" + USERS["alice"].encode()
    for handshake in (0, 1):
        for mechanism in ("PLAIN", "NONSENSE", "", "GSSAPI"):
            k.pair.ask(login(k), "SaslHandshake", handshake, {"Mechanism": mechanism}, k.name)
    tries = [plain, b"\0alice\0wrong", b"\0nobody\0x", b"", b"\0", b"\0\0", b"bob\0alice\0alice-secret", b"a\0b\0c\0d", b"\xff\0alice\0x", plain * 100]
    for secret in tries:
        channel = login(k)
        k.pair.ask(channel, "SaslHandshake", 1, {"Mechanism": "PLAIN"}, k.name)
        k.pair.ask(channel, "SaslAuthenticate", k.version("SaslAuthenticate"), {"AuthBytes": secret}, k.name)
        k.pair.ask(channel, "Metadata", 9, {"Topics": []}, k.name)
    for before in ("Metadata", "SaslAuthenticate", "CreateTopics"):
        k.pair.ask(login(k), before, k.version(before), {}, k.name)
    channel = login(k)
    k.pair.ask(channel, "ApiVersions", k.version("ApiVersions"), {"ClientSoftwareName": "a", "ClientSoftwareVersion": "1"}, k.name)
    # On a connection that needs no login.
    k.pair.ask(k.another(), "SaslHandshake", 1, {"Mechanism": "PLAIN"}, k.name)
    k.pair.ask(k.another(), "SaslAuthenticate", 2, {"AuthBytes": plain}, k.name)


def tokens(k):
    """Delegation tokens: made by a user who is logged in, renewed, expired, described."""
    k.ask("CreateDelegationToken", Renewers=[], MaxLifetimeMs=-1, OwnerPrincipalType=None, OwnerPrincipalName=None)
    k.ask("DescribeDelegationToken", Owners=None)
    channel = login(k)
    k.pair.ask(channel, "SaslHandshake", 1, {"Mechanism": "PLAIN"}, k.name)
    k.pair.ask(channel, "SaslAuthenticate", 2, {"AuthBytes": b"\0alice\0alice-secret"}, k.name)
    own = {"OwnerPrincipalType": None, "OwnerPrincipalName": None}
    made = k.ask("CreateDelegationToken", channel, Renewers=[{"PrincipalType": "User", "PrincipalName": "bob"}], MaxLifetimeMs=10**7, **own)
    secret = made["Hmac"]
    for wrong in (
        {"Renewers": [{"PrincipalType": "Group", "PrincipalName": "x"}]},
        {"Renewers": [{"PrincipalType": "", "PrincipalName": ""}]},
        {"MaxLifetimeMs": 0},
        {"MaxLifetimeMs": -5},
        {"OwnerPrincipalType": "User", "OwnerPrincipalName": "bob"},
        {"OwnerPrincipalType": "User", "OwnerPrincipalName": "alice"},
        {"OwnerPrincipalType": "Group", "OwnerPrincipalName": "x"},
        {"OwnerPrincipalType": "", "OwnerPrincipalName": ""},
    ):
        k.ask("CreateDelegationToken", channel, **{"Renewers": [], "MaxLifetimeMs": 10**6, **own, **wrong})
    alice = {"PrincipalType": "User", "PrincipalName": "alice"}
    know_the_same_tokens(k, channel)
    for owners in (None, [], [alice], [{"PrincipalType": "User", "PrincipalName": "bob"}]):
        k.ask("DescribeDelegationToken", channel, Owners=owners)
    for period in (1000, -1, 0, 10**15):
        k.ask("RenewDelegationToken", channel, Hmac=secret, RenewPeriodMs=period)
    for wrong in (b"", b"no token"):
        k.ask("RenewDelegationToken", channel, Hmac=wrong, RenewPeriodMs=1000)
        k.ask("ExpireDelegationToken", channel, Hmac=wrong, ExpiryTimePeriodMs=1000)
    for period in (100_000, -1):
        k.ask("ExpireDelegationToken", channel, Hmac=secret, ExpiryTimePeriodMs=period)
    know_the_same_tokens(k, channel)
    k.ask("DescribeDelegationToken", channel, Owners=[alice])


def know_the_same_tokens(k, channel):
    """Waits until both nodes describe as many tokens: a node learns of them, and of their end, from the metadata log."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        found = k.pair.both(channel, "DescribeDelegationToken", k.version("DescribeDelegationToken"), {"Owners": None}, k.name)
        if len({len(answer["Tokens"]) for answer in found if isinstance(answer, dict)}) <= 1:
            return
        time.sleep(0.05)


def cluster(k):
    """The cluster: versions, nodes, quorum, features, leaders, reassignments, voters, brokers."""
    k.ask("ApiVersions", ClientSoftwareName="compared", ClientSoftwareVersion="1.0")
    for name, version in (("", "1"), ("a b", "1"), ("a", ""), ("-a", "1"), ("a", "1 2")):
        k.ask("ApiVersions", ClientSoftwareName=name, ClientSoftwareVersion=version)
    for kind in (1, 2, 0, 3):
        k.ask("DescribeCluster", IncludeClusterAuthorizedOperations=True, EndpointType=kind, IncludeFencedBrokers=kind == 1)
    for topic, partition in (("__cluster_metadata", 0), ("__cluster_metadata", 1), ("other", 0)):
        k.ask("DescribeQuorum", Topics=[{"TopicName": topic, "Partitions": [{"PartitionIndex": partition}]}])
    k.ask("DescribeQuorum", Topics=[])
    features = [
        ("no.such", 1, 1), ("", 1, 1), ("no.such", 0, 1), ("", 0, 2), ("metadata.version", 1, 1), ("metadata.version", 99, 1), ("metadata.version", 0, 2), ("transaction.version", 9, 1),
        ("transaction.version", 1, 1), ("transaction.version", 2, 0), ("group.version", -1, 2), ("kraft.version", 0, 2), ("share.version", 1, 9),
        ("transaction.version", 1, 2), ("eligible.leader.replicas.version", 0, 2),
    ]  # fmt: skip
    for feature, level, kind in features:
        update = {"Feature": feature, "MaxVersionLevel": level, "UpgradeType": kind, "AllowDowngrade": kind == 2}
        # The first version cannot only try.
        if k.version("UpdateFeatures") > 0 or feature in ("no.such", ""):
            k.ask("UpdateFeatures", FeatureUpdates=[update], ValidateOnly=True)
    k.ask("UpdateFeatures", FeatureUpdates=[])
    topic, _ = create(k)
    leaders(k, topic)
    k.ask("UnregisterBroker", BrokerId=7)
    k.ask("UnregisterBroker", BrokerId=-1)
    for cluster_id in (None, "another"):
        k.ask("AddRaftVoter", ClusterId=cluster_id, TimeoutMs=1000, VoterId=7, VoterDirectoryId=ABSENT_ID, Listeners=[{"Name": "CONTROLLER", "Host": "localhost", "Port": 1}])
        k.ask("RemoveRaftVoter", ClusterId=cluster_id, VoterId=7, VoterDirectoryId=ABSENT_ID)
    k.ask("RemoveRaftVoter", ClusterId=None, VoterId=1, VoterDirectoryId=NO_ID)


def leaders(k, topic):
    targets = [(topic, [0, 1]), (topic, [9]), (k.named("absent"), [0]), (topic, [])]
    for kind in (0, 1, 2):
        for name, partitions in targets:
            k.ask("ElectLeaders", ElectionType=kind, TopicPartitions=[{"Topic": name, "Partitions": partitions}], TimeoutMs=5000)
    for kind in (0, 2):
        k.ask("ElectLeaders", ElectionType=kind, TopicPartitions=[], TimeoutMs=5000)
    for name, partition in ((topic, 0), (topic, 9), (k.named("absent"), 0)):
        for replicas in ([1], [7], [1, 1], [], [1, 7], [-1], None):
            part = {"PartitionIndex": partition, "Replicas": replicas}
            k.ask("AlterPartitionReassignments", TimeoutMs=5000, Topics=[{"Name": name, "Partitions": [part]}])
    for topics in ([], [{"Name": topic, "Partitions": [{"PartitionIndex": 0, "Replicas": [1]}]}]):
        k.ask("AlterPartitionReassignments", TimeoutMs=5000, AllowReplicationFactorChange=False, Topics=topics)
    for topics in (None, [], [{"Name": topic, "PartitionIndexes": [0, 9]}], [{"Name": k.named("absent"), "PartitionIndexes": [0]}]):
        k.ask("ListPartitionReassignments", TimeoutMs=5000, Topics=topics)


def telemetry(k):
    """What clients are to measure, and measurements that are refused."""
    answer = k.ask("GetTelemetrySubscriptions", ClientInstanceId=NO_ID)
    own = answer["ClientInstanceId"]
    k.ask("GetTelemetrySubscriptions", ClientInstanceId=ABSENT_ID)
    # A client may ask again on another connection only when the one that it was new on has ended.
    client = k.new_id()
    first, second = k.another(), k.another()
    for channel in (first, first, second):
        k.ask("GetTelemetrySubscriptions", channel, ClientInstanceId=client)
    first.end()
    time.sleep(0.5)
    k.ask("GetTelemetrySubscriptions", second, ClientInstanceId=client)
    pushes = [{}, {"SubscriptionId": 1}, {"ClientInstanceId": NO_ID}, {"ClientInstanceId": ABSENT_ID}, {"CompressionType": 9}, {"Metrics": b"nonsense"}, {"Terminating": True}, {"Terminating": True}]
    base = {"ClientInstanceId": own, "SubscriptionId": answer["SubscriptionId"], "Metrics": b"", "CompressionType": 0}
    for push in pushes:
        k.ask("PushTelemetry", **(base | push))
