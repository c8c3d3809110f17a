//! Names of files: with the date, as in `orders-%Y-%m-%d.csv`, and with the number of a rolled file.

use std::path::{Path, PathBuf};

use chrono::{Local, TimeZone};
use regex::Regex;

use crate::disk::Compression;

/// The directives of dates in names, and the patterns of their texts.
const DIRECTIVES: [(char, &str); 8] = [
    ('Y', r"\d{4}"),
    ('m', r"\d{2}"),
    ('d', r"\d{2}"),
    ('j', r"\d{3}"),
    ('F', r"\d{4}-\d{2}-\d{2}"),
    ('H', r"\d{2}"),
    ('M', r"\d{2}"),
    ('S', r"\d{2}"),
];

/// The name of a file, perhaps with a date.
#[derive(Clone, Debug)]
pub struct FileName {
    directory: PathBuf,
    /// The name without the ending, and the ending with its dot; both may have directives.
    stem: String,
    ending: String,
    is_dated: bool,
}

impl FileName {
    /// Reads a path. Returns the reason why it is invalid.
    pub fn of(path: &str) -> Result<FileName, String> {
        let path = Path::new(path);
        let directory = path.parent().map(Path::to_owned).unwrap_or_default();
        if directory.to_string_lossy().contains('%') {
            return Err("a date can be in the name of the file, not in that of a directory".to_owned());
        }
        let (stem, ending) = parts(path);
        let is_dated = [&stem, &ending].iter().any(|part| part.replace("%%", "").contains('%'));
        let name = FileName { directory, stem, ending, is_dated };
        for part in [&name.stem, &name.ending] {
            let mut letters = part.chars();
            while let Some(letter) = letters.next() {
                if letter != '%' {
                    continue;
                }
                let directive = letters.next();
                if !directive
                    .is_some_and(|next| next == '%' || DIRECTIVES.iter().any(|(known, _)| *known == next))
                {
                    let shown = directive.map(String::from).unwrap_or_default();
                    return Err(format!("%{shown} is no date"));
                }
            }
        }
        Ok(name)
    }

    /// True if the name changes with time.
    pub fn is_dated(&self) -> bool {
        self.is_dated
    }

    /// The file at a time, in milliseconds since 1970, by the local clock.
    pub fn at(&self, time_ms: i64) -> PathBuf {
        self.directory.join(format!("{}{}", dated(&self.stem, time_ms), dated(&self.ending, time_ms)))
    }

    /// A rolled file: `orders.log` with 2 is `orders.2.log`.
    pub fn numbered(current: &Path, number: u64) -> PathBuf {
        let (stem, ending) = parts(current);
        current.with_file_name(format!("{stem}.{number}{ending}"))
    }

    /// The next unused number of a rolled file.
    pub fn next_number(current: &Path) -> u64 {
        let (stem, ending) = parts(current);
        let (stem, ending) = (regex::escape(&stem), regex::escape(&ending));
        let number =
            |name: &str, pattern: &Regex| pattern.captures(name)?.get(1)?.as_str().parse::<u64>().ok();
        let Ok(pattern) = Regex::new(&format!(r"^{stem}\.(\d+){ending}(?:\.gz|\.zst)?$")) else { return 1 };
        let numbers = entries(current).into_iter().filter_map(|name| number(&name, &pattern));
        numbers.max().unwrap_or(0).saturating_add(1)
    }

    /// The finished files: all that have a date or a number, but not the current one.
    pub fn finished(&self, current: &Path) -> Vec<PathBuf> {
        let (stem, ending) = (pattern(&self.stem), pattern(&self.ending));
        let number = if self.is_dated() { r"(?:\.\d+)?" } else { r"\.\d+" };
        let Ok(pattern) = Regex::new(&format!(r"^{stem}{number}{ending}(?:\.gz|\.zst)?$")) else {
            return Vec::new();
        };
        let names = entries(current).into_iter().filter(|name| pattern.is_match(name));
        names.map(|name| current.with_file_name(name)).filter(|path| path != current).collect()
    }
}

/// The parts of a file's name: before its ending, and the ending with its dot.
fn parts(path: &Path) -> (String, String) {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let ending = path.extension().map(|ending| format!(".{}", ending.to_string_lossy()));
    (stem, ending.unwrap_or_default())
}

/// The names in the directory of a file.
fn entries(file: &Path) -> Vec<String> {
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

fn dated(part: &str, time_ms: i64) -> String {
    if !part.contains('%') {
        return part.to_owned();
    }
    let time = Local.timestamp_millis_opt(time_ms).earliest().unwrap_or_default();
    time.format(part).to_string()
}

/// The regular expression of a part of a name.
fn pattern(part: &str) -> String {
    let mut out = String::new();
    let mut letters = part.chars();
    while let Some(letter) = letters.next() {
        let directive = if letter == '%' { letters.next() } else { None };
        match DIRECTIVES.iter().find(|(known, _)| Some(*known) == directive) {
            Some((_, digits)) => out.push_str(digits),
            None => out.push_str(&regex::escape(&letter.to_string())),
        }
    }
    out
}

/// The numbers in a name, such as those of its date and its own: the order of files of the same age.
pub fn numbers(path: &Path) -> Vec<u64> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let digits = name.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    digits.map(|digits| digits.parse().unwrap_or(u64::MAX)).collect()
}

/// True if no file has this name, compressed or not.
pub fn is_free(path: &Path) -> std::io::Result<bool> {
    Ok(!path.try_exists()?
        && !Compression::Gzip.name(path).try_exists()?
        && !Compression::Zstd.name(path).try_exists()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rolled_file_has_a_number_before_its_ending() {
        let numbered = |path: &str, number| FileName::numbered(Path::new(path), number).display().to_string();
        assert_eq!(numbered("a/orders.log", 2), "a/orders.2.log");
        assert_eq!(numbered("orders", 1), "orders.1");
    }

    #[test]
    fn a_name_has_the_date_of_its_time() {
        let name = FileName::of("a/orders-%F-%H%%.csv").expect("a name");
        let time = chrono::NaiveDate::from_ymd_opt(2026, 1, 31).and_then(|day| day.and_hms_opt(7, 5, 9));
        let time_ms =
            Local.from_local_datetime(&time.expect("a time")).earliest().expect("no change of clocks");
        let shown = name.at(time_ms.timestamp_millis()).display().to_string();
        assert_eq!((shown.as_str(), name.is_dated()), ("a/orders-2026-01-31-07%.csv", true));
        assert!(!FileName::of("100%%.csv").expect("a name").is_dated());
        for (wrong, reason) in
            [("a-%q", "%q is no date"), ("a%", "% is no date"), ("%Y/a", "not in that of a directory")]
        {
            let error = FileName::of(wrong).expect_err(wrong);
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn finished_files_are_known_by_their_names() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name);
        let names = [
            "o.csv",
            "o.1.csv",
            "o.7.csv.gz",
            "o.x.csv",
            "o.1.csv.gz.part",
            "p.1.csv",
            "o-2026-01-31.csv.zst",
            "o-2026-01-31.2.csv",
            "o-2026-02-01.csv",
            "o-2026-1-1.csv",
        ];
        for name in names {
            std::fs::write(path(name), "").expect("it can be written");
        }
        let finished = |pattern: &str, current: &str| {
            let name = FileName::of(&path(pattern).display().to_string()).expect("a name");
            let mut found: Vec<_> = name.finished(&path(current)).into_iter().collect();
            found.sort();
            let names =
                found.iter().map(|path| path.file_name().expect("a name").to_string_lossy().into_owned());
            (names.collect::<Vec<_>>().join(" "), FileName::next_number(&path(current)))
        };
        assert_eq!(finished("o.csv", "o.csv"), ("o.1.csv o.7.csv.gz".to_owned(), 8));
        let dated = ("o-2026-01-31.2.csv o-2026-01-31.csv.zst".to_owned(), 1);
        assert_eq!(finished("o-%Y-%m-%d.csv", "o-2026-02-01.csv"), dated);
    }
}
