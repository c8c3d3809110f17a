//! `docs/metrics.md`, written from the tables.

use super::{CHAPTERS, OF_PAGE};
use std::fmt::Write;

/// The whole page.
pub fn metrics_page() -> String {
    let mut page = String::from(INTRODUCTION);
    for chapter in CHAPTERS.iter().chain([&OF_PAGE]) {
        let _ = write!(
            page,
            "\n## {}\n\n| Metric | Kind | Labels | Meaning |\n|---|---|---|---|\n",
            chapter.title
        );
        for family in chapter.families {
            let labels: Vec<_> = family.labels.iter().map(|label| format!("`{label}`")).collect();
            let kind = family.kind.name();
            // Writing to a String cannot fail.
            let _ =
                writeln!(page, "| `{}` | {kind} | {} | {} |", family.name, labels.join(", "), family.help);
        }
    }
    page
}

const INTRODUCTION: &str = "\
# Metrics

<!-- Written from the tables in crates/broker/src/metrics by the test `docs_are_fresh`; \
run it with UPDATE_DOCS=1 to update this page. -->

With `http.listener=HOST:PORT` in its properties, a node serves `/metrics` over HTTP, in Prometheus' text format, or in OpenMetrics to
clients that prefer it. [Monitoring](monitoring.md) sets Prometheus and Grafana up, with dashboards and alerts.

```
thalweg serve --set http.listener=localhost:9090
curl http://localhost:9090/metrics
```

```yaml
scrape_configs:
  - job_name: thalweg
    static_configs:
      - targets: ['localhost:9090']
```

Names are those of Kafka's own metrics behind the Prometheus JMX exporter with its example rules for Kafka, so dashboards and alerts
for Kafka work. Metrics that Kafka lacks begin with `thalweg_`, or have the name of a widely used exporter. As in Kafka, a metric of
topics has a sample per topic and one for all topics, without the label; sum over one or the other.

A broker that hosts streams also exposes [their metrics](streams.md#streams-as-a-service).

Without further settings the server has neither TLS nor a login: bind it to the machine. With `http.security.protocol=SSL` and
`http.authentication=basic` it has both ([security](security.md#the-http-listener)):

```yaml
    scheme: https
    basic_auth: { username: scraper, password_file: /etc/prometheus/scraper.password }
    tls_config: { ca_file: /etc/prometheus/ca.crt }
```

**How many samples there are** is limited: `thalweg.metrics.series.max` bounds those of topics, partitions, groups and clients, 20,000 by
default. A family that does not fit is left out whole, so that no sum over it is wrong, and named by `thalweg_metrics_dropped_series`;
families come in the order of this page. A node with thousands of partitions keeps the samples of topics and groups whole with
`thalweg.metrics.partitions=false`, without those of single partitions. Both settings can be changed while the broker runs.

**OTLP.** `thalweg.otlp.endpoint=http://localhost:4318` sends the same figures to an OpenTelemetry collector every 15 seconds, without those
of streams. Attributes are the labels; names have no `_total`, as in OpenMetrics.

**Histograms** have fixed bounds, so those of several brokers can be added: times from 0.1 ms to 30 s, sizes from 64 B to 64 MiB. In
OpenMetrics, the largest buckets of `thalweg_request_time_seconds` have an exemplar: the last request that took so long. It names the
client by the FNV-1a hash (32 bits, hexadecimal) of its id, because ids may be long, and secret.

Counters start at 0 when the process starts. Counters of a topic restart at 0 when its last partition has left the broker; the sample
for all topics continues. Quantiles cover the last one to two minutes, and are NaN without requests.

A process with only the controller role exposes cluster and process metrics; one with only the broker role leaves out controller metrics.
Apache Kafka's controllers expose their own.
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::MetricKind;
    use std::collections::BTreeSet;

    #[test]
    fn docs_are_fresh() {
        crate::page::assert_is_fresh("metrics.md", &metrics_page());
    }

    #[test]
    fn names_are_those_that_scrapers_take() {
        let mut names = BTreeSet::new();
        for family in CHAPTERS.iter().flat_map(|chapter| chapter.families) {
            let name = family.name;
            assert!(names.insert(name), "{name} is there twice");
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'), "{name}");
            assert_eq!(name.ends_with("_total"), family.kind == MetricKind::Counter, "{name}");
            assert!(family.help.ends_with('.') && !family.help.contains('|'), "{name}");
        }
    }
}
