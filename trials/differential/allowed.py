"""The differences that are allowed, each with its reason. Everything else that differs is an error of Thalweg."""

import re

from answers import CLOSED, SILENT, errors


class Allowed:
    """Places of an API's answers that may differ."""

    def __init__(self, api, path, why, when=lambda kafka, ours: True):
        self.api, self.path, self.why, self.when = api, path, why, when

    def covers(self, api, path, kafka, ours):
        return bool(re.fullmatch(self.api, api) and re.fullmatch(self.path, path) and self.when(kafka, ours))


OF_THE_METADATA_LOG = "the metadata logs of the nodes have other records, such as those that say nothing"
FAULT = "an exception that Apache Kafka does not expect is an unknown error, the end of the connection, or no answer at all"
WORDS = "messages are for people: the error is the same, and Thalweg says why in its own words"
OWN = "settings of Thalweg's own"
TELEMETRY = "Apache Kafka offers the APIs of telemetry where a plug-in takes it"
ONCE = "a partition that is named twice is answered once: the answer has a bound"
HOLLOW = "a group that has neither members nor offsets is in memory only"
NEWS = "a session reads partitions with news first: a batch beyond the limit comes from the first that has records"
PLACES = "listeners|log.dirs?|controller.quorum.bootstrap.servers"
# Listed by Apache Kafka alone, though set.
OF_KAFKA = {"no.such", "remote.log.index.file.cache.total.size.bytes"}
NAMES_OF_KAFKA = re.compile(r"[a-z.]+")
DEFAULT = 5
OF_BOTH = ("thalweg.", "http.", "streams.", "ssl.crl.location", "allow.everyone.if.no.acl.found", "follower.replication.throttled", "leader.replication.throttled", "replica.alter.log.dirs.io")


def are_listed_by_one(kafka, ours):
    """Whether what only Apache Kafka lists is a default, or known; and what only Thalweg lists is its own."""
    is_known = all(one["ConfigSource"] == DEFAULT or one["Name"] in OF_KAFKA or is_of_no_version(one["Name"]) for one in kafka)
    return is_known and all(one["Name"].startswith(OF_BOTH) for one in ours)


def is_of_no_version(name):
    """Whether no setting is called so."""
    return not NAMES_OF_KAFKA.fullmatch(name) or "." not in name


def are_hollow(kafka, ours):
    """Whether all that one node answers more is names of topics, with no partitions."""
    return isinstance(kafka, list) and isinstance(ours, list) and all(map(is_hollow, kafka + ours))


def is_hollow(item):
    lists = [value for value in item.values() if isinstance(value, list)] if isinstance(item, dict) else []
    return bool(lists) and not any(lists) and len(item) < 4 and not errors(item)


def is_of_cleaner(kafka, ours):
    return (kafka, ours) == (42, 0) or "Log cleaner threads" in str(kafka)


def is_refused(kafka, ours):
    """Whether Apache Kafka fails, and Thalweg refuses the request by an error."""
    if isinstance(kafka, str):
        return kafka == SILENT or kafka == CLOSED and isinstance(ours, dict) and bool(errors(ours) - {0})
    if isinstance(kafka, dict):
        return kafka.get("ErrorCode") == -1
    return kafka == -1 and ours not in (0, -1, None)


ALLOWED = (
    Allowed("Metadata", "(Brokers|Topics).*|ClusterId|ControllerId", FAULT, lambda kafka, ours: kafka in ([], None, "", -1) or errors(kafka) == {-1}),
    Allowed(".*", "", FAULT, is_refused),
    Allowed(".*", ".*ErrorCode", FAULT, is_refused),
    Allowed(".*", ".*ErrorMessage", WORDS, lambda kafka, ours: bool(ours)),
    Allowed(".*", r"(?!ResultsByTransaction\[\]$).*\[\]", "a topic without partitions has an entry or none", are_hollow),
    Allowed("CreateTopics", r".*Configs\[\]", OWN, lambda kafka, ours: not kafka and all(one["Name"].startswith("thalweg.") for one in ours)),
    Allowed("DescribeConfigs", r"Results\[\].Configs\[\]", OWN, are_listed_by_one),
    Allowed("DescribeConfigs", rf"Results\[\].Configs\[({PLACES})\].(Value|Synonyms\[\].Value)", "each node has its own addresses and directories"),
    Allowed("DescribeConfigs", r"Results\[\].Configs\[socket.(listen.backlog.size|receive.buffer.bytes)\].(Value|Synonyms\[\].Value)", "Thalweg's defaults are for many connections"),
    Allowed("DescribeConfigs", r"Results\[\].Configs\[super.users\].*", "the setting of a plug-in there, and of the broker here"),
    Allowed("DescribeConfigs", r"Results\[\].Configs\[listener.name.*jaas.config\].ConfigType", "a listener's setting has the type of the setting itself"),
    Allowed("DescribeConfigs", r"Results\[\].Configs\[(listeners|listener.security.protocol.map)\].ReadOnly", "listeners are changed by a restart", lambda kafka, ours: ours),
    Allowed("DescribeConfigs", r"Results\[\].Configs\[(broker.id|node.id|process.roles|controller.listener.names)\].Synonyms\[\].*", "where the identity of a node is from"),
    Allowed("IncrementalAlterConfigs", r"Responses\[\].Error(Code|Message)", "the number of the cleaner's threads may change by more than a factor of two", is_of_cleaner),
    Allowed("IncrementalAlterConfigs", r"Responses\[\].ErrorCode", "a broker's setting that no version knows is refused", lambda kafka, ours: (kafka, ours) == (0, 40)),
    Allowed("ListGroups", r"Groups\[\]", HOLLOW, lambda kafka, ours: not ours and all(one.get("GroupState", "") in ("", "Empty") for one in kafka)),
    Allowed("DeleteGroups|OffsetDelete|DeleteShareGroupOffsets", r"(Results\[\].)?ErrorCode", HOLLOW, lambda kafka, ours: (kafka, ours) == (0, 69)),
    Allowed("ShareGroupHeartbeat", r"Assignment.TopicPartitions\[\].Partitions\[\]", "which member has which partitions, and which one more, depends on the order of a map there", lambda kafka, ours: abs(len(kafka) - len(ours)) <= 1),
    Allowed("StreamsGroupHeartbeat", "(Active|Standby|Warmup)Tasks", "a member that reports other tasks than it is assigned gets its tasks again: an answer was lost", lambda kafka, ours: kafka is None),
    Allowed("CreateTopics", r"Topics\[\].ErrorCode", "the number of all partitions of a request overflows", lambda kafka, ours: ours == 44),
    Allowed("DescribeGroups", r"Groups\[\].GroupState", HOLLOW, lambda kafka, ours: (kafka, ours) == ("Empty", "Dead")),
    Allowed("FindCoordinator|UpdateFeatures", ".*ErrorMessage", "the name of no error is no message", lambda kafka, ours: (kafka, ours) == ("NONE", "")),
    Allowed("DescribeLogDirs", r"Results\[\].Topics\[__.*PartitionSize", "coordinators spread their state by the ids of topics"),
    Allowed("ApiVersions", r"ApiKeys\[\]", TELEMETRY, lambda kafka, ours: not kafka and {one["ApiKey"] for one in ours} <= {71, 72}),
    Allowed("CreateDelegationToken", "Principal(Type|Name)", "an owner without a type is refused as such an owner, not as the requester"),
    Allowed("Fetch", r"Responses\[\].Partitions\[\].Records\[\]", NEWS, lambda kafka, ours: kafka == [] and len(ours) == 1),
    Allowed("Fetch", ".*ErrorCode", "of two errors the one or the other comes first", lambda kafka, ours: kafka in (3, 70) and ours == 42),
    Allowed("(Incremental)?AlterConfigs", r"Responses\[\].ErrorCode", "of two errors the one or the other comes first", lambda kafka, ours: (kafka, ours) == (40, 3)),
    Allowed("DescribeConfigs", ".*Documentation", WORDS, lambda kafka, ours: bool(ours)),
    Allowed("AlterUserScramCredentials", ".*ErrorCode", "a salted password of no bytes is refused", lambda kafka, ours: ours == 93),
    Allowed("ConsumerGroupHeartbeat", "ErrorCode", "a regular expression has a bound", lambda kafka, ours: (kafka, ours) == (0, 128)),
    Allowed("PushTelemetry", "ErrorCode", "Apache Kafka does not read the metrics: its plug-in may", lambda kafka, ours: (kafka, ours) == (0, 87)),
    Allowed("DescribeAcls", "ErrorCode", "a code that no version knows is refused, where Apache Kafka finds nothing", lambda kafka, ours: (kafka, ours) == (0, 42)),
    Allowed("OffsetFetch|ListOffsets", r".*Partitions\[\]", ONCE, lambda kafka, ours: not ours),
    Allowed("(Txn)?OffsetCommit", r"Topics\[\].Partitions\[\].ErrorCode", "a commit beyond max.message.bytes is refused before its group is looked at", lambda kafka, ours: kafka in (22, 25, 27, 69, 82, 113) and ours == -1),
    Allowed("AddRaftVoter|RemoveRaftVoter", "ErrorCode", "the embedded controller stays the only voter", lambda kafka, ours: ours == 35),
    Allowed("SaslAuthenticate", "AuthBytes", "each node has its own nonce", lambda kafka, ours: bool(kafka) == bool(ours)),
    Allowed("SaslAuthenticate", "errors", "an unknown user of SCRAM gets a challenge as others do", lambda kafka, ours: kafka == [58]),
    Allowed("AlterClientQuotas", r"Entries\[\]\.ErrorCode", "a part of an entity that is named twice is refused", lambda kafka, ours: ours == 42),
    Allowed("AlterClientQuotas", r"Entries\[\]\.Entity\[\]", "a part of an entity that is named twice is answered as it was asked", lambda kafka, ours: not kafka),
    Allowed("DescribeProducers", r"Topics\[__.*CurrentTxnStartOffset", "coordinators write records of their own between those of clients"),
    Allowed("ApiVersions", "FinalizedFeaturesEpoch", OF_THE_METADATA_LOG),
    Allowed("DescribeQuorum", r"Topics\[\].Partitions\[\].(HighWatermark|CurrentVoters\[\].LogEndOffset|LeaderEpoch)", OF_THE_METADATA_LOG),
)


def is_allowed(api, path, kafka, ours):
    return any(allowed.covers(api, path, kafka, ours) for allowed in ALLOWED)
