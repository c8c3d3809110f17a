//! The page of a result.

use thalweg_lab::report;

use crate::fixture;

#[test]
fn pages_for_the_eye() {
    // to look at
    let dir = std::path::Path::new("/tmp/team/shots");
    std::fs::create_dir_all(dir).unwrap();
    std::fs::write(dir.join("report.html"), report::html(&fixture::run(7))).unwrap();
    std::fs::write(dir.join("hostile.html"), report::html(&fixture::hostile(7))).unwrap();
    let run = fixture::run(7);
    std::fs::write(dir.join("table.txt"), thalweg_lab::terminal::table(&run, false)).unwrap();
    let other = fixture::run(8);
    let c = thalweg_lab::result::compare(&run, &other, &thalweg_lab::result::Pairing::SameTarget).unwrap();
    std::fs::write(dir.join("compare.txt"), thalweg_lab::terminal::comparison(&c, false)).unwrap();
}
