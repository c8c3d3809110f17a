//! Suggestions for misspelt names.

/// The closest of the names, if close enough.
pub fn closest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wrong = wrong.to_lowercase();
    let allowed = (wrong.chars().count() / 3).clamp(1, 3);
    let near = names.into_iter().map(|name| (distance(&wrong, &name.to_lowercase()), name));
    let best = near.min_by_key(|(distance, _)| *distance)?;
    (best.0 <= allowed).then_some(best.1)
}

/// The edit distance: letters inserted, deleted, replaced or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut next = vec![i];
        for j in 1..=b.len() {
            let changed = row[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = changed.min(row[j] + 1).min(next[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_mistakes_are_recognised_and_other_words_are_not() {
        let names = ["filter", "file", "transform", "throughput", "messageSize"];
        for (wrong, meant) in [
            ("fliter", Some("filter")),
            ("Filter", Some("filter")),
            ("files", Some("file")),
            ("throughputs", Some("throughput")),
            ("messagesize", Some("messageSize")),
            ("mesageSzie", Some("messageSize")),
            ("x", None),
            ("jdbc", None),
            ("", None),
        ] {
            assert_eq!(closest(wrong, names), meant, "{wrong}");
        }
    }
}
