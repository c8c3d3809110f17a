"""Many histories at once, in lockstep: each wave sends a request for each of them to both nodes, then compares the answers."""

import os
import re
import select
import time

from answers import SILENT, Each, errors
from pair import PATIENCE_S, READING, Asked, Difference

# Each node answers in the end.
ANSWER_S = (20.0, 20.0)
# How long a request that may wait for others is given before the next one is sent.
GRACE_S = 0.03
# Errors of a node that is not that far yet.
UNREADY = {14, 15, 16, 51}
# Whether both whole answers are printed where they differ.
RAW = os.environ.get("RAW") == "1"


class Sent(Asked):
    """A request that both nodes have, and whose answers are read as they arrive."""

    def __init__(self, *what):
        super().__init__(*what)
        self.found = [None, None]

    @property
    def may_wait(self):
        return self.api.name in ("JoinGroup", "SyncGroup")

    @property
    def is_read(self):
        return self.api.name.startswith(READING) or self.api.name.endswith("Describe")

    def is_unready(self, side):
        """Whether a node alone still loads a coordinator, or ends the producer's last transaction."""
        answer, other = self.found[side], self.found[1 - side]
        return not isinstance(answer, str) and bool(errors(answer) & UNREADY - errors(other))

    def compare(self, answers):
        """Apache Kafka lists members and offsets twice after a refused write, until the next one is taken: the state before that write
        is both in the hash table and in the snapshot that it was reverted to, and reads go through both."""
        if self.is_read:
            answers = [once(answers[0]), answers[1]]
        return super().compare(answers)

    def poll(self, timeout=0.0):
        """Whether both answers are there."""
        for side in (0, 1):
            if self.found[side] is None:
                socket = self.channel.sockets[side]
                if socket is None or is_readable(socket, timeout):
                    self.found[side] = self.receive(side)
        return None not in self.found

    def is_half(self):
        return (self.found[0] is None) != (self.found[1] is None)

    def differences(self, deadline):
        """Compares the answers. A read is repeated while it differs, until the deadline that all have in common, but twice; so is what
        one node refuses until it is ready.
        """
        deadline = max(deadline, time.monotonic() + 0.25)
        while found := self.compare(self.found):
            again = (0, 1) if self.is_read else [side for side in (0, 1) if self.is_unready(side)]
            if not again or time.monotonic() > deadline or SILENT in self.found:
                break
            time.sleep(0.1)
            for side in again:
                self.send(side)
                self.found[side] = self.receive(side)
        return [Difference(self.api.name, self.version, *one, self.values, f"{self.label}, errors {[error_of(one) for one in self.found]}") for one in found]


def once(answer):
    """An answer without the items that a list has twice."""
    if isinstance(answer, list):
        items = [once(item) for item in answer]
        return [one for place, one in enumerate(items) if one not in items[:place]]
    return {name: once(value) for name, value in answer.items()} if isinstance(answer, dict) else answer


def is_readable(socket, timeout):
    """By poll, which serves any number of connections."""
    waiting = select.poll()
    waiting.register(socket, select.POLLIN)
    return bool(waiting.poll(timeout * 1000))


# Which of several members has which partitions depends on the order of a map there. From then on each member goes on by what each node
# gave it; when it has all that it is to have, and thus its epoch and the state of the group, depend on that, and all else does not.
OF_ASSIGNMENT = re.compile(r"((Groups\[\]\.)?Members\[\]\.)?((Target|Member)?Assignment|(Active|Standby|Warmup)Tasks)($|[.\[].*)")
OF_UNLIKE = re.compile(OF_ASSIGNMENT.pattern + r"|(Groups\[\]\.)?(Members\[\]\.)?(MemberEpoch|GroupState|ErrorMessage)")


def number_of_tasks(answer):
    tasks = answer.get("ActiveTasks") if isinstance(answer, dict) else None
    return None if tasks is None else sum(len(one["Partitions"]) for one in tasks)


def is_unlike(lane, api, differences, found):
    """Whether the nodes have given partitions to other members, which is all that differs."""
    places = [one.path for one in differences]
    # Of equally loaded processes of a streams group, the first in Apache Kafka's map gets the next task; a refused write changes the
    # order of that map, too. A member gets as many tasks on both nodes.
    numbers = set(map(number_of_tasks, found))
    may_be = lane.group.kind != "streams" or lane.is_refused or (None not in numbers and len(numbers) == 1)
    if not lane.is_unlike and may_be and api != "JoinGroup" and all(map(OF_ASSIGNMENT.fullmatch, places)):
        lane.is_unlike = True
    return lane.is_unlike and all(map(OF_UNLIKE.fullmatch, places))


# Where the nodes go different ways for a reason: what is compared no further, by the request, the answers and the places that differ.
PARTINGS = (
    (
        "the joins that wait are ended with the records of an upgrade, where Apache Kafka ends them before it writes",
        lambda api, kafka, ours, places: api in ("JoinGroup", "SyncGroup") and error_of(kafka) == 27 and ours == SILENT,
    ),
    (
        "the join of a member that leaves is ended with the group's record, where Apache Kafka ends it before it writes",
        lambda api, kafka, ours, places: api in ("JoinGroup", "SyncGroup") and (error_of(kafka), error_of(ours)) == (25, -1),
    ),
    (
        "a new group's first member gets its id with the group's record, where Apache Kafka gives it before it writes",
        lambda api, kafka, ours, places: api == "JoinGroup" and error_of(kafka) == 79 and error_of(ours) == -1,
    ),
    (
        "which of the members that join is the leader depends on the order of a map there",
        lambda api, kafka, ours, places: api == "JoinGroup" and "Leader" in places and error_of(kafka) == error_of(ours) == 0,
    ),
)


def error_of(answer):
    return answer.get("ErrorCode") if isinstance(answer, dict) else None


def is_same_refusal(request):
    """Whether a join is refused by the same error: no client takes its member id from it, unless it is told to."""
    codes = {error_of(one) for one in request.found}
    return request.api.name == "JoinGroup" and len(codes) == 1 and not codes & {0, 79, None}


def are_classic(request):
    """Whether both nodes describe a classic group."""
    groups = [one["Groups"][0] for one in request.found] if request.api.name == "DescribeGroups" else []
    return bool(groups) and all(group["ErrorCode"] == 0 and group["GroupState"] not in ("", "Dead") for group in groups)


BEATS = ("ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "StreamsGroupHeartbeat")
OF_EPOCHS = re.compile(r"GenerationId|Groups\[\]\.(GroupEpoch|AssignmentEpoch)")


def are_of_epochs(places):
    """Whether nothing differs but how far a group is."""
    return all(OF_UNLIKE.fullmatch(place) or OF_EPOCHS.fullmatch(place) for place in places)


def is_due_to_assignments(lane, request, codes, places):
    """Whether nodes that have given partitions to other members differ by it."""
    if lane.is_sized and ({0, -1} == set(codes) or are_of_epochs(places)):
        # The records of other assignments are larger or smaller, and so may be taken by one node alone. Apache Kafka's assignor of share
        # groups also keeps, in the records, topics to which nobody subscribes any more.
        return True
    epochs = request.values.get("MemberEpoch")
    if request.api.name in BEATS and set(codes) == {0, 25} and isinstance(epochs, Each):
        # A member that did not give up in time what the others are to have is removed where it had to.
        return epochs.values[codes.index(25)] < epochs.values[codes.index(0)]
    return False


# The epoch of a new group's first member, and the error where no such group is.
FIRST_EPOCH, NO_GROUP = 2, 69


def is_of_forgotten_group(request, codes):
    """Whether Apache Kafka has no group where Thalweg has one without members, or has begun another one since."""
    kafka, ours = request.found
    if request.api.name in BEATS and codes[0] == 0 and kafka["MemberEpoch"] == FIRST_EPOCH:
        # A new streams group takes any topology.
        return (codes[1] == 0 and ours["MemberEpoch"] > FIRST_EPOCH) or (request.api.name == "StreamsGroupHeartbeat" and codes[1] == 42)
    missing = errors(kafka) ^ errors(ours)
    # The group that a commit makes there is a classic one.
    return NO_GROUP in (missing if request.api.name == "DescribeGroups" else missing & errors(kafka))


OF_TRANSACTIONS = ("InitProducerId", "TxnOffsetCommit", "EndTxn", "OffsetFetch", "OffsetDelete", "DeleteGroups")


def is_parting(lane, request, differences):
    if lane.is_refused and len(lane.group.protocols) > 1 and not are_classic(request):
        # A conversion between the classic and the consumer protocol whose records were too large is not tried again for a minute.
        return True
    if lane.is_refused and lane.group.has_transaction and request.api.name in OF_TRANSACTIONS:
        # A transaction whose marker was too large never ends there: Apache Kafka's coordinator fails on this error, and forgets it.
        return True
    codes = tuple(error_of(one) for one in request.found)
    if lane.is_refused and request.api.name in ("ConsumerGroupHeartbeat", "StreamsGroupHeartbeat") and codes == (25, 0):
        # A refused heartbeat that asks a member to revoke leaves Apache Kafka the deadline for that, by which the member is removed.
        return True
    if lane.group.has_refused_join and is_of_forgotten_group(request, codes):
        # The refusal of a join by a member id that is no member's makes Apache Kafka forget a consumer or streams group without members,
        # in memory alone.
        return True
    places = [one.path for one in differences]
    if lane.is_unlike and is_due_to_assignments(lane, request, codes, places):
        return True
    if codes == (0, 25) and request.api.name in BEATS and request.values["MemberId"] in lane.group.unheard:
        # A member said that it has given up partitions, and the write was refused: it still has the deadline for that, which Apache
        # Kafka takes from it before it writes.
        return True
    if codes == (0, 25) and request.api.name in BEATS and request.values["MemberId"] in lane.group.held:
        # A member whose leave was refused still has the deadline to give up partitions, which Apache Kafka takes from it before it
        # writes: a heartbeat gives the member a session again, and no such deadline.
        return True
    others = (lane.group.unheard | lane.group.held) - {request.values.get("MemberId")}
    if codes == (0, 0) and request.api.name in BEATS and others and are_of_epochs(places):
        # Another member learns first that such a member was removed at its deadline.
        return request.found[0]["MemberEpoch"] < request.found[1]["MemberEpoch"]
    if request.api.name == "StreamsGroupHeartbeat" and lane.is_refused and lane.group.is_shutting_down and set(places) == {"Status[]"}:
        # Apache Kafka forgets that a member asked all to shut down when a refused write is undone.
        return True
    if request.api.name == "ShareGroupHeartbeat" and lane.group.has_lost_topics and places == ["MemberEpoch"]:
        # Apache Kafka does not try again to forget a deleted topic, and each heartbeat raises the epoch to have it assigned.
        return request.found[0]["MemberEpoch"] > request.found[1]["MemberEpoch"]
    if lane.group.has_new_regex and are_of_epochs(places):
        # An expression that replaces the group's only one is resolved at once, by Apache Kafka with the next heartbeat.
        return True
    if lane.is_unlike and set(codes) == {0, 27}:
        # A member of the classic protocol learns at another time that it is to have other partitions.
        return True
    return any(is_so(request.api.name, *request.found, places) for _, is_so in PARTINGS)


class Lane:
    """A history being played: the steps that are to come, and the requests that wait."""

    def __init__(self, group):
        self.group = group
        self.queue, self.waiting = [], []
        self.differences, self.at, self.is_over = [], "", False
        # Whether writes of the group's records have been refused.
        self.is_refused = False
        # Whether they have been refused by their size.
        self.is_sized = False
        # Whether members have other partitions on each node.
        self.is_unlike = False

    def end(self, differences=()):
        self.differences = [(self.at, one) for one in differences]
        self.queue, self.waiting, self.is_over = [], [], True

    def advance(self, step, answer=None):
        """The next request of a step, or none."""
        try:
            return step.send(answer)
        except StopIteration:
            return None

    def next(self):
        """The first request of the next step that has one."""
        while self.queue:
            step = self.queue.pop(0)
            if (request := self.advance(step)) is not None:
                return step, request
        return None


def played(lanes):
    """Plays all steps that the lanes have, one request of each lane at a time."""
    active = [(lane, found) for lane in lanes if (found := lane.next())]
    while True:
        for lane, (step, request) in active:
            if request.may_wait:
                lane.waiting.append((step, request))
        deadline = time.monotonic() + PATIENCE_S
        again = [answered(lane, step, request, deadline) for lane, (step, request) in active if not request.may_wait]
        again += arrived([lane for lane in lanes if lane.waiting])
        going = {id(lane): (lane, found) for lane, found in filter(None, again)}
        for lane in lanes:
            if id(lane) not in going and (found := lane.next()):
                going[id(lane)] = lane, found
        active = list(going.values())
        if not active:
            return


def answered(lane, step, request, deadline, timeout=ANSWER_S[0]):
    """The step's next request, with its lane."""
    request.poll(timeout)
    for side in (0, 1):
        if request.found[side] is None:
            request.found[side] = SILENT
    if SILENT in request.found:
        # What follows on such a connection is not answered either.
        request.channel.end()
    found = [] if is_same_refusal(request) else request.differences(deadline)
    if found and is_unlike(lane, request.api.name, found, request.found):
        found = []
    lane.group.pair.compared += 1
    if found:
        if RAW:
            print(f"raw {lane.group.group} {lane.at} {request.api.name}\n  kafka {request.found[0]}\n  ours  {request.found[1]}", flush=True)
        lane.end(() if is_parting(lane, request, found) else found)
        return None
    answer = request.found[0]
    if isinstance(answer, str):
        return None
    following = lane.advance(step, answer)
    return (lane, (step, following)) if following is not None else None


def arrived(lanes):
    """The next requests of steps whose waiting requests have been answered."""
    if not lanes:
        return []
    time.sleep(GRACE_S)
    deadline = time.monotonic() + PATIENCE_S
    waiting = [request for lane in lanes for _, request in lane.waiting]
    for request in waiting:
        request.poll()
    # What one node has answered the other one may be about to answer: all have the same time for that.
    while any(request.is_half() and not request.poll() for request in waiting) and time.monotonic() < deadline:
        time.sleep(0.05)
    following = []
    for lane in lanes:
        for step, request in list(lane.waiting):
            if request.found == [None, None]:
                continue
            lane.waiting = [one for one in lane.waiting if one[1] is not request]
            lane.group.busy = {number: one for number, one in lane.group.busy.items() if one is not request}
            if (found := answered(lane, step, request, deadline, 0.0)) is not None:
                # One request of a lane at a time.
                following.append(found) if all(one[0] is not lane for one in following) else lane.queue.insert(0, resumed(*found[1]))
            if lane.is_over:
                break
    return following


def resumed(step, request):
    """A step that goes on with a request that was sent already."""
    answer = yield request
    while True:
        try:
            request = step.send(answer)
        except StopIteration:
            return
        answer = yield request
