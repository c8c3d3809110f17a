//! Files in and out: CSV, patterns, compression, and rolled files.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use thalweg_stream::OnError;
use thalweg_stream::plan::Plan;
use thalweg_stream::runtime::{RunOptions, start};

use super::{Lines, options};

/// Runs a text to its end. Returns the number of bad messages.
fn run(text: &str, on_error: OnError) -> Result<u64, String> {
    let plan = Plan::read(text, None, "s").map_err(|error| error.to_string())?;
    let options = RunOptions { on_error, ..options(Arc::new(Lines::default())) };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut running = start(&plan, &options).map_err(|error| error.to_string())?;
        running.ended().await.map_err(|error| error.to_string())?;
        Ok(running.figures().streams[0].bad)
    })
}

fn written(text: &str) {
    run(text, OnError::Fail).unwrap_or_else(|error| panic!("{text}: {error}"));
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The content of a file in the format of gzip.
fn unzipped(path: &Path) -> String {
    let mut text = String::new();
    let file = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    flate2::read::MultiGzDecoder::new(&file[..]).read_to_string(&mut text).expect("it is whole");
    text
}

fn gzip(text: &str) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    out.write_all(text.as_bytes()).expect("memory");
    out.finish().expect("memory")
}

/// The names of the files in a directory, without `in`.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("it is there");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("it can be read").file_name().into_string().expect("UTF-8"))
        .collect();
    names.retain(|name| !name.starts_with("in"));
    names.sort();
    names
}

#[test]
fn the_records_of_several_files_are_read_with_the_header_line_of_each() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name);
    fs::write(at("in-1.csv"), "\u{feff}id,note\r\n1,\"a, \"\"b\"\"\nc\"\r\n").expect("written");
    fs::write(at("in-2.csv.gz"), [gzip("note,id\nx,2\n"), gzip("y,3")].concat()).expect("written");
    fs::write(at("in-3.csv.zst"), zstd::encode_all(&b"id;more\n4;5\n"[..], 0).expect("memory"))
        .expect("written");
    fs::create_dir(at("in-4.csv")).expect("written");
    let read = |pattern: &str, more: &str| {
        let (input, out) = (at(pattern), at("out"));
        written(&format!(
            "file --path='{}' --mode=csv {more} | file --path={} --mode=replace",
            input.display(),
            out.display()
        ));
        text(&out)
    };
    let objects = "{\"id\":\"1\",\"note\":\"a, \\\"b\\\"\\nc\"}\n{\"note\":\"x\",\"id\":\"2\"}\n{\"note\":\"y\",\"id\":\"3\"}\n";
    assert_eq!(read("in-[12]*", ""), objects);
    assert_eq!(read("in-3*", "--separator=';' --values=typed"), "{\"id\":4,\"more\":5}\n");
    assert_eq!(
        read("in-3*", "--separator=';' --columns=a,b --header=false"),
        "{\"a\":\"id\",\"b\":\"more\"}\n{\"a\":\"4\",\"b\":\"5\"}\n"
    );
    let error = run(&format!("file --path='{}' | null", at("no-*").display()), OnError::Fail);
    assert!(error.expect_err("there is none").contains("no file matches the pattern"));
}

#[test]
fn lines_and_whole_files_are_decompressed_unless_the_bytes_are_wanted() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name).display().to_string();
    let zipped = gzip("one\ntwo");
    fs::write(at("in-1"), &zipped).expect("written");
    fs::write(at("in-2"), "three\n").expect("written");
    written(&format!("file --path='{}' | file --path={}", at("in-*"), at("lines")));
    assert_eq!(text(Path::new(&at("lines"))), "one\ntwo\nthree\n");
    written(&format!(
        "file --path='{}' --mode=whole | file --path={} --delimiter='|'",
        at("in-*"),
        at("whole")
    ));
    assert_eq!(text(Path::new(&at("whole"))), "one\ntwo|three\n|");
    let copy = "--mode=whole --compression=none";
    written(&format!("file --path={} {copy} | file --path={} --delimiter=''", at("in-1"), at("copy")));
    assert_eq!(fs::read(at("copy")).expect("written"), zipped);
    fs::write(at("in-1"), &zipped[..zipped.len() - 9]).expect("written");
    let error = run(&format!("file --path={} | null", at("in-1")), OnError::Fail).expect_err("it is cut");
    assert!(error.contains("Cannot read") && error.contains("in-1"), "{error}");
}

#[test]
fn records_that_break_the_rules_are_bad_messages_with_their_place() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name).display().to_string();
    fs::write(at("in"), b"id,name\n1,a\n2\n3,b,c\n4,\xff\n5,\"x\ny\"\n").expect("written");
    let stream = format!("file --path={} --mode=csv | file --path={}", at("in"), at("out"));
    assert!(run(&stream, OnError::Fail).expect_err("one is bad").contains("line 3: it has 1 fields"));
    fs::remove_file(at("out")).expect("it was made");
    assert_eq!(run(&stream, OnError::DeadLetter(at("letters").into())), Ok(3));
    assert_eq!(
        text(Path::new(&at("out"))),
        "{\"id\":\"1\",\"name\":\"a\"}\n{\"id\":\"5\",\"name\":\"x\\ny\"}\n"
    );
    let letters = text(Path::new(&at("letters")));
    let letters: Vec<serde_json::Value> =
        letters.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let reasons: Vec<_> = letters.iter().map(|letter| letter["reason"].as_str().expect("a reason")).collect();
    assert!(reasons[1].ends_with("in, line 4: it has 3 fields, and there are 2 columns"), "{reasons:?}");
    assert!(reasons[2].ends_with("in, line 5: field 2 is not UTF-8"), "{reasons:?}");
    assert_eq!(letters[1]["value"], "3,b,c\n");
}

#[test]
fn each_rolled_csv_file_has_a_header_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name);
    let orders: String = (0..6).map(|id| format!("{{\"id\":{id},\"note\":\"a,{id}\"}}\n")).collect();
    fs::write(at("in"), format!("{orders}[1]\n")).expect("written");
    let stream = |more: &str| {
        let (input, out) = (at("in"), at("out.csv"));
        format!("file --path={} | file --path={} --format=csv {more}", input.display(), out.display())
    };
    assert_eq!(run(&stream("--rollSize=20"), OnError::Skip), Ok(1));
    let (first, last) = (text(&at("out.1.csv")), text(&at("out.csv")));
    assert_eq!(
        (first.as_str(), last.as_str()),
        ("id,note\n0,\"a,0\"\n1,\"a,1\"\n", "id,note\n4,\"a,4\"\n5,\"a,5\"\n")
    );
    // A file that is continued keeps its columns.
    assert_eq!(run(&stream(""), OnError::Skip), Ok(1));
    assert!(text(&at("out.csv")).starts_with(&format!("{last}0,\"a,0\"\n")), "{}", text(&at("out.csv")));
    let error = run(&stream("--columns=note,id"), OnError::Skip).expect_err("the columns differ");
    assert!(
        error.contains("its header line is id,note, and the columns of the stream are note,id"),
        "{error}"
    );
    fs::remove_file(at("out.csv")).expect("it is there");
    assert_eq!(run(&stream("--columns=note --extra=drop --header=false"), OnError::Skip), Ok(1));
    assert!(text(&at("out.csv")).starts_with("\"a,0\"\n\"a,1\"\n"));
}

#[test]
fn finished_files_are_compressed_and_old_ones_removed() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name);
    let lines: String = (0..10).map(|line| format!("line {line}\n")).collect();
    fs::write(at("in"), &lines).expect("written");
    let stream = |more: &str| {
        let (input, out) = (at("in"), at("out.log"));
        written(&format!("file --path={} | file --path={} {more}", input.display(), out.display()));
    };
    stream("--rollSize=12 --compression=gzip");
    assert_eq!(names(dir.path()), (1..=5).map(|number| format!("out.{number}.log.gz")).collect::<Vec<_>>());
    let all: String = (1..=5).map(|number| unzipped(&at(&format!("out.{number}.log.gz")))).collect();
    assert_eq!(all, lines);
    stream("--rollSize=12 --compression=zstd --filesMax=2");
    assert_eq!(names(dir.path()), ["out.10.log.zst", "out.9.log.zst"]);
    stream("--rollSize=12 --filesMax=1");
    assert_eq!(names(dir.path()), ["out.14.log", "out.log"]);
}

#[test]
fn a_date_in_a_name_is_that_of_the_clock() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("in"), "a\n").expect("written");
    let stream = format!(
        "file --path={} | file --path={}",
        dir.path().join("in").display(),
        dir.path().join("out-%Y-%m-%d.log").display()
    );
    written(&stream);
    let name = names(dir.path()).pop().expect("a file");
    let date = name.strip_prefix("out-").and_then(|name| name.strip_suffix(".log")).expect("a date");
    assert_eq!((date.len(), date.split('-').count()), (10, 3), "{name}");
    // A second file each second.
    let stream = format!(
        "time --fixedDelay=200ms --count=12 | file --path={} --compression=gzip",
        dir.path().join("tick-%H%M%S.log").display()
    );
    written(&stream);
    let ticks: Vec<String> = names(dir.path()).into_iter().filter(|name| name.starts_with("tick-")).collect();
    assert!(ticks.len() >= 2 && ticks.iter().all(|name| name.ends_with(".log.gz")), "{ticks:?}");
    let count: usize = ticks.iter().map(|name| unzipped(&dir.path().join(name)).lines().count()).sum();
    assert_eq!(count, 12);
}
