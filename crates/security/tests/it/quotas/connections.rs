//! Rates and numbers of connections, for listeners and addresses.

use std::fmt::Write as _;
use std::net::IpAddr;

use thalweg_security::quota::{ConnectionLimits, ConnectionQuotas, IpRates, ListenerLimits, Refusal, Window};

use super::{Lots, compare_with};

const LISTENERS: [&str; 2] = ["BROKERS", "CLIENTS"];

/// Limits that are drawn, and the command that sets them for Kafka.
fn connections(
    lots: &mut Lots,
    commands: &mut String,
    window: Window,
    count: fn(&mut Lots) -> u32,
    rate: fn(&mut Lots) -> u32,
) -> ConnectionQuotas {
    let mut limits = ConnectionLimits {
        connections: count(lots) as usize,
        per_second: rate(lots),
        per_ip: count(lots) as usize,
        ..Default::default()
    };
    write!(
        commands,
        "connections quota.window.num={} quota.window.size.seconds={} max.connections={} \
         max.connection.creation.rate={} max.connections.per.ip={}",
        window.samples,
        window.sample_ms / 1000,
        limits.connections,
        limits.per_second,
        limits.per_ip
    )
    .expect("to memory");
    for name in LISTENERS {
        let mut own = ListenerLimits { connections: limits.connections, per_second: limits.per_second };
        if lots.below(2) == 0 {
            own = ListenerLimits { connections: count(lots) as usize, per_second: rate(lots) };
            let prefix = format!("listener.name.{}", name.to_lowercase());
            write!(
                commands,
                " {prefix}.max.connections={} {prefix}.max.connection.creation.rate={}",
                own.connections, own.per_second
            )
            .expect("to memory");
        }
        limits.listeners.insert(name.to_owned(), own);
    }
    commands.push('\n');
    ConnectionQuotas::new(window, limits, Some("BROKERS".to_owned()))
}

fn address(lots: &mut Lots) -> IpAddr {
    IpAddr::from([10, 0, 0, u8::try_from(lots.below(3)).expect("small")])
}

#[test]
fn connections_are_slowed_down_as_kafka_does() {
    let (mut lots, mut commands, mut ours) = (Lots(0xc0ff_ee00_1234_5671), String::new(), Vec::new());
    for _ in 0..60 {
        let window = Window { samples: [11, 1, 3][lots.below(3) as usize], sample_ms: 1000 };
        let rate = |lots: &mut Lots| if lots.below(4) == 0 { 0x7fff_ffff } else { 1 + lots.below(20) };
        let mut quotas = connections(&mut lots, &mut commands, window, |_| 1_000, rate);
        let (mut now_ms, mut rates) = (0, IpRates::default());
        for _ in 0..300 {
            let step_ms = if lots.below(3) == 0 { i64::from(lots.below(700)) } else { 0 };
            now_ms += step_ms;
            writeln!(commands, "time {step_ms}").expect("to memory");
            if lots.below(40) == 0 {
                let limit = rate(&mut lots);
                let named = (lots.below(2) == 0).then(|| address(&mut lots));
                match named {
                    Some(ip) => drop(rates.named.insert(ip, limit)),
                    None => rates.default = Some(limit),
                }
                let word = named.map_or("*".to_owned(), |ip| ip.to_string());
                writeln!(commands, "rate {word} {limit}").expect("to memory");
                quotas.set_ip_rates(rates.clone());
            }
            let listener = LISTENERS[lots.below(2) as usize];
            writeln!(commands, "arrive {listener}").expect("to memory");
            ours.push(quotas.arrive(listener, now_ms).to_string());
            let ip = address(&mut lots);
            writeln!(commands, "enter {listener} {ip}").expect("to memory");
            let entered = quotas.enter(listener, ip, now_ms);
            ours.push(match entered {
                Err(Refusal::TooFast { pause_ms }) => pause_ms.to_string(),
                Err(Refusal::TooMany { .. }) => panic!("a thousand may be open"),
                Ok(()) => {
                    quotas.leave(listener, ip);
                    "-".to_owned()
                }
            });
        }
    }
    assert!(
        ours.iter().filter(|answer| !["0", "-"].contains(&answer.as_str())).count() > 3_000,
        "above limits"
    );
    compare_with("Connections.java", &commands, &ours);
}

#[test]
fn connections_have_slots_as_in_kafka() {
    let (mut lots, mut commands, mut ours) = (Lots(0x0bad_5eed_1234_5671), String::new(), Vec::new());
    let window = Window { samples: 11, sample_ms: 1000 };
    for _ in 0..60 {
        let mut quotas =
            connections(&mut lots, &mut commands, window, |lots| 2 + lots.below(12), |_| 0x7fff_ffff);
        let mut open: Vec<(&str, IpAddr)> = Vec::new();
        for _ in 0..400 {
            let listener = LISTENERS[lots.below(2) as usize];
            writeln!(commands, "slot {listener}\nexceeded {listener}").expect("to memory");
            let has_slot = quotas.has_slot(listener);
            ours.push(has_slot.to_string());
            ours.push((quotas.excess() > 0 && !quotas.is_protected(listener)).to_string());
            if has_slot && lots.below(6) > 0 {
                let ip = address(&mut lots);
                writeln!(commands, "open {listener} {ip}").expect("to memory");
                let entered = quotas.enter(listener, ip, 0);
                ours.push(if entered.is_ok() { "open" } else { "many" }.to_owned());
                if entered.is_ok() {
                    open.push((listener, ip));
                }
            } else if !open.is_empty() {
                let at = lots.below(u32::try_from(open.len()).expect("few")) as usize;
                let (listener, ip) = open.swap_remove(at);
                writeln!(commands, "close {listener} {ip}").expect("to memory");
                quotas.leave(listener, ip);
            }
        }
    }
    for word in ["many", "false"] {
        assert!(ours.iter().filter(|answer| *answer == word).count() > 100, "{word}");
    }
    compare_with("Connections.java", &commands, &ours);
}
