use thalweg_lab::live::BrokerKind;
use thalweg_lab::result::{DeviceRates, StorageChain};
use unicode_width::UnicodeWidthStr;

use super::*;

fn used() -> MachineUse {
    let device = |name: &str, busy: f64| DeviceUse {
        name: name.to_owned(),
        label: None,
        mean: DeviceRates {
            reads_per_s: 1234.5,
            writes_per_s: 98_765.4,
            read_kb_per_s: 123_456.0,
            written_kb_per_s: 1_234_567.0,
            write_await_ms: 12.3,
            read_await_ms: 0.45,
            queue_length: 31.9,
            write_size_kb: 128.0,
            flushes_per_s: Some(99.0),
            flush_await_ms: Some(4.0),
            busy,
            ..DeviceRates::default()
        },
        peak: DeviceRates::default(),
    };
    let thread = |name: &str, user_s| ThreadUse {
        name: name.to_owned(),
        threads: 8,
        user_s,
        busiest: 0.5,
        voluntary_switches: 2_000,
        run_queue_s: Some(0.1),
        ..ThreadUse::default()
    };
    let packets = |packets| Some(PacketUse { packets, dropped: 3, ..PacketUse::default() });
    let chain = StorageChain {
        directory: "/var/lib/kafka".to_owned(),
        filesystem: "ext4".to_owned(),
        layers: vec![vec!["dm-0".to_owned()], vec!["nvme0n1".to_owned()]],
    };
    MachineUse {
        length_s: 2.0,
        cpus: 16,
        host: HostUse {
            cpu_busy: 0.25,
            devices: vec![device("nvme0n1", 0.97), device("dm-0", 0.98)],
            interfaces: vec![InterfaceUse {
                name: "enp129s0f0np0".to_owned(),
                received_bytes: 3_000_000_000,
                sent_bytes: 2_000_000,
                received: packets(2_000_000),
                sent: packets(0),
                speed_mbit_per_s: Some(25_000),
                sent_limit_bit_per_s: None,
            }],
            ..HostUse::default()
        },
        brokers: vec![BrokerUse {
            pid: 4_194_303,
            kind: BrokerKind::ApacheKafka,
            node: Some((1, "c".to_owned())),
            cpus: Some(3.5),
            memory_bytes: 5 << 30,
            threads: vec![thread("data-plane-kaf", 3.0), thread("kafka-network-t", 9.0)],
            storage: vec![chain],
            missing: Vec::new(),
        }],
        missing: Vec::new(),
    }
}

#[test]
fn a_machine_fits_eighty_columns() {
    let room = Room { width: Some(80), height: Some(24), rows: None };
    let lines = lines(Some(&used()), &[], room);
    let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
    assert!(lines.iter().all(|line| line.text.width() <= 80) && lines.len() <= 24, "{texts:#?}");
    let find = |start: &str| {
        texts.iter().find(|text| text.trim_start().starts_with(start)).copied().unwrap_or_default()
    };
    assert!(find("Data of kafka 1").ends_with("/var/lib/kafka on dm-0 → nvme0n1"), "{texts:#?}");
    let header = find("DEVICE");
    for column in ["r/s", "w/s", "rkB/s", "wkB/s", "r_await", "w_await", "aqu-sz", "%util"] {
        assert!(header.split_whitespace().any(|one| one == column), "{column}: {texts:#?}");
    }
    let devices: Vec<&str> = texts
        .iter()
        .copied()
        .filter(|text| text.starts_with("dm-0") || text.starts_with("nvme0n1"))
        .collect();
    assert!(devices[0].starts_with("dm-0") && devices[0].ends_with(" 98"), "the busiest first: {texts:#?}");
    let threads = texts.iter().position(|text| text.contains("THREADS")).expect("a table");
    assert!(texts[threads + 1].contains("kafka-network-t"), "the hottest first: {texts:#?}");
    assert!(find("enp129s0f0np0").contains(" 1500 "), "{texts:#?}");
}

#[test]
fn processors_without_proc_are_unknown() {
    let mut used = used();
    used.host = HostUse::default();
    assert_eq!(to_json(&used)["cpu_busy"], Value::Null);
    let room = Room { width: None, height: None, rows: None };
    let lines = lines(Some(&used), &[], room);
    assert!(lines[0].text.contains("processors - busy"), "{lines:?}");
}

#[test]
fn sizes_of_no_packets_and_no_requests_are_dashes() {
    let room = Room { width: None, height: None, rows: None };
    let lines = lines(Some(&used()), &[], room);
    let find = |start: &str| {
        let found = lines.iter().find(|line| line.text.starts_with(start));
        found.map(|line| line.text.split_whitespace().collect::<Vec<_>>()).expect("a line")
    };
    let link = find("enp129s0f0np0");
    assert_eq!(link[link.len() - 2..], ["-", "3"], "{link:?}");
    let json = to_json(&used());
    assert_eq!(json["brokers"][0]["threads"][1]["cpus"], 4.5);
    assert_eq!(json["interfaces"][0]["received"]["packets_per_s"], 1_000_000.0);
    assert_eq!(json["devices"][0]["rates"]["busy"], 0.98);
    let unknown = super::lines(None, &[], room);
    assert!(unknown[0].text.contains("second sample"), "{unknown:?}");
}
