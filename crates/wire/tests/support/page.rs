//! Pages of `docs/` that are written from the code.

/// Asserts that a page of `docs/` is up to date. With UPDATE_DOCS=1 it is updated.
pub fn assert_is_fresh(name: &str, page: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, page).expect("docs/ can be written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page, "docs/{name} is stale: run this test with UPDATE_DOCS=1");
}
