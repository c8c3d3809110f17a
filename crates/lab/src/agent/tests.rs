//! Agents in this process, over loopback and a slow path.

use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{AgentOptions, Agents, AgentsOptions, Insecure, Placement, Security, listen};

const NAMES: (&str, &str) = ("--certificates", "--insecure");
/// The shift of the agent's clock.
const SHIFT_US: i64 = 50_000;
/// The delay of a slow path, one way.
const DELAY: Duration = Duration::from_millis(5);

fn plain() -> Security {
    Security::new(None, Some(Insecure::Loopback), NAMES).expect("asked for")
}

/// An agent whose clock is ahead.
async fn agent(security: Security) -> String {
    agent_of(security, false).await
}

async fn agent_of(security: Security, watch_only: bool) -> String {
    let options = AgentOptions {
        listen: "127.0.0.1:0".to_owned(),
        security,
        binary: PathBuf::from("/nowhere/thalweg"),
        version: "a version".to_owned(),
        data_dirs: Vec::new(),
        watch_only,
        boot_id: None,
        clock_shift_us: SHIFT_US,
    };
    let listening = listen(options).await.expect("a port");
    let address = listening.address().to_string();
    tokio::spawn(listening.serve());
    address
}

async fn connect(address: String, security: Security) -> Agents {
    let (placement, version) = (Placement::Both, "a version".to_owned());
    let options = AgentsOptions { addresses: vec![address], security, placement, version };
    Agents::connect(options).await.expect("an agent of this version")
}

/// A proxy that delays the way to an agent, but not the way back.
async fn slow(agent: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    tokio::spawn(async move {
        while let Ok((lab, _)) = listener.accept().await {
            let agent = TcpStream::connect(&agent).await.expect("it listens");
            let (mut from_lab, mut to_lab) = lab.into_split();
            let (mut from_agent, mut to_agent) = agent.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_agent, &mut to_lab).await });
            tokio::spawn(async move {
                let mut bytes = vec![0; 64 << 10];
                while let Ok(count @ 1..) = from_lab.read(&mut bytes).await {
                    tokio::time::sleep(DELAY).await;
                    to_agent.write_all(&bytes[..count]).await.expect("it takes all");
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn the_offset_of_a_clock_is_within_its_uncertainty_on_an_uneven_path() {
    let agents = connect(slow(agent(plain()).await).await, plain()).await;
    let clock = agents.clock(0).await.expect("it answers");
    let error_us = clock.offset_us.abs_diff(SHIFT_US);
    // The delay of one way looks like half of it in the offset.
    assert!(error_us <= clock.uncertainty_us && clock.uncertainty_us >= 2_500, "{clock:?}");
    let path = agents.infos()[0].path.expect("it was measured");
    assert!(path.round_trip_us >= 5_000 && path.received_mbit_per_s > 0.0, "{path:?}");
}

#[tokio::test]
async fn certificates_carry_facts_and_clock() {
    let dir = tempfile::tempdir().expect("a directory");
    super::make_certificates(dir.path()).expect("made");
    let secured = || Security::new(Some(dir.path().to_owned()), None, NAMES).expect("certificates");
    let agents = connect(agent(secured()).await, secured()).await;
    let clock = agents.clock(0).await.expect("it answers");
    assert!(clock.offset_us.abs_diff(SHIFT_US) <= clock.uncertainty_us, "{clock:?}");
    let info = &agents.infos()[0];
    assert!(info.machine.cpus > 0 && info.machine.memory_bytes > 0, "{info:?}");
}

#[tokio::test]
async fn a_worker_that_cannot_start_is_refused_with_the_reason() {
    let agents = connect(agent(plain()).await, plain()).await;
    let refused = agents.worker(0, "producer-0".to_owned(), 0).await.map(drop);
    let text = refused.expect_err("there is no such binary").to_string();
    assert!(text.contains("failed to start /nowhere/thalweg"), "{text}");
}

#[tokio::test]
async fn an_agent_that_only_watches_runs_nothing_and_samples_brokers_only() {
    let agents = connect(agent_of(plain(), true).await, plain()).await;
    let refused = |text: String| assert!(text.contains("it only watches brokers"), "{text}");
    refused(agents.worker(0, "producer-0".to_owned(), 0).await.map(drop).expect_err("refused").to_string());
    refused(agents.sample(0).await.map(drop).expect_err("refused").to_string());
    let bootstrap = ["127.0.0.1:1".to_owned()];
    refused(agents.check_paths("a", &bootstrap, &Default::default()).await.expect_err("refused").to_string());
    let (brokers, mut usage) = agents.watch(0, &[]).await.expect("it watches");
    usage.add("any", std::process::id()).await.expect("sent");
    let usage = usage.finish((0, u64::MAX / 4), 0).await.expect("the machine's usage");
    assert!(brokers.is_empty() && usage.processes.is_empty(), "{usage:?}");
    assert_eq!(agents.logs(0, &[]).await.expect("it has none"), []);
}

#[tokio::test]
async fn an_agent_with_two_names_is_one_agent() {
    let direct = agent(plain()).await;
    let beside = slow(direct.clone()).await;
    let (placement, version) = (Placement::Both, "a version".to_owned());
    let addresses = vec![direct.clone(), beside.clone()];
    let options = AgentsOptions { addresses, security: plain(), placement, version };
    let text = Agents::connect(options).await.map(drop).expect_err("one agent").to_string();
    assert!(text.contains(&direct) && text.contains(&beside) && text.contains("the same agent"), "{text}");
}

#[test]
fn a_machine_is_identified_by_its_boot_id_or_else_by_its_agent() {
    let of = |instance: &str, boot_id: Option<&str>| super::protocol::Identity {
        instance: Some(instance.to_owned()),
        boot_id: boot_id.map(str::to_owned),
    };
    // A restarted agent has the clock of its machine.
    assert!(of("1", Some("x")).is_same_machine(&of("2", Some("x"))));
    assert!(!of("1", Some("x")).is_same_machine(&of("1", Some("y"))));
    assert!(!of("1", None).is_same_machine(&of("2", None)));
    assert!(of("1", None).is_same_machine(&of("1", None)));
}

#[tokio::test]
async fn silent_connections_do_not_close_an_agent_to_its_lab() {
    let address = agent(plain()).await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(&address).await.expect("it listens"));
    }
    let connected = tokio::time::timeout(Duration::from_secs(5), connect(address, plain()));
    connected.await.expect("it does not wait for the silent ones");
    let ended = tokio::time::timeout(Duration::from_secs(5), silent[0].read(&mut [0])).await;
    assert_eq!(ended.expect("the oldest has made room").expect("an end"), 0);
}

#[tokio::test]
async fn a_second_lab_is_refused_by_the_name_of_the_first() {
    let address = agent(plain()).await;
    let options = || {
        let (placement, version) = (Placement::Both, "a version".to_owned());
        AgentsOptions { addresses: vec![address.clone()], security: plain(), placement, version }
    };
    let first = Agents::connect_as("one".to_owned(), options()).await.expect("a free agent");
    let refused = Agents::connect_as("two".to_owned(), options()).await.map(drop);
    let text = refused.expect_err("it is in use").to_string();
    assert!(text.contains(&address) && text.contains("in use by the lab one"), "{text}");
    first.clock(0).await.expect("the first goes on");
    drop(first);
    Agents::connect_as("two".to_owned(), options()).await.expect("a free agent");
}
