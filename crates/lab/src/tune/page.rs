//! A study as a page and as a table. The page is self-contained and without scripts, like that of a result.

use std::fmt::Write as _;

use super::{BestPoint, Study, TriedValue};
use crate::quantity;
use crate::report::{StepRate, cumulative_bars, escape, one_line, page};
use crate::result::State;
use crate::terminal::Columns;

/// The report of a study, as an HTML page.
pub fn html(study: &Study) -> String {
    let target = study.targets.keys().cloned().collect::<Vec<_>>().join(", ");
    let mut body = format!(
        "<header><p class=\"brand\">Thalweg lab</p><h1>Tuning of {}</h1><p class=\"sub\">{} to {}<br>{} · {} logical \
         processors</p></header><main>",
        escape(&target),
        escape(&study.began_at),
        escape(&study.ended_at),
        escape(&study.machine.cpu),
        study.machine.cpus,
    );
    if let State::Partial { why } = &study.state {
        let _ = write!(body, "<p class=\"banner\"><b>This study is incomplete.</b> {}</p>", escape(why));
    }
    if let Some(note) = warnings(study) {
        let _ = write!(body, "<p class=\"banner\"><b>The study was disturbed.</b> {}</p>", escape(&note));
    }
    if let Some(note) = losses(study) {
        let _ = write!(body, "<p class=\"banner\"><b>Records were lost.</b> {}</p>", escape(&note));
    }
    for (setting, undo) in left_changes(study) {
        let (setting, undo) = (escape(setting), escape(undo));
        let _ = write!(
            body,
            "<p class=\"banner\"><b>{setting} may be changed still.</b> To undo it: <code>{undo}</code></p>"
        );
    }
    let _ = write!(
        body,
        "<section><h2>Records per second, step by step</h2>{}<p>Each bar is the best so far; its whisker is the 95 % \
         interval of the mean. Each setting was tried on top of the best, in turns with it, and kept if the interval \
         of the gain is above zero and the gain above 2 %. The p99 is that of the time to an acknowledgement, under \
         the highest load that the producers reach.</p></section>",
        cumulative_bars("Records per second, step by step", &bars(study))
    );
    body += "<section><h2>Tried settings</h2><div class=\"scroll\" tabindex=\"0\"><table><thead><tr><th>setting</th><th>value</th><th>records/s</th>\
             <th>p99</th><th>gain</th><th>95 % interval</th><th>kept</th><th>limited by</th></tr></thead><tbody>";
    for step in &study.steps {
        for tried in &step.tried {
            let [rate, p99, gain, interval, kept] = cells(tried);
            let _ = write!(
                body,
                "<tr><td>{}</td><td>{}</td><td>{rate}</td><td>{p99}</td><td>{gain}</td><td>{interval}</td><td>{kept}</td><td>{}</td></tr>",
                escape(&step.setting),
                escape(&tried.label),
                escape(&outcome(tried)),
            );
        }
    }
    body += "</tbody></table></div></section><section><h2>Why</h2><ul>";
    for step in &study.steps {
        let note = step.note.as_ref().map(|note| format!(" ({})", escape(note))).unwrap_or_default();
        let _ = write!(body, "<li><b>{}</b>: {}{note}.", escape(&step.setting), escape(&step.why));
        if let Some(best) = &step.best {
            let limit = if best.limit.is_empty() { "an unknown cause" } else { &best.limit };
            let reasons = match best.reasons.is_empty() {
                true => String::new(),
                false => format!(": {}", best.reasons.join("; ")),
            };
            let _ = write!(body, " The best after it was limited by {}{}.", escape(limit), escape(&reasons));
        }
        body += "</li>";
    }
    body += "</ul></section></main>";
    page(&format!("Tuning of {target}"), &body)
}

/// The base, and each kept setting.
fn bars(study: &Study) -> Vec<StepRate> {
    let bar = |label: &str, best: &BestPoint| StepRate {
        label: label.to_owned(),
        records_per_s: best.records_per_s,
        half_interval: best.half_interval_records_per_s,
        is_quotable: best.disturbances.is_empty(),
    };
    let base = study.measured_base.iter().map(|base| bar("base", base));
    let kept = study.steps.iter().filter_map(|step| {
        let kept = step.tried.iter().rfind(|tried| tried.kept)?;
        Some(bar(&kept.label, step.best.as_ref()?))
    });
    base.chain(kept).collect()
}

fn cells(tried: &TriedValue) -> [String; 5] {
    let rate = match tried.records_per_s.len() {
        0 => String::new(),
        count => quantity::number((tried.records_per_s.iter().sum::<f64>() / count as f64).round()),
    };
    let percent = |share: f64| format!("{:+.1} %", share * 100.0);
    let (gain, interval) = match tried.gain {
        Some(gain) if gain.is_noise => (String::new(), "too noisy to tell".to_owned()),
        Some(gain) => (percent(gain.gain), format!("{} to {}", percent(gain.low), percent(gain.high))),
        None => Default::default(),
    };
    [rate, p99(tried.acknowledge_p99_us), gain, interval, if tried.kept { "kept" } else { "" }.to_owned()]
}

fn p99(us: Option<f64>) -> String {
    us.map(quantity::time_us).unwrap_or_default()
}

/// The limit with a value, or why there is none, what was lost, and what disturbed the measurement.
fn outcome(tried: &TriedValue) -> String {
    let outcome = match &tried.failure {
        Some(failure) => format!("failed: {}", one_line(failure)),
        None => tried.limit.clone(),
    };
    let parts = std::iter::once(&outcome).chain(&tried.faults).chain(&tried.disturbances);
    parts.filter(|part| !part.is_empty()).map(String::as_str).collect::<Vec<_>>().join("; ")
}

/// The sentence about losses; `None` without any.
fn losses(study: &Study) -> Option<String> {
    let count = study.losses();
    (count > 0).then(|| {
        format!("In {count} measurements, acknowledged records were not in the log: they have no gain, and nothing was kept by them.")
    })
}

/// Changes by hand that the operator has neither kept for their gain nor undone: setting and command.
fn left_changes(study: &Study) -> impl Iterator<Item = (&str, &str)> {
    let left = study.steps.iter().filter(|step| !step.tried.iter().any(|tried| tried.kept));
    left.filter_map(|step| Some((step.setting.as_str(), step.undo.as_deref()?)))
}

/// How often each kind of disturbance was seen.
fn warnings(study: &Study) -> Option<String> {
    let tried = study.steps.iter().flat_map(|step| &step.tried);
    let values = tried.clone().count() + usize::from(study.measured_base.is_some());
    let base = study.measured_base.iter().filter(|base| !base.disturbances.is_empty()).count();
    let disturbed = tried.filter(|tried| !tried.disturbances.is_empty()).count() + base;
    (disturbed > 0).then(|| {
        format!(
            "In {disturbed} of {values} measurements, others used the processors: their gains may be those of the others. \
             The reasons are with each value."
        )
    })
}

/// The study as text: a line per tried value, and the final point.
pub fn table(study: &Study, columns: Option<usize>) -> String {
    let mut rows = vec![
        ["setting", "value", "records/s", "p99", "gain", "95 % interval", "", "limited by"]
            .map(str::to_owned)
            .to_vec(),
    ];
    if let Some(base) = &study.measured_base {
        let rate = quantity::number(base.records_per_s.round());
        let empty = String::new;
        let limit = std::iter::once(&base.limit).chain(&base.disturbances);
        let limit = limit.map(String::as_str).collect::<Vec<_>>().join("; ");
        let p99 = p99(base.acknowledge_p99_us);
        rows.push(vec!["base".to_owned(), empty(), rate, p99, empty(), empty(), empty(), limit]);
    }
    for step in &study.steps {
        for tried in &step.tried {
            let [rate, p99, gain, interval, kept] = cells(tried);
            let outcome = outcome(tried);
            rows.push(vec![
                step.setting.clone(),
                tried.label.clone(),
                rate,
                p99,
                gain,
                interval,
                kept,
                outcome,
            ]);
        }
    }
    let columns = Columns::of(&rows, columns, |text| text.chars().count());
    let mut text = String::new();
    for line in rows.iter().flat_map(|row| columns.row(row, |_| false)) {
        text += &line;
        text.push('\n');
    }
    if let Some(warning) = warnings(study) {
        let _ = writeln!(text, "\nThe study was disturbed. {warning}");
    }
    if let Some(losses) = losses(study) {
        let _ = writeln!(text, "\nRecords were lost. {losses}");
    }
    for (setting, undo) in left_changes(study) {
        let _ = writeln!(text, "\n{setting} may be changed still. To undo it: {undo}");
    }
    if let State::Partial { why } = &study.state {
        let _ = writeln!(text, "\nThis study is incomplete: {why}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Machine;
    use crate::result::testing::point;
    use crate::tune::decision::gain;
    use crate::tune::{SCHEMA, Step};

    fn study() -> Study {
        let best = |records_per_s| BestPoint {
            records_per_s,
            half_interval_records_per_s: 5.0,
            acknowledge_p99_us: Some(1500.0),
            limit: "one partition".to_owned(),
            reasons: vec!["<reason>".to_owned()],
            disturbances: Vec::new(),
            faults: Vec::new(),
        };
        let (before, with) = (vec![100.0, 101.0, 99.0], vec![150.0, 151.0, 149.0]);
        Study {
            schema: SCHEMA.to_owned(),
            began_at: "2026-11-22T04:00:00Z".to_owned(),
            ended_at: "2026-11-22T04:10:00Z".to_owned(),
            state: State::Complete,
            arguments: Vec::new(),
            seed: 1,
            lab_version: "thalweg 0".to_owned(),
            machine: Machine::default(),
            targets: Default::default(),
            base: point(),
            measured_base: Some(best(100.0)),
            steps: vec![Step {
                setting: "partitions".to_owned(),
                why: "locks".to_owned(),
                note: None,
                undo: None,
                tried: vec![TriedValue {
                    label: "2 partitions".to_owned(),
                    gain: gain(&before, &with),
                    before_records_per_s: before,
                    records_per_s: with,
                    acknowledge_p99_us: Some(2500.0),
                    kept: true,
                    limit: "broker CPU".to_owned(),
                    failure: None,
                    disturbances: Vec::new(),
                    faults: Vec::new(),
                }],
                best: Some(best(150.0)),
            }],
            best: point(),
        }
    }

    #[test]
    fn a_failed_value_has_no_rate_and_an_unknown_limit_no_reasons() {
        let mut study = study();
        let tried = &mut study.steps[0].tried[0];
        (tried.records_per_s, tried.gain, tried.kept) = (Vec::new(), None, false);
        tried.failure = Some("broker-1 died".to_owned());
        let best = study.steps[0].best.as_mut().expect("it is there");
        (best.limit, best.reasons) = (String::new(), Vec::new());
        let page = html(&study);
        assert!(page.contains("<td>2 partitions</td><td></td><td>2.50 ms</td><td></td>"), "{page}");
        assert!(page.contains("was limited by an unknown cause."), "{page}");
        assert!(!table(&study, None).contains("2 partitions  0 "), "{}", table(&study, None));
    }

    #[test]
    fn a_gain_within_the_noise_has_no_figures_and_others_are_named() {
        let mut study = study();
        let tried = &mut study.steps[0].tried[0];
        tried.gain = gain(&[1000.0, 90.0, 400.0], &[100.0, 700.0, 300.0]);
        tried.disturbances = vec!["processes outside the run used 30 % of the processors".to_owned()];
        for text in [html(&study), table(&study, None)] {
            assert!(text.contains("too noisy to tell") && !text.contains(" % to "), "{text}");
            assert!(
                text.contains("broker CPU; processes outside the run used 30 % of the processors"),
                "{text}"
            );
            assert!(text.contains("In 1 of 2 measurements, others used the processors"), "{text}");
        }
    }

    #[test]
    fn losses_and_changes_that_are_not_undone_stand_out() {
        let mut study = study();
        study.steps[0].undo = Some("sysctl -w a=1".to_owned());
        let tried = &mut study.steps[0].tried[0];
        (tried.gain, tried.kept) = (None, false);
        tried.faults = vec!["7 acknowledged records are not in the log".to_owned()];
        tried.failure = Some("broker-1 exited; the end of its log:\n  out of memory".to_owned());
        for text in [html(&study), table(&study, None)] {
            assert!(text.contains("Records were lost.") && text.contains("7 acknowledged records"), "{text}");
            assert!(text.contains("the end of its log: out of memory"), "{text}");
            assert!(
                text.contains("partitions may be changed still.") && text.contains("sysctl -w a=1"),
                "{text}"
            );
        }
        assert_eq!(study.losses(), 1);
        study.steps[0].tried[0].kept = true;
        assert!(!table(&study, None).contains("may be changed still"));
    }

    #[test]
    fn page_and_table_have_each_step() {
        let (page, table) = (html(&study()), table(&study(), None));
        for word in ["2 partitions", "+50.0 %", "2.50 ms", "kept", "broker CPU"] {
            assert!(page.contains(word), "{word}: {page}");
            assert!(table.contains(word), "{word}: {table}");
        }
        assert!(page.contains("&lt;reason&gt;") && !page.contains("<reason>"));
        let text = serde_json::to_string(&study()).expect("JSON");
        assert_eq!(serde_json::from_str::<Study>(&text).expect("the same"), study());
    }
}
