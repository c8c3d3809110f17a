//! The tables of a workload: all figures, the verdicts, the evidence, and published figures.

use super::obstacles::obstacles;
use super::palette::Palette;
use super::text::{badge, escape, table};
use crate::quantity;
use crate::result::{Evidence, Figure, FigureUnit, PointResult, ReplicaCount, Spread, WorkloadResult};
use crate::worker::Driver;

/// All figures that any point has, as means with their variation: rates, costs, then latencies.
pub(super) fn figures(workload: &WorkloadResult, palette: &Palette) -> String {
    const RATES: [(&str, &str); 12] = [
        ("produced_records_per_s", "records/s produced"),
        ("produced_mb_per_s", "MB/s produced"),
        ("produced_mbit_per_s", "Mbit/s produced"),
        ("consumed_records_per_s", "records/s consumed"),
        ("consumed_mb_per_s", "MB/s consumed"),
        ("consumed_mbit_per_s", "Mbit/s consumed"),
        ("carried_records_per_s", "records/s, the lesser of both"),
        ("carried_mb_per_s", "MB/s, the lesser of both"),
        ("carried_mbit_per_s", "Mbit/s, the lesser of both"),
        ("drain_s", "drained in"),
        ("group_start_s", "group started in"),
        ("topics_ready_per_s", "topics ready per second"),
    ];
    const COSTS: [(&str, &str); 7] = [
        ("broker_cpu_us_per_record", "broker CPU per record"),
        ("producer_cpu_us_per_record", "producer CPU per record"),
        ("consumer_cpu_us_per_record", "consumer CPU per record"),
        ("records_per_batch", "records per batch"),
        ("bytes_per_batch", "bytes per batch"),
        ("broker_memory_bytes_max", "broker memory, max"),
        ("metadata_us", "metadata of all topics"),
    ];
    let done = [&RATES[..], &COSTS].map(|shown| some_figures(workload, palette, shown)).concat();
    done + &latencies(workload, palette)
}

/// The latencies of all points, a row for each kind.
fn latencies(workload: &WorkloadResult, palette: &Palette) -> String {
    const KINDS: [(&str, &str); 4] = [
        ("acknowledge", "acknowledged"),
        ("end_to_end", "end to end"),
        ("drained", "drained"),
        ("topic_ready", "topic ready"),
    ];
    const COLUMNS: [(&str, &str); 7] = [
        ("mean", "mean"),
        ("p50", "p50"),
        ("p95", "p95"),
        ("p99", "p99"),
        ("p999", "p99.9"),
        ("p9999", "p99.99"),
        ("max", "max"),
    ];
    let rows = many_rows(workload, palette, |point| {
        let figure = |kind: &str, column: &str| {
            let name = format!("{kind}_{column}_us");
            // Below the value, so that all columns have room.
            figure_cell(point, &name).replace(" <small>", "<br><small>")
        };
        let row = |(kind, title): &(&str, &str)| {
            let cells = COLUMNS.map(|(column, _)| figure(kind, column));
            let is_measured = cells.iter().any(|cell| !cell.is_empty());
            is_measured.then(|| [vec![(*title).to_owned()], cells.into()].concat())
        };
        KINDS.iter().filter_map(row).collect()
    });
    if rows.is_empty() {
        return String::new();
    }
    let mut heads = vec!["point", "measured", "latency"];
    heads.extend(COLUMNS.map(|(_, head)| head));
    table(&heads, 3, &rows)
}

/// A figure of a point; grey if it is not quotable.
fn figure_cell(point: &PointResult, name: &str) -> String {
    match cell(name, point.summary.figures.get(name)) {
        figure if figure.is_empty() => batches_unknown(point, name).map(dash).unwrap_or_default(),
        figure if obstacles(point).is_empty() => figure,
        figure => format!("<span class=\"grey\">{figure}</span>"),
    }
}

/// Why the batches of a point with producers are unknown; `None` for other figures.
fn batches_unknown(point: &PointResult, name: &str) -> Option<&'static str> {
    let has_producers = point.summary.figures.contains_key("produced_records_per_s");
    let is_of_batches = ["records_per_batch", "bytes_per_batch"].contains(&name);
    (has_producers && is_of_batches).then(|| {
        let missing = point.driver.why_no_batches();
        missing.unwrap_or("A result of an earlier version does not have the batches")
    })
}

/// A dash, with its reason on hover and for readers of the screen.
fn dash(why: &str) -> String {
    format!("<span class=\"dim\" title=\"{0}\" aria-label=\"{0}\">–</span>", escape(why))
}

fn some_figures(workload: &WorkloadResult, palette: &Palette, of: &[(&str, &str)]) -> String {
    let has = |name: &str| {
        let is_missing = |point: &PointResult| {
            point.driver.why_no_batches().is_some() && batches_unknown(point, name).is_some()
        };
        workload.points.iter().any(|point| point.summary.figures.contains_key(name) || is_missing(point))
    };
    let shown: Vec<&(&str, &str)> = of.iter().filter(|(name, _)| has(name)).collect();
    if shown.is_empty() {
        return String::new();
    }
    let mut heads = vec!["point", "measured"];
    heads.extend(shown.iter().map(|(_, head)| *head));
    let rows =
        rows(workload, palette, |point| shown.iter().map(|(name, _)| figure_cell(point, name)).collect());
    table(&heads, 2, &rows) + &dashes(workload, &shown)
}

/// The reasons of the dashes in a table, each once.
fn dashes(workload: &WorkloadResult, shown: &[&(&str, &str)]) -> String {
    let mut reasons: Vec<&str> = Vec::new();
    for point in &workload.points {
        let missing = shown.iter().filter(|(name, _)| !point.summary.figures.contains_key(*name));
        for why in missing.filter_map(|(name, _)| batches_unknown(point, name)) {
            if !reasons.contains(&why) {
                reasons.push(why);
            }
        }
    }
    reasons.iter().map(|why| format!("<p class=\"dim\">–: {}.</p>", escape(why))).collect()
}

fn cell(name: &str, spread: Option<&Spread>) -> String {
    let Some(spread) = spread else { return String::new() };
    let value = match Figure::named(name) {
        Some(figure) if name.ends_with("_per_s") => figure.text(spread.mean).replace(figure_unit(figure), ""),
        Some(figure) => figure.text(spread.mean).replace("/record", ""),
        None => quantity::number(spread.mean),
    };
    match spread.count {
        0 | 1 => escape(&value),
        _ => format!("{} <small>±&#8239;{}</small>", escape(&value), quantity::percent(spread.variation)),
    }
}

/// The unit, if the column header contains it already.
fn figure_unit(figure: &Figure) -> &'static str {
    match figure.unit {
        FigureUnit::MbPerSecond => " MB/s",
        FigureUnit::MbitPerSecond => " Mbit/s",
        _ => " records/s",
    }
}

/// A row per point; points with the same label are grouped.
fn rows(
    workload: &WorkloadResult,
    palette: &Palette,
    cells: impl Fn(&PointResult) -> Vec<String>,
) -> Vec<Vec<String>> {
    many_rows(workload, palette, |point| vec![cells(point)])
}

/// Some rows per point, in the same order.
fn many_rows(
    workload: &WorkloadResult,
    palette: &Palette,
    of_point: impl Fn(&PointResult) -> Vec<Vec<String>>,
) -> Vec<Vec<String>> {
    let mut labels: Vec<&str> = Vec::new();
    for point in &workload.points {
        if !labels.contains(&point.point.label.as_str()) {
            labels.push(&point.point.label);
        }
    }
    let mut rows = Vec::new();
    for label in labels {
        let mut same: Vec<&PointResult> =
            workload.points.iter().filter(|point| point.point.label == label).collect();
        same.sort_by_key(|point| palette.order(point));
        for point in same {
            for cells in of_point(point) {
                let mut row = vec![escape(label), palette.of_point(point).markup()];
                row.extend(cells);
                rows.push(row);
            }
        }
    }
    rows
}

/// The limit of each point, the reasons, and whether it is quotable.
pub(super) fn verdicts(workload: &WorkloadResult, palette: &Palette) -> String {
    let rows = rows(workload, palette, |point| {
        let obstacles = obstacles(point);
        let quotable = match obstacles.is_empty() {
            true => "<span class=\"good\">✓ quotable</span>".to_owned(),
            false => badge(&obstacles),
        };
        let limit = match point.verdict.limit.as_str() {
            "" => "unknown",
            limit => limit,
        };
        vec![format!("<b>{}</b>", escape(limit)), list(&point.verdict.reasons), quotable]
    });
    table(&["point", "measured", "limited by", "because", "headline"], usize::MAX, &rows)
}

fn list(texts: &[String]) -> String {
    let escaped: Vec<String> = texts.iter().map(|text| escape(text)).collect();
    escaped.join("<br>")
}

/// The evidence, over all repetitions.
pub(super) fn evidence(workload: &WorkloadResult, palette: &Palette) -> String {
    let heads = [
        "point",
        "measured",
        "all agrees",
        "acknowledged",
        "in the log",
        "read back",
        "lost",
        "duplicated",
        "reordered",
        "damaged",
        "replicas complete",
        "in sync, min",
        "on disk",
    ];
    let rows = rows(workload, palette, |point| match point.repetitions.is_empty() {
        true => {
            let mut cells = vec!["<span class=\"dim\">no repetition</span>".to_owned()];
            cells.resize(heads.len() - 2, String::new());
            cells
        }
        false => evidence_cells(point),
    });
    format!(
        "{}<p class=\"dim\">A replica is complete if it ends at the end of its partition's log. Sums are over all \
         repetitions, warm-up included; every repetition is in the JSON of the result, and unless that is condensed, every \
         replica.</p>{}",
        table(&heads, 3, &rows),
        synced(workload, palette)
    )
}

/// Fsync policy per series: usually the same for all points.
fn synced(workload: &WorkloadResult, palette: &Palette) -> String {
    let mut markup = "<ul class=\"listed\">".to_owned();
    for series in palette.series() {
        let mut policies: Vec<&str> = Vec::new();
        for point in workload.points.iter().filter(|point| palette.of_point(point) == series) {
            for repetition in &point.repetitions {
                let policy = repetition.evidence.fsync_policy.as_str();
                if !policies.contains(&policy) {
                    policies.push(policy);
                }
            }
        }
        if !policies.is_empty() {
            markup +=
                &format!("<li>{} synced to disk: {}</li>", series.markup(), escape(&policies.join("; or ")));
        }
    }
    markup + "</ul>"
}

fn evidence_cells(point: &PointResult) -> Vec<String> {
    let all: Vec<&Evidence> = point.repetitions.iter().map(|repetition| &repetition.evidence).collect();
    let sum = |of: fn(&Evidence) -> u64| quantity::count(all.iter().map(|evidence| of(evidence)).sum());
    let checks: Vec<_> = all.iter().filter_map(|evidence| evidence.check.as_ref()).collect();
    let checked = |values: Vec<u64>, fault: bool| -> String {
        let sum: u64 = values.iter().sum();
        match (checks.is_empty(), fault && sum > 0) {
            (true, _) => "<span class=\"dim\">unknown</span>".to_owned(),
            (false, true) => format!("<span class=\"bad\">✗ {}</span>", quantity::count(sum)),
            (false, false) => quantity::count(sum),
        }
    };
    let replicas: Vec<ReplicaCount> = all.iter().map(|evidence| evidence.replicas()).collect();
    let complete: usize = replicas.iter().map(|count| count.complete).sum();
    let whole: usize = replicas.iter().map(|count| count.all).sum();
    let least = all.iter().map(|evidence| evidence.in_sync_replicas_min).min().unwrap_or(0);
    let requested = all.iter().map(|evidence| evidence.replication_factor).max().unwrap_or(0);
    let isr = match least < u32::from(requested) {
        true => format!("<span class=\"bad\">✗ {least} of {requested}</span>"),
        false => format!("{least} of {requested}"),
    };
    let mut faults: Vec<String> = Vec::new();
    for fault in all.iter().flat_map(|evidence| &evidence.faults) {
        if !faults.contains(fault) {
            faults.push(fault.clone());
        }
    }
    vec![
        match faults.is_empty() {
            true => "<span class=\"good\">✓ yes</span>".to_owned(),
            false => format!("<span class=\"bad\">✗ {}</span>", list(&faults)),
        },
        sum(|evidence| evidence.acknowledged),
        sum(|evidence| evidence.in_log),
        read_back(&all),
        checked(checks.iter().map(|check| check.lost).collect(), true),
        checked(checks.iter().map(|check| check.duplicated).collect(), true),
        checked(checks.iter().map(|check| check.reordered).collect(), true),
        checked(checks.iter().map(|check| check.damaged).collect(), true),
        format!("{complete} of {whole}"),
        isr,
        quantity::bytes(all.iter().map(|evidence| evidence.bytes_on_disk as f64).sum()),
    ]
}

/// The share of records read back, and the reason if not all.
fn read_back(all: &[&Evidence]) -> String {
    let read: u64 = all.iter().filter_map(|evidence| evidence.check.as_ref()).map(|check| check.read).sum();
    let mut reasons: Vec<String> = Vec::new();
    for why in all.iter().filter_map(|evidence| evidence.not_read_back.as_ref()) {
        if !reasons.contains(why) {
            reasons.push(why.clone());
        }
    }
    let text = match (read, reasons.is_empty()) {
        (0, false) => "nothing".to_owned(),
        (_, true) => format!("all {}", quantity::count(read)),
        (_, false) => quantity::count(read),
    };
    match reasons.is_empty() {
        true => text,
        false => format!("{text}<br><span class=\"dim\">{}</span>", list(&reasons)),
    }
}

/// Published figures beside the measured ones, without ratios.
pub(super) fn published(workload: &WorkloadResult, palette: &Palette) -> String {
    if workload.workload.published.is_empty() {
        return String::new();
    }
    let measured = palette.series();
    let has_prices = workload.workload.published.iter().any(|published| !published.price.is_empty());
    let heads: Vec<String> = ["point", "figure", "published", "by", "on"]
        .into_iter()
        .chain(has_prices.then_some("price"))
        .map(str::to_owned)
        .collect();
    let heads: Vec<String> =
        heads.into_iter().chain(measured.iter().map(|series| format!("here: {}", series.name))).collect();
    let mut sources: Vec<&str> = Vec::new();
    let rows = workload.workload.published.iter().map(|published| {
        if !sources.contains(&published.source.as_str()) {
            sources.push(&published.source);
        }
        let mut row = vec![
            escape(&published.point),
            escape(title(&published.figure)),
            escape(&value(&published.figure, published.value)),
            escape(&published.system),
            escape(&published.hardware),
        ];
        row.extend(has_prices.then(|| escape(&published.price)));
        row.extend(measured.iter().map(|series| here(workload, published, &series.target, series.driver)));
        row
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    format!(
        "<section class=\"foreign\"><h3>Published figures <span class=\"tag\">other hardware, not comparable</span></h3>\
         <p>Figures that others have published for this workload, on their machines. They show the shape to expect, not who \
         is faster. Source: {}.</p>{}</section>",
        escape(&sources.join("; ")),
        table(&heads, usize::MAX, &rows)
    )
}

/// Published figures say `records_per_s`; ours distinguish carried, produced and, if nothing is produced,
/// consumed.
fn names(figure: &str) -> Vec<String> {
    let prefixes: &[&str] = if figure.ends_with("_us") {
        &["", "acknowledge_", "end_to_end_"]
    } else {
        &["", "carried_", "produced_", "consumed_"]
    };
    prefixes.iter().map(|prefix| format!("{prefix}{figure}")).collect()
}

fn title(figure: &str) -> &str {
    match figure {
        "records_per_s" => "records/s",
        "mb_per_s" => "MB/s",
        "mbit_per_s" => "Mbit/s",
        _ => names(figure).iter().find_map(|name| Figure::named(name)).map_or(figure, |figure| figure.title),
    }
}

fn value(figure: &str, value: f64) -> String {
    match names(figure).iter().find_map(|name| Figure::named(name)) {
        Some(known) => known.text(value),
        None => quantity::number(value),
    }
}

fn here(
    workload: &WorkloadResult,
    published: &crate::workload::PublishedFigure,
    target: &str,
    driver: Driver,
) -> String {
    let point = workload.points.iter().find(|point| {
        point.point.label == published.point && point.target == target && point.driver == driver
    });
    let Some(point) = point else { return "<span class=\"dim\">not run</span>".to_owned() };
    let found = names(&published.figure)
        .into_iter()
        .find_map(|name| point.summary.figures.get(&name).map(|spread| value(&name, spread.mean)));
    match (found, obstacles(point).is_empty()) {
        (Some(value), true) => escape(&value),
        (Some(value), false) => format!("<span class=\"dim\">({})</span>", escape(&value)),
        (None, _) => "<span class=\"dim\">not measured</span>".to_owned(),
    }
}
