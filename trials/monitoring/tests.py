"""What Prometheus, Grafana and OpenTelemetry make of the metrics: real parsers, promtool, a Prometheus that scrapes a cluster under
load, every query of the dashboards, and a receiver of OTLP with the official messages."""

import http.server
import importlib.util
import re
import subprocess
import threading
import time

import cluster
from broker import Broker
from cluster import ROOT, RULES, scene
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest, ExportMetricsServiceResponse
from ports import free_port
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from suite import TARGET, Skip, main, until

GRAFANA = ROOT / "deploy" / "grafana"
OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
# What a dashboard's variables stand for.
VARIABLES = {"$instance": ".*", "$topic": ".*", "$group": ".*", "$request": ".*", "$__rate_interval": "20s"}
# promtool's complaints about names that are Kafka's, or those of a widely used exporter.
KAFKAS = re.compile(r"^kafka_\w+ ")


def promtool(*arguments, **options):
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, **options)
    return done.returncode, done.stdout + done.stderr


def samples(families):
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for family in families for sample in family.samples}


def test_text_is_read_by_prometheus_parser():
    headers, page = scene().page()
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8", headers
    families = {family.name: family for family in text_string_to_metric_families(page)}
    assert families["thalweg_request_time_seconds"].type == "histogram"
    assert families["kafka_network_requestmetrics_totaltimems"].type == "summary"
    assert families["process_cpu_seconds"].type == "counter"
    # A family is in one piece, and no sample is there twice.
    heads = re.findall(r"^# TYPE (\S+)", page, re.M)
    assert len(heads) == len(set(heads)), heads
    lines = [line.rpartition(" ")[0] for line in page.splitlines() if not line.startswith("#")]
    assert len(lines) == len(set(lines)), "a sample is there twice"


def test_openmetrics_is_read_by_its_parser():
    scene().settled()
    headers, page = scene().page(accept=OPENMETRICS)
    assert headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8", headers
    assert headers["Vary"] == "accept", headers
    families = {family.name: family for family in openmetrics.text_string_to_metric_families(page)}
    assert families["process_cpu_seconds"].unit == "seconds"
    assert families["thalweg_request_size_bytes"].unit == "bytes"
    names = {sample.name for family in families.values() for sample in family.samples}
    assert {"process_cpu_seconds_total", "process_cpu_seconds_created", "thalweg_request_time_seconds_created"} <= names
    # The same samples as in the text format, but for times of creation.
    _, text = scene().page()
    plain = {name for name, _ in samples(text_string_to_metric_families(text))}
    open_names = {name for name in names if not name.endswith("_created")}
    assert plain == open_names, plain ^ open_names


def test_slow_requests_are_exemplars():
    # Fetches of the consumer wait for more than 0.1 s.
    def found():
        _, page = scene().page(accept=OPENMETRICS)
        families = openmetrics.text_string_to_metric_families(page)
        times = next(family for family in families if family.name == "thalweg_request_time_seconds")
        return [sample for sample in times.samples if sample.exemplar]

    exemplars = until(found, "a request above 0.1 s", timeout=60)
    for sample in exemplars:
        assert sample.labels["stage"] == "total", sample
        assert re.fullmatch("[0-9a-f]{8}", sample.exemplar.labels["client_hash"]), sample
        assert 0.1 < sample.exemplar.value <= float(sample.labels["le"]), sample
        assert abs(float(sample.exemplar.timestamp) - time.time()) < 600, sample
    stored = until(lambda: scene().prometheus.ask(
        "query_exemplars", query="thalweg_request_time_seconds_bucket", start=time.time() - 300, end=time.time()
    ), "exemplars in Prometheus", timeout=30)
    assert stored[0]["exemplars"], stored


def test_promtool_checks_metrics():
    for accept in (None, ):
        _, page = scene().page(accept=accept)
        code, said = promtool("check", "metrics", input=page)
        # 3 stands for complaints about style.
        assert code in (0, 3), said
        ours = [line for line in said.splitlines() if line.strip() and not KAFKAS.match(line)]
        assert not ours, ours


def test_promtool_checks_rules_and_their_scenarios():
    for arguments in (("check", "rules", RULES), ("test", "rules", RULES.with_name("alerts.test.yml")),
                      ("check", "config", RULES.with_name("prometheus.yml"))):
        code, said = promtool(*arguments)
        assert code == 0, said
    # Every alert has a scenario.
    alerts = set(re.findall(r"- alert: (\w+)", RULES.read_text()))
    tried = set(re.findall(r"- alertname: (\w+)", RULES.with_name("alerts.test.yml").read_text()))
    assert alerts == tried, alerts ^ tried


def test_rules_and_dashboards_name_metrics_that_exist():
    documented = set(re.findall(r"^\| `(\w+)`", (ROOT / "docs" / "metrics.md").read_text(), re.M))
    documented |= {"up"}
    texts = [RULES.read_text()] + [path.read_text() for path in sorted((GRAFANA / "dashboards").glob("*.json"))]
    for text in texts:
        for name in re.findall(r"\b((?:kafka|thalweg|process)_\w+)", text):
            bare = re.sub(r"_(bucket|count|sum)$", "", name)
            assert name in documented or bare in documented, name


def test_dashboards_are_as_generated():
    done = subprocess.run([GRAFANA / "dashboards.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_query_of_the_dashboards_has_series():
    scene().settled()
    spec = importlib.util.spec_from_file_location("dashboards", GRAFANA / "dashboards.py")
    dashboards = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(dashboards)
    empty, count = [], 0
    for title, _, variables, rows in dashboards.DASHBOARDS:
        for query in [query for _, line in rows for panel in line for query in panel.queries]:
            series = scene().prometheus.series(substituted(query.expression))
            count += 1
            if not series and not query.rare:
                empty.append(f"{title}: {query.expression}")
        for name in variables:
            _, query = dashboards.VARIABLES[name]
            selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", query).groups()
            assert any(label in each["metric"] for each in scene().prometheus.series(selector)), query
    assert not empty, empty
    assert count > 80, count


def substituted(expression):
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    return expression


def test_every_rule_is_evaluated():
    scene().settled()
    rules = [rule for group in scene().prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert len(rules) > 20, len(rules)
    until(lambda: all(rule["health"] == "ok" for group in scene().prometheus.ask("rules")["groups"] for rule in group["rules"]),
          "evaluations without an error")
    firing = [alert["labels"]["alertname"] for alert in scene().prometheus.ask("alerts")["alerts"]
              if alert["state"] == "firing" and alert["labels"]["severity"] == "critical"]
    assert not firing, firing


def test_the_lag_of_a_group_is_known_wherever_its_partitions_are():
    scene().settled()
    # Each coordinator knows the ends of the logs of other brokers: of UNREPLICATED it has a third.
    unknown = until(lambda: scene().prometheus.series("sum(thalweg_group_lag_unknown_partitions) == 0"), "no unknown ends", timeout=60)
    assert unknown
    partitions = scene().prometheus.series(f'kafka_consumergroup_lag{{consumergroup="{cluster.GROUP}",topic="{cluster.UNREPLICATED}"}}')
    offsets = scene().prometheus.series(f'kafka_consumergroup_current_offset{{consumergroup="{cluster.GROUP}",topic="{cluster.UNREPLICATED}"}}')
    assert partitions and len(partitions) == len(offsets), (len(partitions), len(offsets))
    total = scene().prometheus.series(
        f'abs(sum(thalweg_group_lag{{consumergroup="{cluster.GROUP}"}}) - sum(kafka_consumergroup_lag_sum{{consumergroup="{cluster.GROUP}"}}))'
    )
    assert float(total[0]["value"][1]) == 0, total


def test_large_families_are_left_out_whole_and_counted():
    with node(f"thalweg.metrics.series.max={LIMIT}") as (broker, url):
        topics = " ".join(f"t{number}" for number in range(6))
        for topic in topics.split():
            thalweg("topic", "create", topic, "--partitions", "5", "--bootstrap-server", broker.bootstrap)
        _, page = cluster.get(url)
        found = samples(text_string_to_metric_families(page))
        assert found[("kafka_server_brokertopicmetrics_bytesin_total", (("topic", "t0"),))] == 0
        dropped = {dict(labels)["family"]: value for (name, labels), value in found.items() if name == "thalweg_metrics_dropped_series"}
        assert dropped["kafka_log_log_size"] == 30, dropped
        assert not any(name == "kafka_log_log_size" for name, _ in found)
        limited = [labels for _, labels in found if {"topic", "consumergroup", "clientId", "ip"} & set(dict(labels)) and
                   dict(labels).get("topic") != ""]
        assert len(limited) <= LIMIT, len(limited)
    with node("thalweg.metrics.partitions=false") as (broker, url):
        thalweg("topic", "create", "t0", "--partitions", "5", "--bootstrap-server", broker.bootstrap)
        _, page = cluster.get(url)
        assert 'topic="t0"' in page and 'partition="' not in page


LIMIT = 60


def thalweg(*arguments):
    done = subprocess.run([cluster.thalweg_binary(), *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


class node:
    """A broker with settings of its own, and the address of its metrics."""

    def __init__(self, *settings):
        if TARGET not in ("", "thalweg"):
            raise Skip("these metrics are Thalweg's")
        pairs = dict(setting.split("=", 1) for setting in settings)
        self.port = free_port()
        place = cluster.work() / f"node-{self.port}"
        self.broker = Broker("thalweg", place, {"http.listener": f"127.0.0.1:{self.port}", **pairs})

    def __enter__(self):
        self.broker.start()
        url = f"http://127.0.0.1:{self.port}/metrics"
        until(lambda: self.is_up(url), "metrics")
        return self.broker, url

    def is_up(self, url):
        try:
            return cluster.get(url)
        except OSError:
            return None

    def __exit__(self, *_):
        self.broker.stop()


class Receiver(http.server.ThreadingHTTPServer):
    """Takes OTLP, and decodes it with the official messages."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.taken, self.heads, self.status = [], [], 200
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.status == 200:
            request = ExportMetricsServiceRequest()
            request.ParseFromString(body)
            self.server.heads.append((self.path, dict(self.headers)))
            self.server.taken.append(request)
        answer = ExportMetricsServiceResponse().SerializeToString()
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def points(request):
    """Every point of a request: (metric, attributes), and the metric and the point."""
    found = {}
    for resource in request.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in getattr(metric, metric.WhichOneof("data")).data_points:
                    labels = tuple(sorted((each.key, each.value.string_value) for each in point.attributes))
                    assert (metric.name, labels) not in found, (metric.name, labels)
                    found[metric.name, labels] = metric, point
    return found


def test_otlp_has_the_figures_of_the_page():
    receiver = Receiver()
    settings = (f"thalweg.otlp.endpoint={receiver.url}", "thalweg.otlp.interval.ms=1000", "thalweg.otlp.headers=x-tenant=7")
    with node(*settings) as (broker, url):
        subprocess.run([cluster.thalweg_binary(), "produce", "sent", "--bootstrap-server", broker.bootstrap], input=b"a\nb\n", check=True)
        # Two pages, one before and one after a page of Prometheus': counters lie between them.
        until(lambda: ("kafka_server_brokertopicmetrics_messagesin", (("topic", "sent"),)) in points(receiver.taken[-1])
              if receiver.taken else None, "the topic in a page")
        before = points(receiver.taken[-1])
        _, page = cluster.get(url)
        count = len(receiver.taken)
        until(lambda: len(receiver.taken) > count + 1, "another page")
        after = points(receiver.taken[-1])
        path, head = receiver.heads[0]
        assert path == "/v1/metrics" and head["x-tenant"] == "7", (path, head)
        assert head["content-type"] == "application/x-protobuf", head
        resource = {each.key: each.value.string_value for each in receiver.taken[-1].resource_metrics[0].resource.attributes}
        assert resource["service.name"] == "thalweg" and resource["service.instance.id"] == "1", resource
        compare(before, page, after)
        # A receiver that fails is reported once, and metrics go on when it is back.
        receiver.status = 503
        until(lambda: "Failed to send metrics" in broker.log_path.read_text(), "a warning")
        receiver.status, count = 200, len(receiver.taken)
        until(lambda: len(receiver.taken) > count, "a page after the failure")
        until(lambda: "Metrics are sent again" in broker.log_path.read_text(), "the end of the failure")
        assert broker.log_path.read_text().count("Failed to send metrics") == 1
    receiver.shutdown()


def compare(before, page, after):
    kinds = set()
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            labels = dict(sample.labels)
            labels.pop("le", None)
            key = family.name, tuple(sorted(labels.items()))
            if "quantile" in labels or key not in before or key not in after:
                continue
            (metric, first), (_, last) = before[key], after[key]
            kind = metric.WhichOneof("data")
            kinds.add(kind)
            assert last.time_unix_nano > first.time_unix_nano >= first.start_time_unix_nano > 0, key
            if kind in ("histogram", "summary") and sample.name.endswith("_count"):
                assert first.count <= sample.value <= last.count, (key, first.count, sample.value, last.count)
            elif kind == "histogram" and sample.name.endswith("_bucket"):
                below = [bound for bound in first.explicit_bounds if bound <= float(sample.labels["le"])]
                place = len(below) if sample.labels["le"] != "+Inf" else len(first.bucket_counts)
                low, high = (sum(point.bucket_counts[:place]) for point in (first, last))
                assert low <= sample.value <= high, (key, sample, low, high)
                assert sum(first.bucket_counts) == first.count and len(first.bucket_counts) == len(first.explicit_bounds) + 1
            elif kind == "sum":
                assert metric.sum.is_monotonic and metric.sum.aggregation_temporality == 2, key
                low, high = (point.as_int if point.WhichOneof("value") == "as_int" else point.as_double for point in (first, last))
                assert low <= sample.value <= high, (key, low, sample.value, high)
    assert kinds == {"sum", "gauge", "histogram", "summary"}, kinds
    units = {metric.name: metric.unit for metric, _ in after.values()}
    assert units["process_cpu_seconds"] == "s" and units["thalweg_request_size_bytes"] == "By", units


if __name__ == "__main__":
    main(globals())
