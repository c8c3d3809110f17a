//! The origin of a result: the commits that it names, and its time.

use serde_json::Value;

/// The origin of a result.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Commits of the measured program. Rows of a result may have different ones.
    pub commits: Vec<String>,
    /// The time, for results without a commit.
    pub time: Option<String>,
}

impl Origin {
    /// Reads a result of the lab, of `scripts/compare-kafka`, or a page.
    pub fn of(path: &str, text: &str) -> Origin {
        let mut origin =
            Origin { commits: Vec::new(), time: day(path).map(|day| format!("{day}T23:59:59Z")) };
        match serde_json::from_str::<Value>(text) {
            Ok(result) => origin.read(&result),
            Err(_) => {
                let lines = text.lines().filter(|line| line.starts_with("- Thalweg:"));
                origin.commits.extend(lines.flat_map(hashes));
            }
        }
        origin.commits.sort();
        origin.commits.dedup();
        origin
    }

    fn read(&mut self, result: &Value) {
        if let Some(time) = result["began_at"].as_str() {
            self.time = Some(time.to_owned());
        }
        let rows = result["rows"].as_array().into_iter().flatten().map(|row| &row["commit"]);
        let named = [&result["Thalweg"], &result["lab_version"]].into_iter().chain(rows);
        self.commits.extend(named.filter_map(Value::as_str).flat_map(hashes));
    }
}

/// Words that are ids of commits.
fn hashes(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let is_hash = |word: &&str| {
        let is_hex = word.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c));
        is_hex && (7..=40).contains(&word.len()) && word.contains(|c: char| c.is_ascii_digit())
    };
    words.filter(is_hash).map(str::to_owned)
}

/// The day at the beginning of a file's name.
fn day(path: &str) -> Option<&str> {
    let day = path.rsplit('/').next()?.get(..10)?;
    let parts: Vec<&str> = day.split('-').collect();
    let is_day = parts.len() == 3 && parts.iter().all(|part| part.chars().all(|c| c.is_ascii_digit()));
    is_day.then_some(day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(commits: &[&str], time: Option<&str>) -> Origin {
        Origin { commits: commits.iter().map(ToString::to_string).collect(), time: time.map(str::to_owned) }
    }

    #[test]
    fn results_name_their_commits() {
        let compared = r#"{"Thalweg": "thalweg 0.1.0, commits 7efcbfd3d75e and 618d289", "rows": [{"commit": "618d289"}, {}]}"#;
        let end = Some("2026-11-22T23:59:59Z");
        assert_eq!(
            Origin::of("docs/results/2026-11-22-a.json", compared),
            origin(&["618d289", "7efcbfd3d75e"], end)
        );
        let page =
            "# A decade of defaced beads\n\n- Thalweg: thalweg 0.1.0, commit e5507e45, release build\n";
        assert_eq!(Origin::of("docs/results/2026-11-22-a.md", page), origin(&["e5507e45"], end));
    }

    #[test]
    fn results_of_the_lab_have_a_time() {
        let lab = r#"{"began_at": "2026-11-22T19:42:06Z", "lab_version": "thalweg 0.1.0"}"#;
        let time = Some("2026-11-22T19:42:06Z");
        assert_eq!(Origin::of("docs/results/2026-11-22-lab.json", lab), origin(&[], time));
        let built = r#"{"began_at": "2026-11-22T19:42:06Z", "lab_version": "thalweg 0.1.0 (dfc02f0)"}"#;
        assert_eq!(Origin::of("docs/results/2026-11-22-lab.json", built), origin(&["dfc02f0"], time));
        assert_eq!(Origin::of("docs/results/README.md", "# Results"), origin(&[], None));
    }
}
