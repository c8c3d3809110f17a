//! `docs/metrics.md`, written from the tables.

use super::{CHAPTERS, Kind};
use std::fmt::Write;

/// The whole page.
pub fn metrics_page() -> String {
    let mut page = String::from(INTRODUCTION);
    for chapter in CHAPTERS {
        let _ = write!(
            page,
            "\n## {}\n\n| Metric | Kind | Labels | What it tells |\n|---|---|---|---|\n",
            chapter.title
        );
        for family in chapter.families {
            let labels: Vec<_> = family.labels.iter().map(|label| format!("`{label}`")).collect();
            let kind = match family.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Summary => "summary",
            };
            // A String takes everything.
            let _ =
                writeln!(page, "| `{}` | {kind} | {} | {} |", family.name, labels.join(", "), family.help);
        }
    }
    page
}

const INTRODUCTION: &str = "\
# Metrics

<!-- Written from the tables in crates/broker/src/metrics by the test `docs_are_fresh`; \
run it with UPDATE_DOCS=1 to write this page anew. -->

With `http.listener=HOST:PORT` in its properties, a node serves `/metrics` in Prometheus' text format over HTTP:

```
thalweg serve --set http.listener=localhost:9090
curl http://localhost:9090/metrics
```

```yaml
scrape_configs:
  - job_name: kafka
    static_configs:
      - targets: ['localhost:9090']
```

Names are those under which Kafka's own metrics appear through the Prometheus JMX exporter with its example rules for Kafka, so
that dashboards and alerts made for Kafka read them. What Kafka has no metric for begins with `thalweg_`, or has the name of
the exporter that people use for it. As there, a metric of topics has a sample for each topic and one for all of them, without the
label; sum over one or the other.

A broker that hosts streams tells of them too: [streams.md](streams.md#streams-as-a-service) lists what.

The server has neither TLS nor authentication. Keep it to the machine, or to a network that only operators reach.

A counter begins at 0 when the process starts. What went through a topic begins at 0 again when its last partition has left
the broker; the sample for all topics goes on. Quantiles are those of the last one to two minutes, and NaN where nothing came.

A process that is a controller alone tells of the cluster and of the process; one that is a broker alone leaves out
what only controllers know. With Apache Kafka's controllers, those tell it by themselves.
";

#[cfg(test)]
mod tests {
    use super::*;
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
            assert_eq!(name.ends_with("_total"), family.kind == Kind::Counter, "{name}");
            assert!(family.help.ends_with('.') && !family.help.contains('|'), "{name}");
        }
    }
}
