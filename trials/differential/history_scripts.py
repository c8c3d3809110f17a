"""Histories from seeds: what each group does, step by step, and what happens to all groups of a batch meanwhile."""

import random

KINDS = ("classic", "consumer", "share", "streams")
# What a batch refuses for a while: all records of groups, large ones, most of them, all of share groups' states, of both.
REFUSALS = ("all", "large", "most", "states", "both")
PHASES = 5
STEMS = (("shared1",), ("shared1",), ("shared1", "shared2"), ("shared2",), ("own",), ("own", "shared1"), ("shared1", "later"))


# The phases of the short form.
SHORT = [[None, 3, False], ["all", 3, True], [None, 3, False]]
# Histories that Thalweg once failed, with the short form's phases: members that live died since their heartbeats could not be written;
# a refused upgrade took the deadlines of the members of the classic protocol; a new topic that a share group's member dropped in a refused
# heartbeat was made ready late. And those of which Apache Kafka forgets the group: `parallel.py` has the reason.
WIDER = ("beat", {"number": 0, "stems": ("own", "shared1")})
GROWN = ("grow", {"stem": "own", "partitions": 3})
KNOWN = (
    *((kind, [([("join", {"number": 0, "stems": ("own",)})], []), ([GROWN, WIDER], []), ([("beat", {"number": 0})], [])]) for kind in ("consumer", "streams")),
    *(
        (kind, [([("join", {"number": one, "stems": ("own",)}) for one in (0, 1)], []), ([WIDER], [1]), ([("beat", {"number": 0})], [])])
        for kind in ("consumer", "share", "streams")
    ),
    *((kind, [([("cjoin", {"number": 0}), ("csync", {"number": 0})], []), ([("join", {"number": 1})], [0]), ([], [])]) for kind in ("consumer", "classic")),
    (
        "share",
        [
            ([("join", {"number": 0, "stems": ("shared1", "later")})], []),
            ([("make", {"stem": "later"}), ("beat", {"number": 0, "stems": ("shared1",)})], []),
            ([("beat", {"number": 0}), ("beat", {"number": 0})], []),
        ],
    ),
    *(
        (kind, [([("join", {"number": 0}), ("leave", {"number": 0}), ("cjoin", {"number": 1, "who": "stranger"}), ("join", {"number": 1})], []), ([], []), ([], [])])
        for kind in ("consumer", "streams")
    ),
)


def schedule(seed):
    """The phases of a batch: what is refused, the number of steps, and whether a pause follows, in which sessions end."""
    chosen = random.Random(f"schedule {seed}")
    phases = []
    for number in range(PHASES):
        is_refused = number % 2 == 1 or chosen.random() < 0.15
        refusal = chosen.choices(REFUSALS, (5, 4, 3, 2, 2))[0] if is_refused else None
        phases.append([refusal, chosen.randint(4, 7), chosen.random() < 0.6])
    if not any(has_pause for _, _, has_pause in phases):
        # Sessions end at least once.
        phases[1][2] = True
    return phases


def history(kind, seed, phases):
    """For each phase its steps, each a verb with its arguments, and the members that die in its pause."""
    chosen = random.Random(f"{kind} {seed}")
    # Most groups are small, so that their members meet.
    count = chosen.choice((1, 2, 2, 3, 3, 4))
    script = []
    for _, length, _ in phases:
        steps = [one for place in range(length) for one in some(chosen, kind, count, place)]
        dying = [number for number in range(count) if chosen.random() < 0.3]
        script.append((steps, dying))
    return script


def some(chosen, kind, count, place):
    """One to three steps."""
    if place == 0 and chosen.random() < 0.25:
        return [of_topics(chosen)]
    pick = chosen.random()
    if pick < 0.14:
        return [of_offsets(chosen, kind, count)]
    if pick < 0.17:
        return [("delete", {})]
    of_kind = classic if kind == "classic" or (kind == "consumer" and chosen.random() < 0.3) else newer
    # A member of another protocol, which a group takes or not.
    if chosen.random() < 0.06:
        of_kind = newer if of_kind is classic else classic
    return of_kind(chosen, kind, count)


def of_topics(chosen):
    stem = chosen.choice(("own", "later"))
    verb = chosen.choice(("make", "make", "grow", "remove"))
    return (verb, {"stem": stem} | ({"partitions": chosen.choice((3, 4))} if verb == "grow" else {}))


def of_offsets(chosen, kind, count):
    number = chosen.choice((None, *range(count)))
    stem = chosen.choice(("shared1", "shared1", "shared2", "own", "later"))
    size = chosen.choice((4, 4, 4, 1000))
    if kind == "share" and chosen.random() < 0.7:
        return chosen.choice((("alter", {"stem": stem, "offset": chosen.randrange(3)}), ("drop", {"stem": stem})))
    shift = chosen.choice((0, 0, 0, 1, -1))
    return chosen.choice((
        ("commit", {"number": number, "stem": stem, "partition": chosen.randrange(2), "offset": chosen.randrange(9), "size": size, "shift": shift}),
        ("commit", {"number": number, "stem": stem, "partition": chosen.randrange(2), "offset": chosen.randrange(9), "size": size}),
        ("fetch", {"number": number, "is_stable": chosen.random() < 0.5, "shift": shift}),
        ("forget", {"stem": stem}),
        ("txn", {"number": number, "is_committed": chosen.random() < 0.7, "stem": stem, "is_ended": chosen.random() < 0.8, "size": size}),
    ))  # fmt: skip


def classic(chosen, kind, count):
    number = chosen.randrange(count)
    is_short, size = chosen.random() < 0.6, chosen.choice((0, 0, 0, 1000))
    stems = chosen.choice(STEMS)
    protocols = chosen.choice((("range",), ("range",), ("range", "roundrobin"), ("other",)))
    pick = chosen.random()
    if pick < 0.3:
        who = chosen.choice(("self", "self", "self", "self", "stranger"))
        steps = [("cjoin", {"number": number, "is_short": is_short, "stems": stems, "size": size, "protocols": protocols, "who": who})]
        return steps + [("csync", {"number": number})] if chosen.random() < 0.6 else steps
    if pick < 0.55:
        # A whole rebalance, but for members that are late.
        some = [one for one in range(count) if chosen.random() < 0.85]
        joins = [("cjoin", {"number": one, "is_short": is_short, "stems": stems, "size": size}) for one in some]
        return joins + [("csync", {"number": one, "size": size}) for one in some if chosen.random() < 0.9]
    if pick < 0.7:
        return [("csync", {"number": number, "shift": chosen.choice((0, 0, 0, 1, -1)), "who": chosen.choice(("self", "self", "self", "stranger"))})]
    if pick < 0.87:
        shift, who = chosen.choice((0, 0, 0, 1, -1)), chosen.choice(("self", "self", "self", "stranger"))
        return [("cbeat", {"number": number, "shift": shift, "who": who, "instance": chosen.choice(("own", "own", "own", "other"))})]
    numbers = sorted(chosen.sample(range(count), min(count, chosen.choice((1, 1, 2)))))
    return [("cleave", {"numbers": numbers, "by_instance": chosen.random() < 0.2})]


def newer(chosen, kind, count):
    number = chosen.randrange(count)
    stems, more = chosen.choice(STEMS), chosen.choice((0, 0, 0, 10))
    pick = chosen.random()
    if pick < 0.3:
        values = {"number": number, "stems": stems, "more": more, "is_short": chosen.random() < 0.6}
        if kind == "streams":
            values["topology"] = chosen.choice((1, 1, 1, 1, 2))
        elif kind == "consumer":
            values["assignor"] = chosen.choice((None, None, "uniform", "range"))
            values["regex"] = chosen.choice((None, None, None, None, None, "own", "o"))
        return [("join", values)]
    if pick < 0.5:
        some = [one for one in range(count) if chosen.random() < 0.85]
        return [("beat", {"number": one}) for one in some]
    if pick < 0.63:
        return [("beat", {"number": number, "stems": stems, "more": more, "assignor": chosen.choice((None, None, "uniform", "range"))})]
    if pick < 0.8:
        shutdown = chosen.random() < 0.1
        return [("beat", {"number": number, "is_full": chosen.random() < 0.7, "shutdown": shutdown})]
    if pick < 0.9:
        return [("beat", {"number": number, "shift": chosen.choice((0, 1, -1)), "who": chosen.choice(("self", "self", "stranger"))})]
    return [("leave", {"number": number, "epoch": chosen.choice((-1, -1, -2))})]
