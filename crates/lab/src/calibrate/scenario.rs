//! Scenarios: the script of the null server, and the calculated latencies.

use serde::{Deserialize, Serialize};

use super::Extent;
use crate::null_server::{ServiceTime, Settings, Stalls};

/// The share of a service time that the machine may usually add.
const FLOOR_SHARE: f64 = 0.01;
/// Records per second until acknowledged.
const RECORDS_PER_S: f64 = 640.0;
/// Seconds before the measurement: whole rounds of drawn service times.
const WARM_UP_S: f64 = 3.125;
/// Seconds of a reduced measurement: whole rounds of drawn service times and whole periods of stalls, because
/// a part of either has other quantiles than the whole.
const REDUCED_S: f64 = 7.8125;
/// Length of the full measurement, in reduced ones.
const FULL: f64 = 4.0;
/// Seconds between the ends of two stalls: no multiple of the record interval, so that stalls begin at any
/// phase.
const STALL_PERIOD_S: f64 = REDUCED_S / 7.0;
/// The length of a stall, as a share of the service time, where that is scaled.
const STALL_SHARE: f64 = 0.4;
/// Records per second end to end: each is fetched apart.
const END_TO_END_RECORDS_PER_S: f64 = 200.0;
/// Bytes that the server keeps for consumers: more than a scenario has.
const KEPT_BYTES_MAX: u64 = 256 << 20;
/// Minimum time between the end of a service and the next record of the same producer.
const BETWEEN_S: f64 = 0.1;

/// A server with a script, and a rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// The scenario's name.
    pub name: String,
    /// A one-line description.
    pub about: String,
    /// The server's script.
    pub server: Settings,
    /// Records per second, each in its own request.
    pub records_per_s: f64,
    /// Number of producers. Each waits longer for its next record than the longest service time, so that no
    /// answer delays another on its connection.
    pub clients: u32,
    /// Seconds before the measurement.
    pub warm_up_s: f64,
    /// Seconds of measurement.
    pub measured_s: f64,
    /// The compared latency.
    #[serde(default)]
    pub measured: LatencyKind,
}

/// The compared latency of a scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LatencyKind {
    /// Until acknowledged: on the clock of the producer alone.
    #[default]
    Acknowledged,
    /// Until delivered. With agents, every agent has producers, and a consumer of all records: the clocks of
    /// both are in most of these latencies.
    EndToEnd,
}

impl Scenario {
    fn new(name: &str, about: &str, extent: Extent, server: Settings) -> Scenario {
        let measured_s = match extent {
            Extent::Full => FULL * REDUCED_S,
            Extent::Reduced => REDUCED_S,
        };
        let (name, about) = (name.to_owned(), about.to_owned());
        let (records_per_s, clients, warm_up_s) = (RECORDS_PER_S, 160, WARM_UP_S);
        let measured = LatencyKind::Acknowledged;
        Scenario { name, about, server, records_per_s, clients, warm_up_s, measured_s, measured }
    }

    /// A server that answers immediately, to measure the machine.
    pub(super) fn floor(extent: Extent) -> Scenario {
        let about = "network and scheduling alone";
        let floor = Scenario::new("floor", about, extent, Settings::default());
        Scenario { measured_s: floor.measured_s / 2.0, ..floor }
    }

    /// Equal service times, so that the machine's additions show at the highest percentile. Long enough that
    /// the usual addition is half of the allowed error.
    fn of_one_time(extent: Extent, floor_us: f64) -> Scenario {
        let ms = long_beside_ms(floor_us);
        let service_time = ServiceTime::Fixed { us: ms * 1e3 };
        let server = Settings { service_time, seed: 42, ..Settings::default() };
        let one = Scenario::new("fixed", &format!("{ms} ms for every request"), extent, server);
        let busy = one.records_per_s * (ms / 1e3 + BETWEEN_S);
        Scenario { clients: one.clients.max(busy.ceil() as u32), ..one }
    }

    /// Records that consumers get when they are acknowledged, with stalls. The times are long beside two
    /// floors, one of the producer's way and one of the consumer's, and the error of the clocks.
    fn end_to_end(extent: Extent, floor_us: f64, clock_error_us: u64) -> Scenario {
        let ms = long_beside_ms(2.0 * floor_us + clock_error_us as f64);
        let stall_ms = ms * STALL_SHARE;
        let server = Settings {
            service_time: ServiceTime::Fixed { us: ms * 1e3 },
            stalls: Stalls::Every { period_s: STALL_PERIOD_S, length_s: stall_ms / 1e3 },
            keep_bytes_max: KEPT_BYTES_MAX,
            seed: 42,
            ..Settings::default()
        };
        let about = format!("{ms} ms until delivered, with a stall of {stall_ms:.0} ms in each second");
        let (records_per_s, measured) = (END_TO_END_RECORDS_PER_S, LatencyKind::EndToEnd);
        let one = Scenario::new("end to end", &about, extent, server);
        let busy = records_per_s * ((ms + stall_ms) / 1e3 + BETWEEN_S);
        Scenario { records_per_s, measured, clients: busy.ceil() as u32, ..one }
    }

    /// All scenarios with known latencies, for a machine with this floor at the highest percentile, and
    /// agents whose clocks differ by this more than is known.
    pub(super) fn all(extent: Extent, floor_us: f64, clock_error_us: u64) -> Vec<Scenario> {
        let fixed = ServiceTime::Fixed { us: 50_000.0 };
        let server = |service_time: &ServiceTime| Settings {
            service_time: service_time.clone(),
            seed: 42,
            ..Settings::default()
        };
        let points =
            [(0.0, 40_000.0), (0.5, 50_000.0), (0.9, 80_000.0), (0.99, 120_000.0), (0.999, 180_000.0)];
        let points = points.into_iter().chain([(1.0, 200_000.0)]).collect();
        let quantiles = ServiceTime::Quantiles { points };
        let stalls = |length_s| Stalls::Every { period_s: STALL_PERIOD_S, length_s };
        let overload = Scenario {
            server: Settings { records_per_s_max: Some(512.0), ..server(&fixed) },
            ..Scenario::new(
                "overload",
                "640 records/s for a server of 512: the queue grows",
                extent,
                server(&fixed),
            )
        };
        let mut all = vec![
            Scenario::of_one_time(extent, floor_us),
            Scenario::new("distribution", "40 to 200 ms, with known quantiles", extent, server(&quantiles)),
            Scenario::new(
                "stalls",
                "50 ms, with a stall of 20 ms in each second",
                extent,
                Settings { stalls: stalls(0.02), ..server(&fixed) },
            ),
            overload,
            Scenario::end_to_end(extent, floor_us, clock_error_us),
        ];
        if extent == Extent::Reduced {
            all.retain(|scenario| scenario.name != "fixed");
        }
        all
    }

    /// The true value of a percentile.
    ///
    /// - Stalls: an answer falls due uniformly within the period; an answer due in the last `length` of the
    ///   period waits for its end. So a share `1 - q` waits longer than `length - (1 - q) * period`.
    /// - A queue: at a rate r beyond the limit m, a record intended `t` seconds after the start is served at
    ///   `t * r / m`, and the wait grows linearly from the measurement's first record to its last.
    pub fn true_us(&self, quantile: f64) -> f64 {
        let service_us = self.server.service_time.quantile_us(quantile);
        let stalled_s = match self.server.stalls {
            Stalls::Every { period_s, length_s } => (length_s - (1.0 - quantile) * period_s).max(0.0),
            Stalls::None | Stalls::At { .. } => 0.0,
        };
        let queued_s = self.server.records_per_s_max.map_or(0.0, |most| {
            let at_s = self.warm_up_s + quantile * self.measured_s;
            1.0 / most + at_s * (self.records_per_s / most - 1.0).max(0.0)
        });
        service_us + (stalled_s + queued_s) * 1e6
    }
}

/// A service time beside which an error is small.
fn long_beside_ms(error_us: f64) -> f64 {
    (error_us / FLOOR_SHARE / 1e3).ceil().clamp(50.0, 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::null_server::DRAWS_PER_ROUND;

    fn named(name: &str) -> Scenario {
        Scenario::all(Extent::Full, 500.0, 0)
            .into_iter()
            .find(|scenario| scenario.name == name)
            .expect("it exists")
    }

    fn assert_close(scenario: &Scenario, quantile: f64, expected_us: f64) {
        let true_us = scenario.true_us(quantile);
        assert!((true_us - expected_us).abs() < 1.0, "{}: {true_us} for {expected_us}", scenario.name);
    }

    #[test]
    fn what_is_true_follows_from_the_script() {
        let stalls = named("stalls");
        assert_close(&stalls, 0.5, 50_000.0);
        assert_close(&stalls, 0.99, 50_000.0 + 20_000.0 - 11_160.7);
        assert_close(&stalls, 0.999, 50_000.0 + 20_000.0 - 1_116.1);
        let distribution = named("distribution");
        assert_close(&distribution, 0.5, 50_000.0);
        assert_close(&distribution, 0.999, 180_000.0);
        let overload = named("overload");
        assert_close(&overload, 0.5, 50_000.0 + 1e6 / 512.0 + 18.75 * 0.25e6);
    }

    #[test]
    fn drawn_service_times_come_in_whole_rounds() {
        for extent in [Extent::Full, Extent::Reduced] {
            let all = Scenario::all(extent, 500.0, 0);
            let drawn = all.iter().find(|scenario| scenario.name == "distribution").expect("it exists");
            for seconds in [drawn.warm_up_s, drawn.measured_s] {
                assert_eq!(seconds * drawn.records_per_s % f64::from(DRAWS_PER_ROUND), 0.0, "{seconds} s");
            }
        }
    }

    /// The calculation agrees with a simulation of the script.
    #[test]
    fn a_walk_through_the_script_gives_the_same() {
        let extents = [Extent::Full, Extent::Reduced];
        let all = extents.into_iter().flat_map(|extent| Scenario::all(extent, 500.0, 0));
        for scenario in all.filter(|scenario| ["stalls", "overload"].contains(&scenario.name.as_str())) {
            let (mut free_s, mut latencies) = (0.0f64, Vec::new());
            for n in 0..((scenario.warm_up_s + scenario.measured_s) * scenario.records_per_s) as u64 {
                let at_s = n as f64 / scenario.records_per_s;
                let served_s =
                    scenario.server.records_per_s_max.map_or(at_s, |most| free_s.max(at_s) + 1.0 / most);
                free_s = served_s;
                let mut due_s = served_s + 0.05;
                if let Stalls::Every { period_s, length_s } = scenario.server.stalls {
                    let end_s = (due_s / period_s).ceil() * period_s;
                    due_s = if due_s > end_s - length_s { end_s } else { due_s };
                }
                if at_s >= scenario.warm_up_s {
                    latencies.push((due_s - at_s) * 1e6);
                }
            }
            latencies.sort_by(f64::total_cmp);
            for quantile in crate::calibrate::QUANTILES {
                let walked = latencies[(latencies.len() as f64 * quantile) as usize];
                let error = walked / scenario.true_us(quantile) - 1.0;
                assert!(error.abs() < 0.005, "{} {quantile}: {walked}, {error}", scenario.name);
            }
        }
    }

    #[test]
    fn a_machine_that_takes_long_gets_longer_times() {
        let fixed_us = |floor_us| Scenario::all(Extent::Full, floor_us, 0)[0].true_us(0.999);
        assert_eq!(fixed_us(100.0), 50_000.0);
        assert_eq!(fixed_us(3_283.0), 329_000.0);
        assert_eq!(fixed_us(1e9), 1e6);
    }

    #[test]
    fn no_answer_waits_behind_another_on_its_connection() {
        let all = [500.0, 3_000.0, 1e9]
            .into_iter()
            .flat_map(|floor_us| Scenario::all(Extent::Full, floor_us, 5_000));
        for scenario in all.filter(|scenario| scenario.name != "overload") {
            let between_us = 1e6 * f64::from(scenario.clients) / scenario.records_per_s;
            assert!(
                scenario.server.service_time.quantile_us(1.0) + 20_000.0 < between_us,
                "{}",
                scenario.name
            );
        }
    }
}
