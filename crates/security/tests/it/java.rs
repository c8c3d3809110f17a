//! Java, asked by a program of one file in this folder.

use std::path::Path;
use std::process::Command;

/// What a program answers to each line; None without Kafka's jars.
pub fn answers(program: &str, lines: &[String]) -> Option<Vec<String>> {
    let Some(jars) = std::env::var("KAFKA_CLASSPATH").ok().filter(|jars| !jars.is_empty()) else {
        crate::skipped(&format!(
            "{program} against Java: export KAFKA_CLASSPATH=\"$(compat/kafka-jars/fetch)\""
        ));
        return None;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let (input, output) = (dir.path().join("questions"), dir.path().join("answers"));
    std::fs::write(&input, lines.join("\n")).expect("written");
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(program);
    let status = Command::new("java")
        .args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"])
        .arg(jars)
        .arg(program)
        .args([&input, &output])
        .status();
    assert!(status.expect("java runs").success());
    let answers = std::fs::read_to_string(output).expect("answers");
    Some(answers.lines().map(|line| String::from_utf8_lossy(&unhex(line)).into_owned()).collect())
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let pair = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal");
    (0..text.len()).step_by(2).map(pair).collect()
}
