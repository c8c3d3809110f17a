//! A condensed result says in reports and comparisons what the whole result says.

use thalweg_lab::report::{condensed, html, markdown};
use thalweg_lab::result::{Pairing, RunResult, compare, read, to_json, write};

use crate::fixture;

fn both() -> (RunResult, RunResult) {
    let whole = fixture::run(7);
    let small = condensed(whole.clone()).expect("its histograms are readable");
    (whole, small)
}

/// A page without the charts over time, whose lines move by the precision of samples, which is finer than a
/// pixel.
fn steady(page: &str) -> String {
    let mut parts = page.split("<summary>Over time: ");
    let before = parts.next().unwrap_or_default().to_owned();
    parts.fold(before, |steady, chart| steady + chart.split_once("</details>").expect("it is folded").1)
}

#[test]
fn its_page_and_tables_are_the_same() {
    let (whole, small) = both();
    assert_eq!(markdown(&small), markdown(&whole));
    assert!(steady(&html(&small)) == steady(&html(&whole)));
    let charts = |run: &RunResult| html(run).matches("<svg").count();
    assert_eq!(charts(&small), charts(&whole));
}

#[test]
fn it_compares_like_the_whole() {
    let (whole, small) = both();
    let targets = Pairing::Targets { a: "embedded".to_owned(), b: "apache-kafka".to_owned() };
    for pairing in [targets, Pairing::SameTarget] {
        let wanted = compare(&whole, &whole, &pairing).expect("comparable");
        assert!(compare(&small, &whole, &pairing).expect("comparable") == wanted);
        assert!(compare(&small, &small, &pairing).expect("comparable") == wanted);
    }
}

#[test]
fn its_file_is_small_and_comes_back_as_it_was_written() {
    let (whole, small) = both();
    let bytes = |run: &RunResult| to_json(run).expect("plain data").len();
    assert!(bytes(&small) * 3 < bytes(&whole), "{} of {}", bytes(&small), bytes(&whole));
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("result.json");
    write(&path, &small).expect("written");
    assert!(read(&path).expect("readable") == small);
    assert!(condensed(small.clone()).expect("readable histograms") == small);
}
