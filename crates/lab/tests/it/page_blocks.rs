//! Generated blocks of pages: the text between a mark with words and the mark of the end.

use std::path::Path;
use std::sync::Mutex;

/// Held while pages are read and rewritten: a page may have blocks of two tests.
pub static PAGES_LOCK: Mutex<()> = Mutex::new(());

/// The page with every block regenerated from the words of its mark, and the number of blocks.
pub fn regenerated(page: &str, begin: &str, end: &str, block: impl Fn(&str) -> String) -> (String, usize) {
    let (mut whole, mut rest, mut blocks) = (String::new(), page, 0);
    while let Some((before, from)) = rest.split_once(begin) {
        let (words, from) = from.split_once(" -->\n").expect("the mark ends its line");
        let (_, after) = from.split_once(end).expect("the block has an end");
        whole += &format!("{before}{begin}{words} -->\n{}{end}", block(words));
        (rest, blocks) = (after, blocks + 1);
    }
    (whole + rest, blocks)
}

/// Checks that a file has this text; with UPDATE_DOCS=1, writes it.
pub fn assert_fresh(path: &Path, fresh: &str) {
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, fresh).expect("it can be written");
    } else {
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        assert!(kept == fresh, "{} is stale: run this test with UPDATE_DOCS=1", path.display());
    }
}
