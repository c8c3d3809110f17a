//! Rates, token buckets and the choice of limits, compared with Apache Kafka's own classes on random
//! sequences. Needs Kafka's jars: set `KAFKA_CLASSPATH`, for instance to `/path/to/kafka/libs/*`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use thalweg_security::quota::{
    Average, Enforcement, LimitScope, Limits, MutationQuota, Rate, TokenBucket, Window,
};

mod connections;

/// A small generator, so that each run sees the same sequences.
struct Lots(u64);

impl Lots {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from((self.0 >> 20) % u64::from(bound)).expect("below a u32")
    }
}

/// The lines that Kafka prints for these commands; `None` without Kafka.
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn kafka(program: &str, commands: &str) -> Option<Vec<String>> {
    let Ok(class_path) = std::env::var("KAFKA_CLASSPATH") else {
        eprintln!("skipped: KAFKA_CLASSPATH is not set");
        return None;
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(program);
    let mut java = Command::new("java")
        .args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", &class_path])
        .arg(source)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("java is installed");
    let mut stdin = java.stdin.take().expect("it is piped");
    let commands = commands.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(commands.as_bytes()));
    let output = java.wait_with_output().expect("it runs");
    writer.join().expect("no panic").expect("it reads all commands");
    assert!(output.status.success(), "{}", output.status);
    Some(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

fn compare(commands: &str, ours: &[String]) {
    compare_with("Quotas.java", commands, ours);
}

fn compare_with(program: &str, commands: &str, ours: &[String]) {
    let Some(kafkas) = kafka(program, commands) else { return };
    assert_eq!(kafkas.len(), ours.len());
    for (at, (kafkas, ours)) in kafkas.iter().zip(ours).enumerate() {
        assert_eq!(kafkas, ours, "answer {at}");
    }
}

fn throttle(throttle_ms: Option<i64>) -> String {
    throttle_ms.map_or_else(|| "-".to_owned(), |throttle_ms| throttle_ms.to_string())
}

/// As Java prints them: a sign more than Rust's.
fn bits(value: f64) -> String {
    value.to_bits().cast_signed().to_string()
}

/// Steps of time: mostly short, sometimes a sample, rarely more than the window.
fn step(lots: &mut Lots, window: Window) -> i64 {
    let sample = u32::try_from(window.sample_ms).expect("short");
    let samples = u32::try_from(window.samples).expect("few");
    i64::from(match lots.below(20) {
        0..=3 => 0,
        4..=13 => lots.below(sample / 4 + 1),
        14..=17 => lots.below(2 * sample),
        18 => lots.below(sample * samples),
        _ => sample * samples + lots.below(3 * sample),
    })
}

fn window(lots: &mut Lots) -> Window {
    let sample_ms = [1000, 1000, 2000, 30_000, 100][lots.below(5) as usize];
    Window { samples: [11, 11, 1, 2, 5][lots.below(5) as usize], sample_ms }
}

#[test]
fn rates_are_kafkas() {
    let (mut lots, mut commands, mut ours) = (Lots(0x1234_5678_9abc_def1), String::new(), Vec::new());
    for _ in 0..300 {
        let window = window(&mut lots);
        let limit = f64::from(1 + lots.below(100_000)) / 7.0;
        writeln!(commands, "rate {} {} {limit}", window.samples, window.sample_ms).expect("to memory");
        let (mut rate, mut now_ms) = (Rate::new(window), 1_000_000 + i64::from(lots.below(1_000_000)));
        for _ in 0..300 {
            now_ms += step(&mut lots, window);
            if lots.below(4) == 0 {
                writeln!(commands, "measure {now_ms}").expect("to memory");
                ours.push(bits(rate.per_second(now_ms)));
            } else {
                let value =
                    f64::from(lots.below(200_000)) / 3.0 - if lots.below(10) == 0 { 50_000.0 } else { 0.0 };
                writeln!(commands, "record {value} {now_ms}").expect("to memory");
                rate.record(value, now_ms);
                ours.push(throttle(rate.throttle_ms(limit, now_ms)));
            }
        }
    }
    assert!(ours.iter().filter(|answer| *answer != "-").count() > 10_000, "limits were exceeded");
    compare(&commands, &ours);
}

#[test]
fn averages_are_kafkas() {
    let (mut lots, mut commands, mut ours) = (Lots(0x1357_9bdf_0246_8ace), String::new(), Vec::new());
    for _ in 0..100 {
        let window = window(&mut lots);
        writeln!(commands, "average {} {}", window.samples, window.sample_ms).expect("to memory");
        let (mut average, mut now_ms) = (Average::new(window), 1_000_000 + i64::from(lots.below(1_000_000)));
        for _ in 0..200 {
            now_ms += step(&mut lots, window);
            let value = f64::from(lots.below(100_000)) / 3.0;
            writeln!(commands, "add {value} {now_ms}").expect("to memory");
            average.record(value, now_ms);
            ours.push(bits(average.get(now_ms)));
        }
    }
    compare(&commands, &ours);
}

#[test]
fn token_buckets_are_kafkas() {
    let (mut lots, mut commands, mut ours) = (Lots(0xfeed_beef_1234_5677), String::new(), Vec::new());
    for _ in 0..300 {
        let window = window(&mut lots);
        let limit = f64::from(1 + lots.below(1000)) / 7.0;
        writeln!(commands, "bucket {} {} {limit}", window.samples, window.sample_ms).expect("to memory");
        // Kafka's begins empty at the epoch; ours is full whenever it begins.
        let (mut bucket, mut now_ms) =
            (TokenBucket::new(window), 1_700_000_000_000 + i64::from(lots.below(1000)));
        for _ in 0..300 {
            now_ms += step(&mut lots, window);
            if lots.below(4) == 0 {
                writeln!(commands, "measure {now_ms}").expect("to memory");
                ours.push(bits(bucket.tokens(limit, now_ms)));
            } else {
                let tokens = f64::from(lots.below(500));
                writeln!(commands, "record {tokens} {now_ms}").expect("to memory");
                bucket.take(tokens, limit, now_ms);
                ours.push(throttle(bucket.throttle_ms(limit, now_ms)));
            }
        }
    }
    assert!(ours.iter().filter(|answer| *answer != "-").count() > 10_000, "limits were exceeded");
    compare(&commands, &ours);
}

#[test]
fn changes_are_refused_and_slowed_down_as_kafka_does() {
    let (mut lots, mut commands, mut ours) = (Lots(0x5eed_0000_1234_5671), String::new(), Vec::new());
    for _ in 0..300 {
        let window = window(&mut lots);
        let limit = f64::from(1 + lots.below(1000)) / 7.0;
        writeln!(commands, "bucket {} {} {limit}", window.samples, window.sample_ms).expect("to memory");
        let (mut bucket, mut now_ms) =
            (TokenBucket::new(window), 1_700_000_000_000 + i64::from(lots.below(1000)));
        for _ in 0..100 {
            now_ms += step(&mut lots, window);
            let (word, enforcement) = match lots.below(3) {
                0 => ("permissive", Enforcement::Permissive),
                _ => ("strict", Enforcement::Strict),
            };
            writeln!(commands, "request {word} {now_ms}").expect("to memory");
            let mut quota = MutationQuota::limited(bucket.clone(), limit, enforcement, now_ms);
            for _ in 0..lots.below(5) {
                let partitions = lots.below(500);
                writeln!(commands, "take {partitions}").expect("to memory");
                let outcome = quota.take(partitions as usize).map_or("refused", |()| "made");
                ours.push(format!("{outcome} {}", quota.throttle_ms()));
            }
            quota.spend(&mut bucket, now_ms);
        }
    }
    assert!(
        ours.iter().filter(|answer| answer.starts_with("refused")).count() > 1_000,
        "limits were exceeded"
    );
    compare(&commands, &ours);
}

#[test]
fn limits_are_chosen_as_kafka_does() {
    let (mut lots, mut commands, mut ours) = (Lots(0x0dd_ba11), String::new(), Vec::new());
    let (users, clients) = (["ann", "bob", "eve"], ["app", "batch", "web"]);
    let name = |names: [&'static str; 3], lots: &mut Lots| names[lots.below(3) as usize];
    for _ in 0..300 {
        commands.push_str("limits\n");
        let mut limits = Limits::default();
        for limit in 1..=lots.below(8) {
            let mut part = |names| match lots.below(4) {
                0 => None,
                1 => Some(None),
                _ => Some(Some(name(names, &mut lots))),
            };
            let (user, client_id) = (part(users), part(clients));
            if user.is_none() && client_id.is_none() {
                continue;
            }
            let word =
                |part: Option<Option<&'static str>>| part.map_or("*", |name| name.unwrap_or("<default>"));
            writeln!(commands, "set {} {} {limit}", word(user), word(client_id)).expect("to memory");
            limits.set(user, client_id, f64::from(limit));
        }
        for (user, client_id) in users.iter().flat_map(|user| clients.map(|client_id| (*user, client_id))) {
            writeln!(commands, "resolve {user} {client_id}").expect("to memory");
            ours.push(limits.resolve(user, client_id).map_or_else(
                || "-".to_owned(),
                |limit| {
                    let shared_by = match limit.shared_by {
                        LimitScope::User => "user *",
                        LimitScope::ClientId => "* client",
                        LimitScope::UserAndClientId => "user client",
                    };
                    format!("{:.1} {shared_by}", limit.per_second)
                },
            ));
        }
    }
    compare(&commands, &ours);
}
