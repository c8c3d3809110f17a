#!/usr/bin/env python3
"""Writes the dashboards in dashboards/ from the tables below: a row of panels is a line of queries.

    deploy/grafana/dashboards.py            writes the JSON files
    deploy/grafana/dashboards.py --check    fails if they differ from the tables

Every query selects the job `thalweg` and the variables of its dashboard. `trials/monitoring` runs each of them on a Prometheus that
scrapes a cluster under load, and requires series. A query that is rightly empty where nothing goes wrong is marked by `rare`.
"""

import json
import pathlib
import sys

PLACE = pathlib.Path(__file__).resolve().parent / "dashboards"
WIDTH, HEIGHT = 24, 8
RATE = "[$__rate_interval]"
# The selectors of a dashboard's variables.
NODE = 'job="thalweg",instance=~"$instance"'
TOPIC = NODE + ',topic=~"$topic"'
GROUP = NODE + ',consumergroup=~"$group"'


class Query:
    """A query and its legend. `rare`: no series where nothing goes wrong."""

    def __init__(self, expression, legend="{{instance}}", rare=False):
        self.expression, self.legend, self.rare = expression, legend, rare


def rare(expression, legend="{{instance}}"):
    return Query(expression, legend, rare=True)


class Panel:
    def __init__(self, title, unit, *queries, help="", kind="timeseries", width=8, stacked=False, bad=None):
        self.title, self.unit, self.help, self.kind, self.width = title, unit, help, kind, width
        self.queries = [query if isinstance(query, Query) else Query(query) for query in queries]
        self.stacked, self.bad = stacked, bad


def stat(title, unit, query, bad=None, help=""):
    """One number; red from `bad` on."""
    return Panel(title, unit, Query(query, ""), kind="stat", width=4, bad=bad, help=help)


def rate(metric, selector=NODE, by="instance"):
    return f"sum by ({by}) (rate({metric}{{{selector}}}{RATE}))"


def quantile(share, metric, selector, by="instance"):
    return f"histogram_quantile({share}, sum by ({by}, le) (rate({metric}_bucket{{{selector}}}{RATE})))"


def gauge(metric, selector=NODE):
    return f"{metric}{{{selector}}}"


CONTROLLER = "kafka_controller_kafkacontroller_"
REPLICAS = "kafka_server_replicamanager_"
TRAFFIC = "kafka_server_brokertopicmetrics_"
STAGES = "thalweg_request_time_seconds"
# All topics together have no label.
ALL = NODE + ',topic=""'

OVERVIEW = (
    "Thalweg: overview",
    "thalweg-overview",
    ["instance"],
    [
        ("Now", [
            stat("Nodes up", "none", 'sum(up{job="thalweg"})'),
            stat("Brokers fenced", "none", f"max({gauge(CONTROLLER + 'fencedbrokercount')})", bad=1),
            stat("Offline partitions", "none", f"max({gauge(CONTROLLER + 'offlinepartitionscount')})", bad=1,
                 help="Without a leader: nothing can be written to them or read from them."),
            stat("Under-replicated", "none", f"sum({gauge(REPLICAS + 'underreplicatedpartitions')})", bad=1),
            stat("acks=all refused", "none", f"sum({gauge(REPLICAS + 'underminisrpartitioncount')})", bad=1,
                 help="Partitions with fewer replicas in sync than min.insync.replicas."),
            stat("Fullest disk", "percentunit",
                 f"max(1 - {gauge('thalweg_log_directory_free_bytes')} / thalweg_log_directory_total_bytes)", bad=0.9),
        ]),
        ("Traffic", [
            Panel("Bytes in", "Bps", rate(TRAFFIC + "bytesin_total", ALL), stacked=True),
            Panel("Bytes out to consumers", "Bps", rate(TRAFFIC + "bytesout_total", ALL), stacked=True),
            Panel("Records in", "cps", rate(TRAFFIC + "messagesin_total", ALL), stacked=True),
        ]),
        ("Requests", [
            Panel("Requests", "reqps", Query(rate("kafka_network_requestmetrics_requests_total", by="request"), "{{request}}")),
            Panel("Produce, 99 %", "s", quantile(0.99, STAGES, NODE + ',request="Produce",stage="total"')),
            Panel("Errors", "cps",
                  rare(rate("kafka_network_requestmetrics_errors_total", by="request, error"), "{{request}} {{error}}")),
        ]),
        ("Nodes", [
            Panel("Processor", "percentunit", rate("process_cpu_seconds_total"), help="1 is one core."),
            Panel("Memory", "bytes", gauge("process_resident_memory_bytes")),
            Panel("Idle threads", "percentunit", gauge("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"),
                  help="The share of time in which the threads that serve requests have nothing to do."),
        ]),
    ],
)

TOPICS = (
    "Thalweg: topics",
    "thalweg-topics",
    ["instance", "topic"],
    [
        ("Traffic by topic", [
            Panel("Bytes in", "Bps", Query(rate(TRAFFIC + "bytesin_total", TOPIC, "topic"), "{{topic}}")),
            Panel("Bytes out to consumers", "Bps", Query(rate(TRAFFIC + "bytesout_total", TOPIC, "topic"), "{{topic}}")),
            Panel("Records in", "cps", Query(rate(TRAFFIC + "messagesin_total", TOPIC, "topic"), "{{topic}}")),
        ]),
        ("Requests by topic", [
            Panel("Produce requests", "reqps", Query(rate(TRAFFIC + "totalproducerequests_total", TOPIC, "topic"), "{{topic}}")),
            Panel("Fetch requests", "reqps", Query(rate(TRAFFIC + "totalfetchrequests_total", TOPIC, "topic"), "{{topic}}")),
            Panel("Rejected", "reqps",
                  Query(rate(TRAFFIC + "failedproducerequests_total", TOPIC, "topic"), "{{topic}} produce"),
                  Query(rate(TRAFFIC + "failedfetchrequests_total", TOPIC, "topic"), "{{topic}} fetch")),
        ]),
        ("Logs by topic", [
            Panel("Size", "bytes", Query(f"sum by (topic) ({gauge('kafka_log_log_size', TOPIC)})", "{{topic}}"), stacked=True,
                  help="Of all replicas."),
            Panel("Segments", "none", Query(f"sum by (topic) ({gauge('kafka_log_log_numlogsegments', TOPIC)})", "{{topic}}")),
            Panel("Records kept", "none", Query(
                f"sum by (topic) (max by (topic, partition) ({gauge('kafka_log_log_logendoffset', TOPIC)}"
                f" - {gauge('kafka_log_log_logstartoffset', TOPIC)}))", "{{topic}}"),
                help="Offsets between the start and the end of the logs; fewer records if the topic is compacted."),
        ]),
        ("Held back", [
            Panel("Last stable offset lag", "none",
                  Query(f"max by (topic) ({gauge('kafka_cluster_partition_laststableoffsetlag', TOPIC)})", "{{topic}}"),
                  help="Offsets that consumers of committed records do not see yet: a transaction is open."),
            Panel("Under-replicated partitions", "none",
                  Query(f"sum by (topic) ({gauge('kafka_cluster_partition_underreplicated', TOPIC)})", "{{topic}}")),
            Panel("Logs that cannot be compacted", "none",
                  rare(gauge("thalweg_cleaner_uncleanable", TOPIC), "{{topic}}-{{partition}} {{reason}}")),
        ]),
    ],
)

GROUPS = (
    "Thalweg: groups",
    "thalweg-groups",
    ["instance", "group"],
    [
        ("Lag", [
            Panel("Lag of groups", "none", Query(f"max by (consumergroup) ({gauge('thalweg_group_lag', GROUP)})", "{{consumergroup}}"),
                  help="Records between the committed offsets and the high watermarks."),
            Panel("Lag of groups in time", "s",
                  Query(f"max by (consumergroup) ({gauge('thalweg_group_lag_seconds', GROUP)})", "{{consumergroup}}"),
                  help="The age of the oldest record that a group has not read."),
            Panel("Lag by topic", "none",
                  Query(f"max by (consumergroup, topic) ({gauge('kafka_consumergroup_lag_sum', GROUP)})", "{{consumergroup}} {{topic}}")),
        ]),
        ("Progress", [
            Panel("Records consumed", "cps", Query(
                f"sum by (consumergroup, topic) (rate({gauge('kafka_consumergroup_current_offset', GROUP)}{RATE}))",
                "{{consumergroup}} {{topic}}"), help="By committed offsets."),
            Panel("Members", "none", Query(f"max by (consumergroup) ({gauge('kafka_consumergroup_members', GROUP)})", "{{consumergroup}}")),
            Panel("Largest lag of a partition", "none", Query(
                f"max by (consumergroup) ({gauge('kafka_consumergroup_lag', GROUP)})", "{{consumergroup}}")),
        ]),
        ("Coordinators", [
            Panel("Groups by state", "none", *[
                Query(f"sum({gauge('kafka_coordinator_group_groupmetadatamanager_numgroups' + state)})", legend)
                for state, legend in [("empty", "empty"), ("stable", "stable"), ("preparingrebalance", "preparing rebalance"),
                                      ("completingrebalance", "completing rebalance")]], stacked=True),
            Panel("Partitions by state", "none",
                  Query(f"sum by (state) ({gauge('kafka_server_group_coordinator_metrics_num_partitions')})", "groups {{state}}"),
                  Query(f"sum by (state) ({gauge('kafka_server_transaction_coordinator_metrics_num_partitions')})", "transactions {{state}}")),
            Panel("Lag unknown", "none", gauge("thalweg_group_lag_unknown_partitions"),
                  help="Partitions whose leader did not say where their log ends."),
        ]),
        ("Transactions", [
            Panel("Transactional ids by state", "none", Query(f"sum by (state) ({gauge('thalweg_transactions')})", "{{state}}"), stacked=True),
            Panel("Oldest open transaction", "s", gauge("thalweg_transaction_oldest_seconds")),
            Panel("Late transactions", "none", Query(gauge("thalweg_transactions_late"), "{{instance}} coordinated"),
                  Query(gauge(REPLICAS + "partitionswithlatetransactionscount"), "{{instance}} partitions")),
        ]),
    ],
)

REPLICATION = (
    "Thalweg: replication",
    "thalweg-replication",
    ["instance"],
    [
        ("Partitions", [
            Panel("Leaders", "none", gauge(REPLICAS + "leadercount")),
            Panel("Replicas", "none", gauge(REPLICAS + "partitioncount")),
            Panel("Moving", "none", gauge(REPLICAS + "reassigningpartitions")),
        ]),
        ("In-sync replicas", [
            Panel("Under-replicated", "none", gauge(REPLICAS + "underreplicatedpartitions")),
            Panel("At and under min.insync.replicas", "none", Query(gauge(REPLICAS + "atminisrpartitioncount"), "{{instance}} at"),
                  Query(gauge(REPLICAS + "underminisrpartitioncount"), "{{instance}} under")),
            Panel("Shrinks and expands", "cps", Query(rate(REPLICAS + "isrshrinks_total"), "{{instance}} shrinks"),
                  Query(rate(REPLICAS + "isrexpands_total"), "{{instance}} expands")),
        ]),
        ("Lag", [
            Panel("Largest lag of a follower", "none", Query(f"max by (instance, follower) ({gauge('thalweg_replica_lag')})",
                                                            "{{instance}} to {{follower}}"),
                  help="Offsets behind the log end, as the leader sees it."),
            Panel("Largest lag of a replica here", "none", gauge("kafka_server_replicafetchermanager_maxlag")),
            Panel("Waiting requests", "none", Query(
                f"sum by (delayedOperation) ({gauge('kafka_server_delayedoperationpurgatory_numdelayedoperations')})",
                "{{delayedOperation}}"), help="Produce waits for replicas or the disk, Fetch for more to be appended, "
                                              "ShareFetch for records to acquire."),
        ]),
        ("Traffic", [
            Panel("Bytes in by replication", "Bps", rate(TRAFFIC + "replicationbytesin_total", ALL)),
            Panel("Bytes out by replication", "Bps", rate(TRAFFIC + "replicationbytesout_total", ALL)),
            Panel("Throttled", "Bps", Query(rate("thalweg_leaderreplication_throttled_bytes_total"), "{{instance}} out"),
                  Query(rate("thalweg_followerreplication_throttled_bytes_total"), "{{instance}} in")),
        ]),
        ("Controller", [
            Panel("Brokers", "none", Query(f"max({gauge(CONTROLLER + 'activebrokercount')})", "active"),
                  Query(f"max({gauge(CONTROLLER + 'fencedbrokercount')})", "fenced")),
            Panel("Leader elections", "cps", Query(rate("thalweg_controller_leader_elections_total"), "elections"),
                  Query(rate("kafka_controller_controllerstats_uncleanleaderelections_total"), "unclean")),
            Panel("Offline partitions", "none", Query(f"max({gauge(CONTROLLER + 'offlinepartitionscount')})", "partitions")),
        ]),
    ],
)

RESOURCES = (
    "Thalweg: resources",
    "thalweg-resources",
    ["instance", "request"],
    [
        ("Where the time of requests goes", [
            Panel("Mean by stage", "s", Query(
                f'sum by (stage) (rate({STAGES}_sum{{{NODE},request=~"$request"}}{RATE}))'
                f' / sum by (stage) (rate({STAGES}_count{{{NODE},request=~"$request"}}{RATE}))', "{{stage}}"), width=12),
            Panel("99 % by stage", "s", Query(quantile(0.99, STAGES, NODE + ',request=~"$request"', "stage"), "{{stage}}"), width=12),
        ]),
        ("Sizes and requests", [
            Panel("Requests", "reqps", Query(rate("kafka_network_requestmetrics_requests_total", NODE + ',request=~"$request"', "request"), "{{request}}")),
            Panel("Request size, 99 %", "bytes", Query(quantile(0.99, "thalweg_request_size_bytes", NODE, "request"), "{{request}}")),
            Panel("Response size, 99 %", "bytes", Query(quantile(0.99, "thalweg_response_size_bytes", NODE, "request"), "{{request}}")),
        ]),
        ("Processor and memory", [
            Panel("Busy threads", "percentunit", Query(rate("thalweg_worker_busy_seconds_total", by="instance, worker"), "{{instance}} {{worker}}")),
            Panel("Tasks that wait for a thread", "none", gauge("thalweg_worker_queue_size")),
            Panel("Memory of requests and answers", "bytes", Query(gauge("kafka_network_socketserver_memorypoolused"), "{{instance}} requests"),
                  Query(gauge("thalweg_unread_answers_bytes"), "{{instance}} unread answers")),
        ]),
        ("Connections", [
            Panel("Open", "none", Query(gauge("thalweg_listener_connections"), "{{instance}} {{listener}}")),
            Panel("Accepted", "cps", rate("kafka_server_socket_server_metrics_connection_creation_total")),
            Panel("Ended for a reason", "cps", Query(rate("thalweg_connections_closed_total", by="reason"), "{{reason}}")),
        ]),
        ("Security and quotas", [
            Panel("Failed logins", "cps", rare(rate("kafka_server_socket_server_metrics_failed_authentication_total", by="instance, listener"),
                                               "{{instance}} {{listener}}")),
            Panel("Certificates expire in", "s", rare(gauge("thalweg_certificate_expiry_timestamp_seconds") + " - time()", "{{instance}} {{listener}}")),
            Panel("Pauses by quotas", "percentunit", Query(rate("thalweg_quota_pause_seconds_sum", by="resource"), "{{resource}}"),
                  help="Seconds of pause a second, over all clients."),
        ]),
        ("Disk", [
            Panel("Free", "percentunit", Query(
                f"{gauge('thalweg_log_directory_free_bytes')} / thalweg_log_directory_total_bytes", "{{instance}} {{directory}}")),
            Panel("Size of logs", "bytes", gauge("thalweg_logs_size_bytes")),
            Panel("Sync, 99 %", "s", Query(quantile(0.99, "thalweg_log_flush_seconds", NODE), "{{instance}}")),
        ]),
        ("Compaction and descriptors", [
            Panel("Dirtiest log", "percent", gauge("kafka_log_logcleanermanager_max_dirty_percent")),
            Panel("Since the last look at logs", "ms", gauge("kafka_log_logcleanermanager_time_since_last_run_ms")),
            Panel("File descriptors", "percentunit", f"{gauge('process_open_fds')} / process_max_fds"),
        ]),
    ],
)

DASHBOARDS = [OVERVIEW, TOPICS, GROUPS, REPLICATION, RESOURCES]

VARIABLES = {
    "instance": ("Node", 'label_values(up{job="thalweg"}, instance)'),
    "topic": ("Topic", f'label_values({TRAFFIC}bytesin_total{{job="thalweg",topic!=""}}, topic)'),
    "group": ("Group", 'label_values(kafka_consumergroup_members{job="thalweg"}, consumergroup)'),
    "request": ("Request", f'label_values({STAGES}_count{{job="thalweg"}}, request)'),
}
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def variable(name):
    label, query = VARIABLES[name]
    return {
        "name": name, "label": label, "type": "query", "datasource": DATASOURCE, "query": {"query": query, "refId": name},
        "definition": query, "refresh": 2, "includeAll": True, "allValue": ".*", "multi": True, "sort": 1,
        "current": {"text": "All", "value": "$__all"},
    }


def panel_json(panel, number, x, y):
    targets = [
        {"datasource": DATASOURCE, "expr": query.expression, "legendFormat": query.legend, "refId": chr(ord("A") + at),
         "instant": panel.kind == "stat", "range": panel.kind != "stat"}
        for at, query in enumerate(panel.queries)
    ]
    steps = [{"color": "green", "value": None}]
    steps += [{"color": "red", "value": panel.bad}] if panel.bad is not None else []
    defaults = {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}}
    height = HEIGHT if panel.kind == "timeseries" else 4
    common = {"id": number, "type": panel.kind, "title": panel.title, "description": panel.help, "datasource": DATASOURCE,
              "gridPos": {"x": x, "y": y, "w": panel.width, "h": height}, "targets": targets}
    if panel.kind == "stat":
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "background" if panel.bad is not None else "value"}
        return common | {"fieldConfig": {"defaults": defaults, "overrides": []}, "options": options}
    defaults |= {"min": 0, "custom": {"drawStyle": "line", "lineWidth": 1, "showPoints": "never", "fillOpacity": 20 if panel.stacked else 0,
                                      "stacking": {"mode": "normal" if panel.stacked else "none"}}}
    options = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
    return common | {"fieldConfig": {"defaults": defaults, "overrides": []}, "options": options}


def dashboard_json(title, uid, variables, rows):
    panels, number, y = [], 1, 0
    for row, (name, line) in enumerate(rows):
        panels.append({"id": number, "type": "row", "title": name, "collapsed": False, "panels": [],
                       "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1}})
        number, y, x, height = number + 1, y + 1, 0, 0
        for panel in line:
            placed = panel_json(panel, number, x, y)
            panels.append(placed)
            number, x, height = number + 1, x + panel.width, max(height, placed["gridPos"]["h"])
        y += height
    source = {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "current": {}}
    links = [{"type": "dashboards", "title": "Thalweg", "tags": ["thalweg"], "asDropdown": True, "includeVars": True, "keepTime": True}]
    return {
        "uid": uid, "title": title, "tags": ["thalweg"], "timezone": "browser", "editable": True, "graphTooltip": 1, "refresh": "15s",
        "schemaVersion": 39, "time": {"from": "now-1h", "to": "now"}, "links": links,
        "templating": {"list": [source, *map(variable, variables)]}, "panels": panels,
    }


def files():
    """The files as they should be: name, text."""
    for title, uid, variables, rows in DASHBOARDS:
        yield f"{uid}.json", json.dumps(dashboard_json(title, uid, variables, rows), indent=1) + "\n"


def main():
    stale = [(name, text) for name, text in files() if not (PLACE / name).exists() or (PLACE / name).read_text() != text]
    if "--check" in sys.argv[1:]:
        for name, _ in stale:
            print(f"dashboards/{name} is stale: run deploy/grafana/dashboards.py", file=sys.stderr)
        return 1 if stale else 0
    PLACE.mkdir(exist_ok=True)
    for name, text in stale:
        (PLACE / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
