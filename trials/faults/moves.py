"""Moves of replicas and leaders by Kafka's tools."""

import json

from faults import say
from suite import until


def reassign(ordeal, replicas_of, topics=None):
    """Assigns each partition the replicas that a function of its index returns, the first as leader; of these topics, or
    of all topics of clients and the offsets topic."""
    topics = topics or (*ordeal.topics, "__consumer_offsets")
    seen = ordeal.cluster.wait_until_whole()
    wanted = {(topic, index): replicas_of(index) for topic in topics for index in seen.topics[topic].partitions}
    moves = [{"topic": topic, "partition": index, "replicas": ids} for (topic, index), ids in wanted.items()]
    plan = ordeal.directory / "reassignment.json"
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    name, file = "reassign.ReassignPartitionsCommand", ("--reassignment-json-file", str(plan))
    ordeal.cluster.tool(name, *file, "--execute")
    until(lambda: "in progress" not in ordeal.cluster.tool(name, *file, "--verify"), "the reassignment", 120)
    ordeal.cluster.tool("LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")

    def is_done(seen):
        found = {place: seen.topics[place[0]].partitions[place[1]] for place in wanted}
        return all(found[at].leader == ids[0] and sorted(found[at].replicas) == sorted(ids) for at, ids in wanted.items())

    ordeal.cluster.wait("the leaders that were asked for", is_done)
    say(f"reassigned, the leaders are {[ids[0] for ids in wanted.values()]}")
