//! Searches across entries on disk and in memory.

use super::*;
use crate::testing::TempDir;

fn entry(index: u32) -> OffsetEntry {
    OffsetEntry { relative_offset: index * 10 + 9, position: index * 100 }
}

#[test]
fn entries_are_found_on_disk_and_in_memory() {
    let dir = TempDir::new();
    let (disk, path) = (Disk::real(), dir.path().join("0.index"));
    for count in [0, 1, 5, 511, 512, 513, 2000] {
        disk.remove(&path).expect("removes");
        let mut index = Index::new_empty();
        for number in 0..count {
            index.push(&disk, || path.clone(), entry(number));
        }
        assert_eq!(index.count(&disk, &path).expect("counts"), count as usize);
        for target in [0, 8, 9, 10, 19, 5000, 5119, 5120, 19999, 20000] {
            let found =
                index.last_where(&disk, &path, |entry| entry.relative_offset <= target).expect("searches");
            let wanted = (0..count).map(entry).rfind(|entry| entry.relative_offset <= target);
            assert_eq!(found, wanted, "{count} entries, target {target}");
        }
    }
}

#[test]
fn a_reopened_index_has_what_was_written() {
    let dir = TempDir::new();
    let (disk, path) = (Disk::real(), dir.path().join("0.index"));
    let mut index = Index::new_empty();
    for number in 0..700 {
        index.push(&disk, || path.clone(), entry(number));
    }
    index.write_pending(&disk, &path).expect("syncs");
    let mut index = Index::<OffsetEntry>::unopened();
    assert_eq!(index.last(&disk, &path).expect("reads"), Some(entry(699)));
    index.truncate(&disk, &path, 3).expect("truncates");
    index.push(&disk, || path.clone(), entry(7));
    assert_eq!(index.count(&disk, &path).expect("counts"), 4);
    assert_eq!(index.last(&disk, &path).expect("reads"), Some(entry(7)));
    index.truncate(&disk, &path, 3).expect("truncates");
    assert_eq!(index.last(&disk, &path).expect("reads"), Some(entry(2)));
}
