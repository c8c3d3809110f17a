"""Plays histories of groups, many at once, while writes to the coordinators' topics are refused at times; makes those that differ
smaller.

    KINDS=share SEED=7 HISTORIES=100 ... trials/differential/suite histories    a hundred share groups from a seed
"""

import concurrent.futures
import json
import os
import time

from history_group import SESSION_S, Group
from history_scripts import KNOWN, SHORT, history, schedule
from nodes import Nodes
from pair import APIS, Channel, Pair
from parallel import ANSWER_S, Lane, Sent, played

# Short sessions and rebalances end between the second and the third heartbeat of a pause, if the last heartbeats before it are no
# older than a phase may be. All other times are longer than a history.
BEATS_AT_S, PHASE_S, PAUSE_S = (0.0, SESSION_S * 0.45), SESSION_S * 0.5, SESSION_S * 1.08
# How long a coordinator takes to learn of a change to topics, or to resolve an expression. On a busy machine it takes longer.
BEHIND_S = float(os.environ.get("BEHIND_S", "0.7"))
# On a busy machine, too.
START_S = 240.0
OFFSETS, STATES = "__consumer_offsets", "__share_group_state"
TOPIC = 2
WHOLE = {"max.message.bytes": "1048588"}
SMALL = {"max.message.bytes": "1"}
# Settings of the topics of group coordinators and of share coordinators. Too few replicas cannot refuse anything here: Apache Kafka
# asks for no more than a partition has.
REFUSING = {
    None: ({}, {}),
    "all": (SMALL, {}),
    "large": ({"max.message.bytes": "700"}, {}),
    "most": ({"max.message.bytes": "300"}, {}),
    "states": ({}, SMALL),
    "both": (SMALL, SMALL),
}
# No write waits for another one, no assignment for an interval.
SETTINGS = {
    "group.coordinator.append.linger.ms": "0",
    "share.coordinator.append.linger.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": f"{SESSION_S}000",
    "group.share.min.session.timeout.ms": f"{SESSION_S}000",
    "group.share.session.timeout.ms": f"{SESSION_S}000",
    "group.streams.session.timeout.ms": f"{SESSION_S}000",
    "offsets.topic.num.partitions": "8",
}


class Histories:
    """Two nodes with the topics that all groups use."""

    def __init__(self, name):
        self.nodes = Nodes(name)
        for node in self.nodes.both:
            node.settings |= SETTINGS
        self.pair, self.batches, self.refusal, self.beaten = None, 0, None, 0.0

    def __enter__(self):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            starting = [pool.submit(node.start, START_S) for node in self.nodes.both]
        try:
            for started in starting:
                started.result()
            return self.connect()
        except BaseException:
            self.nodes.__exit__()
            raise

    def connect(self):
        self.pair = Pair(self.nodes)
        self.channel = Channel(self.pair, answer_s=ANSWER_S)
        for one in self.ask("ApiVersions", at=0)["ApiKeys"]:
            api = next(api for api in APIS.values() if api.key == one["ApiKey"])
            api.low, api.high = one["MinVersion"], one["MaxVersion"]
        for kind, key in ((0, "group"), (1, "id"), (2, "group:AAAAAAAAQACAAAAAAAAAAQ:0")):
            self.ready("FindCoordinator", at=6, KeyType=kind, CoordinatorKeys=[key])
        # The first producer's id is zero, which does not tell it from none.
        self.ready_producers()
        self.shared = self.made({"shared1": 2, "shared2": 3})
        return self

    def __exit__(self, *_):
        self.channel.end()
        self.nodes.__exit__()

    def ask(self, api, at=None, **values):
        """Apache Kafka's answer."""
        return self.both(api, at, **values)[0]

    def both(self, api, at=None, **values):
        sent = Sent(self.channel, APIS[api], APIS[api].high if at is None else at, values, "all")
        answers = [sent.receive(side) for side in (0, 1)]
        assert not any(isinstance(one, str) for one in answers), f"{api}: {answers}"
        sent.compare(answers)
        return answers

    def ready(self, api, at, **values):
        deadline = time.monotonic() + 15
        while any(one["Coordinators"][0]["ErrorCode"] for one in self.both(api, at, **values)):
            assert time.monotonic() < deadline, "no coordinators"
            time.sleep(0.1)

    def ready_producers(self):
        """Until each partition of the transaction coordinator takes producers."""
        deadline = time.monotonic() + START_S
        for name in ("txn-a", "txn-b", "txn-c", "txn-d", "txn-e"):
            while any(one["ErrorCode"] for one in self.both("InitProducerId", TransactionalId=name, TransactionTimeoutMs=600_000)):
                assert time.monotonic() < deadline, "no producers"
                time.sleep(0.1)

    def made(self, topics):
        asked = [{"Name": name, "NumPartitions": count, "ReplicationFactor": 1} for name, count in topics.items()]
        self.ask("CreateTopics", timeoutMs=10_000, Topics=asked)
        deadline = time.monotonic() + START_S
        while True:
            answers = self.both("Metadata", Topics=[{"Name": name} for name in topics])
            if not any(topic["ErrorCode"] for answer in answers for topic in answer["Topics"]):
                break
            assert time.monotonic() < deadline, "no topics"
            time.sleep(0.1)
        # Coordinators learn of topics behind the brokers.
        time.sleep(max(1.5, 2 * BEHIND_S))
        return {topic["Name"]: topic["TopicId"] for topic in answers[0]["Topics"]}

    def refuse(self, refusal):
        """Both nodes refuse what they are to refuse, and nothing else."""
        if refusal == self.refusal:
            return
        self.refusal = refusal
        of_groups, of_states = REFUSING[refusal]
        resources = []
        for topic, values in ((OFFSETS, of_groups), (STATES, of_states)):
            configs = [{"Name": name, "ConfigOperation": 0, "Value": value} for name, value in (WHOLE | values).items()]
            resources.append({"ResourceType": TOPIC, "ResourceName": topic, "Configs": configs})
        self.ask("IncrementalAlterConfigs", Resources=resources)
        deadline = time.monotonic() + START_S
        while {self.is_refused(answer) for answer in self.probed()} != {bool(of_groups)}:
            assert time.monotonic() < deadline, "the settings of the coordinators' topics have no effect"
            time.sleep(0.1)
        # Partitions see settings one after the other, and failed timers are tried again after half a second.
        time.sleep(0.5 if refusal else 1.5)

    def probed(self):
        """Both answers to a commit with a large record."""
        part = {"PartitionIndex": 0, "CommittedOffset": 1, "CommittedMetadata": "x" * 1000}
        return self.both("OffsetCommit", at=9, GroupId="probe", Topics=[{"Name": "shared1", "Partitions": [part]}])

    @staticmethod
    def is_refused(answer):
        return None if isinstance(answer, str) else answer["Topics"][0]["Partitions"][0]["ErrorCode"] != 0

    def play(self, phases, scripts):
        """Plays scripts, each a kind with its steps, side by side; returns a lane for each, with what differs."""
        self.batches += 1
        self.beaten = time.monotonic()
        names = [f"b{self.batches}h{number}" for number in range(len(scripts))]
        own = self.made({f"own-{name}": 2 for name in names})
        lanes = [Lane(Group(self.pair, kind, name, self.shared | {"own": own[f"own-{name}"]})) for name, (kind, _) in zip(names, scripts)]
        try:
            for number, (refusal, _, has_pause) in enumerate(phases):
                self.phase(number, refusal, has_pause, [(lane, script[number]) for lane, (_, script) in zip(lanes, scripts)])
            self.refuse(None)
            self.state("the end", lanes)
        finally:
            self.refuse(None)
            for lane in lanes:
                lane.group.end()
        stale = [{"Name": f"{stem}-{name}"} for name in names for stem in ("own", "later")]
        self.both("DeleteTopics", TimeoutMs=10_000, Topics=stale, TopicNames=[one["Name"] for one in stale])
        return lanes

    def phase(self, number, refusal, has_pause, scripts):
        self.refuse(refusal)
        lanes = [lane for lane, _ in scripts]
        for lane in lanes:
            lane.is_refused |= bool(REFUSING[refusal][0])
            lane.is_sized |= refusal in ("large", "most")
            lane.group.is_refused = bool(REFUSING[refusal][0])
        self.beat(f"phase {number} begins", lanes)
        for place in range(max(len(steps) for _, (steps, _) in scripts)):
            verbs = set()
            for lane, (steps, _) in scripts:
                if place < len(steps) and not lane.is_over:
                    verb, values = steps[place]
                    lane.at = f"phase {number} step {place} {verb}"
                    lane.queue.append(getattr(lane.group, verb)(**values))
                    verbs.add((verb, bool(values.get("regex"))))
            played(lanes)
            # Coordinators learn of topics, and resolve expressions, behind the answers; so they make the states of share groups.
            is_behind = any(verb in ("make", "grow", "remove") or has_regex for verb, has_regex in verbs)
            is_behind |= any(lane.group.kind == "share" for lane in lanes) and bool({"join", "beat", "drop", "alter"} & {verb for verb, _ in verbs})
            time.sleep(BEHIND_S if is_behind else 0.0)
            # Steps may wait for an answer that never comes.
            if time.monotonic() - self.beaten > PHASE_S:
                self.beat(f"phase {number} goes on after step {place}", lanes)
        if has_pause:
            self.pause(number, scripts)
        self.state(f"phase {number} ends", lanes)

    def pause(self, number, scripts):
        for lane, (_, dying) in scripts:
            for member in (lane.group.members[one] for one in dying):
                member.is_alive = member.is_alive and member.is_staying
        start = time.monotonic()
        lanes = [lane for lane, _ in scripts]
        for at in (*BEATS_AT_S, PAUSE_S):
            time.sleep(max(0.0, start + at - time.monotonic()))
            self.beat(f"pause {number} at {at} s", lanes)

    def beat(self, at, lanes):
        """Heartbeats of all members that live, which may not be long after the last ones."""
        now = time.monotonic()
        if now - self.beaten > SESSION_S * 0.9:
            print(f"late: {now - self.beaten:.1f} s without heartbeats before {at}", flush=True)
        for lane in lanes:
            if not lane.is_over:
                lane.at = at
                lane.queue += [lane.group.live(number) for number in lane.group.members]
        played(lanes)
        # A heartbeat can begin to make the states of a share group's partitions.
        time.sleep(BEHIND_S if any(lane.group.kind == "share" for lane in lanes) else 0.0)
        self.beaten = now

    def state(self, at, lanes):
        for lane in lanes:
            if not lane.is_over:
                lane.at = f"state when {at}"
                lane.queue.append(lane.group.state())
        played(lanes)


def smaller(histories, kind, phases, script, place):
    """The script without what it does not need to differ at the place, and the last difference of it."""
    kept, last = script, None
    parts = [(number, step) for number, (steps, _) in enumerate(script) for step in range(len(steps))]
    size = max(1, len(parts) // 4)
    while True:
        parts = [(number, step) for number, (steps, _) in enumerate(kept) for step in range(len(steps))]
        cuts = [set(parts[first : first + size]) for first in range(0, len(parts), size)]
        tried = [without(kept, cut) for cut in cuts]
        lanes = histories.play(phases, [(kind, one) for one in tried])
        good = [cut for cut, lane in zip(cuts, lanes) if places(lane) & {place}]
        last = next((lane.differences for lane in lanes if places(lane) & {place}), last)
        if good:
            # Those that can go one by one can often go together.
            together = without(kept, set().union(*good))
            pairs = histories.play(phases, [(kind, together), (kind, without(kept, good[0])), (kind, without(kept, good[-1]))])
            kept = next((one for one, lane in zip((together, without(kept, good[0]), without(kept, good[-1])), pairs) if places(lane) & {place}), kept)
            if size == 1 and len(good) == 1:
                return kept, last
            if all(not places(lane) & {place} for lane in pairs):
                return kept, last
        elif size == 1:
            return kept, last
        size = max(1, size // 2)


def without(script, cut):
    return [([one for place, one in enumerate(steps) if (number, place) not in cut], dying) for number, (steps, dying) in enumerate(script)]


def places(lane):
    return {one.place for _, one in lane.differences}


def told(kind, seed, phases, script, differences):
    """A difference to read, with its steps."""
    lines = [f"{kind} history, seed {seed}"]
    lines += [f"  {at}: {one}" for at, one in differences[:6]]
    for number, ((refusal, _, has_pause), (steps, dying)) in enumerate(zip(phases, script)):
        lines.append(f"  phase {number}: refused {refusal}{', then a pause without ' + str(dying) if has_pause else ''}")
        lines += [f"    {verb} {json.dumps(values)}" for verb, values in steps]
    return "\n".join(lines)


def batches(seed, kinds, count, size, is_short):
    """The phases of each batch with its histories: their kinds, seeds and scripts."""
    known = [(kind, f"known {number}", script) for number, (kind, script) in enumerate(KNOWN) if kind in kinds]
    wanted = [(kind, f"{seed}-{number}") for kind in kinds for number in range(count)]
    if is_short:
        yield SHORT, known + [(*one, history(*one, SHORT)) for one in wanted]
        return
    yield SHORT, known
    for first in range(0, len(wanted), size):
        phases = schedule(f"{seed} {first}")
        yield phases, [(*one, history(*one, phases)) for one in wanted[first : first + size]]


def compared(histories, seed, kinds, count, size=120, is_short=False):
    """Plays so many histories of each kind; returns those that differ each time."""
    lasting, passing, parted, unlike, all_count = [], 0, 0, 0, 0
    for phases, some in batches(seed, kinds, count, size, is_short):
        scripts = [(kind, script) for kind, _, script in some]
        start = time.monotonic()
        lanes = histories.play(phases, scripts)
        all_count += len(some)
        parted += sum(lane.is_over and not lane.differences for lane in lanes)
        unlike += sum(lane.is_unlike for lane in lanes)
        found = [(*one, lane) for one, lane in zip(some, lanes) if lane.differences]
        print(f"histories to {all_count}: {len(found)} differ, {time.monotonic() - start:.0f} s, {[one[0] for one in phases]}", flush=True)
        if found:
            for kind, one, script, lane in found:
                print(f"played once: {told(kind, one, phases, script, lane.differences)}", flush=True)
            # Twice side by side: what differs by chance is not said.
            again = histories.play(phases, [(kind, script) for kind, _, script, _ in found] * 2)
            for place, (kind, one, script, lane) in enumerate(found):
                both = places(again[place]) | places(again[place + len(found)])
                if places(lane) & both:
                    lasting.append((kind, one, phases, script, lane))
                else:
                    passing += 1
                print(f"{'differs' if places(lane) & both else 'differed once'}: {told(kind, one, phases, script, lane.differences)}", flush=True)
    if not is_short:
        done = set()
        for kind, one, phases, script, lane in lasting:
            place = sorted(places(lane))[0]
            if (kind, place) not in done and len(done) < 6:
                done.add((kind, place))
                kept, last = smaller(histories, kind, phases, script, place)
                print(f"smaller: {told(kind, one, phases, kept, last or lane.differences)}", flush=True)
    print(f"{all_count} histories, {histories.pair.compared} answers, {len(lasting)} differ, {passing} differed once, {parted} went different ways for a reason, in {unlike} members had other partitions", flush=True)
    return [f"{kind} {one}: {lane.differences[0][1]}" for kind, one, _, _, lane in lasting]
