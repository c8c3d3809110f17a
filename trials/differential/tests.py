"""The same requests, scripted and random, to Apache Kafka and to Thalweg, whose answers are compared field by field.

    compat/run differential                                    the short form, as CI runs it
    SEED=7 NIGHTLY=1 WORK=/tmp/d PYTHONPATH=compat/harness trials/differential/suite    the long form, the random requests of a seed
    LEVELS=3 SCENARIOS=topics ... trials/differential/suite scripted                    one scenario, at versions 3 below the newest

Every difference is printed; allowed ones are in `allowed.py`, each with its reason.
"""

import atexit
import collections
import functools
import os
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "raw"))

from admin_scenarios import acls, cluster, configs, logins, quotas, telemetry, tokens, users
from allowed import is_allowed
from answers import errors
from broker import TARGETS
from data_scenarios import framing, reading, topics, writing
from differences import PLACES, Comparison, shown
from group_scenarios import classic, consumer, offsets, share, static
from histories import Histories, compared
from history_scripts import KINDS
from mutations import Mutator
from nodes import Nodes
from pair import APIS, Pair
from play import Parted, Play
from queue_scenarios import queue
from suite import NIGHTLY, TARGET, Skip, main
from transaction_scenarios import transactions

# What runs for each change is the same each time.
SEED = int(os.environ.get("SEED", random.randrange(1 << 32) if NIGHTLY else 1))
ALL_SCENARIOS = (topics, writing, framing, reading, offsets, classic, static, consumer, share, queue, transactions)
ALL_SCENARIOS += (configs, acls, quotas, users, logins, tokens, cluster, telemetry)
WANTED = os.environ.get("SCENARIOS", "").split()
SCENARIOS = [one for one in ALL_SCENARIOS if not WANTED or one.__name__ in WANTED]
# A level shifts every API down from its newest version: the API with the most versions has them all within so many.
ALL_LEVELS = range(max(api.high - api.low for api in APIS.values()) + 1)
LEVELS = [int(level) for level in os.environ.get("LEVELS", "").split()] or (ALL_LEVELS if NIGHTLY else [0, 5])
# Scenarios with variants.
ROUNDS = int(os.environ.get("ROUNDS", "200" if NIGHTLY else "4"))
EXAMPLES = int(os.environ.get("EXAMPLES", "3"))


@functools.cache
def shared():
    """Both nodes, for all tests here."""
    if TARGET not in TARGETS:
        raise Skip("the driver did not start this broker")
    nodes = Nodes("differential").__enter__()
    atexit.register(nodes.__exit__)
    pair = Pair(nodes)
    play = Play(pair, "start", 0)
    # A version that is not stable yet is in the schema, but not served.
    pair.served = play.good("ApiVersions", at=0)["ApiKeys"]
    for one in pair.served:
        api = next(api for api in APIS.values() if api.key == one["ApiKey"])
        api.low, api.high = one["MinVersion"], one["MaxVersion"]
    # The topics of the coordinators, which only such a request makes.
    for kind, key in ((0, "group"), (1, "id"), (2, "group:AAAAAAAAQACAAAAAAAAAAQ:0")):
        play.good("FindCoordinator", at=6, KeyType=kind, CoordinatorKeys=[key])
    play.end()
    return pair


def play(scenario, name, level, mutator=None):
    """Runs a scenario; one with variants ends where it cannot go on."""
    one = Play(shared(), name, level, mutator)
    try:
        scenario(one)
    except Parted:
        pass
    except (KeyError, IndexError, TypeError) as problem:
        if not mutator:
            raise AssertionError(f"{name} cannot go on: {problem!r}") from problem
    finally:
        one.end()


def report(what):
    """Prints what differs since the last report, by place; nothing may."""
    pair, by_place = shared(), collections.defaultdict(list)
    found, pair.differences = pair.differences, []
    for difference in found:
        by_place[difference.place].append(difference)
    print(f"{what}: {pair.compared} answers compared so far, {len(found)} differences in {len(by_place)} places", flush=True)
    for place, some in sorted(by_place.items()):
        print(f"== {place}: {len(some)}")
        for difference in some[:EXAMPLES]:
            print(f"  {difference}", flush=True)
    assert not found, f"{len(found)} differences in {len(by_place)} places ({what}), first {found[0]}"


def test_scripted_requests_have_the_same_answers():
    failed = []
    for level in LEVELS:
        for scenario in SCENARIOS:
            try:
                play(scenario, f"{scenario.__name__}-{level}", level)
            except AssertionError as problem:
                failed.append(str(problem))
    print(*failed, sep="\n", flush=True)
    report(f"levels {LEVELS}")
    assert not failed, failed[0]


def test_variants_of_them_have_the_same_answers():
    chosen = random.Random(SEED)
    for number in range(ROUNDS):
        mutator = Mutator(random.Random(chosen.getrandbits(64)), share=0.5)
        scenario, level = chosen.choice(SCENARIOS), chosen.randrange(15)
        play(scenario, f"{scenario.__name__}-{SEED}-{number}", level, mutator)
    report(f"SEED={SEED}, {ROUNDS} scenarios with variants")


# So many histories of each kind of group.
HISTORIES = int(os.environ.get("HISTORIES", "500" if NIGHTLY else "8"))
OF_GROUPS = os.environ.get("KINDS", " ".join(KINDS)).split()


def test_histories_of_groups_have_the_same_answers():
    if TARGET not in TARGETS:
        raise Skip("the driver did not start this broker")
    # They wait for sessions to end, and beside the other suites of the short form they would come too late.
    if not NIGHTLY and "HISTORIES" not in os.environ:
        raise Skip("the long form plays histories, and HISTORIES=8 some of them")
    with Histories("histories") as histories:
        differing = compared(histories, SEED, OF_GROUPS, HISTORIES, is_short=not NIGHTLY)
    assert not differing, f"SEED={SEED}: {len(differing)} histories differ, first {differing[0]}"


# Tests of the broker compare these.
ELSEWHERE = {"StreamsGroupHeartbeat", "StreamsGroupDescribe"}


def test_scripts_ask_at_every_version():
    pair = shared()
    if not pair.asked or len(SCENARIOS) < len(ALL_SCENARIOS):
        raise Skip("the scripted requests were not sent")
    names = {api.key: api.name for api in APIS.values()}
    for one in pair.served:
        name, low, high = names[one["ApiKey"]], one["MinVersion"], one["MaxVersion"]
        missing = set(range(low, high + 1)) - pair.asked[name]
        # The short form has some of the levels.
        assert name in ELSEWHERE or not missing or (pair.asked[name] and not NIGHTLY), f"{name} was never asked at {sorted(missing)}"


def test_a_planted_difference_is_seen():
    """Whatever is changed in an answer is seen, but for what says where and when."""
    pair = shared()
    if not pair.last:
        raise Skip("no requests were sent")
    seen = 0
    for (name, version), (kafka, ours) in list(pair.last.items()):
        api = APIS[name]
        # Where Apache Kafka fails, Thalweg's error may be any; where the errors differ as they may, so may the rest.
        if name == "ApiVersions" or errors(kafka) != errors(ours) or -1 in errors(kafka) or Comparison(pair.twins, api, version).of(kafka, ours):
            continue
        for path, old, new, changed in planted(api.answer, ours, version):
            comparison = Comparison(pair.twins, api, version)
            if path.rpartition(".")[2].rstrip("[]") in PLACES | {"Host"} or is_allowed(name, path, old, new):
                continue
            assert comparison.of(kafka, changed), f"{name} {version} {path}: unseen in {changed}"
            seen += 1
    assert seen > 1000 or not NIGHTLY, seen


def planted(fields, values, version, path=""):
    """Copies of an answer with one field changed, each with its place and both values."""
    for field in fields:
        if field.name in values:
            place, value = f"{path}.{field.name}" if path else field.name, values[field.name]
            for *what, changed in planted_field(field, value, version, place):
                yield *what, {**values, field.name: changed}


def planted_field(field, value, version, place):
    if isinstance(value, list):
        if value:
            yield f"{place}[]", value[:1], [], value[1:]
        for index, item in enumerate(value[:3]):
            for *what, changed in planted_field(field, item, version, f"{place}[{shown(field, item)}]"):
                yield *what, [*value[:index], changed, *value[index + 1 :]]
    elif field.kind == "records" and not value:
        # It may have records, as `allowed` says.
        return
    elif isinstance(value, dict):
        yield from planted(field.fields, value, version, place)
    else:
        new = another(field, value)
        yield place, value, new, new


def another(field, value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return -value - 1
    if isinstance(value, str):
        return "AAAAAAAAQADAAAAAAAAAAQ" if field.element == "uuid" else f"{value}x"
    if isinstance(value, bytes):
        return value + b"x"
    return {} if field.fields else "x"


if __name__ == "__main__":
    main(globals(), parallel=1)
