//! A calibration as a plain table.

use std::fmt::{self, Display, Formatter};

use super::{Calibration, Generator, QUANTILES};

impl Display for Calibration {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "Calibration of {} against a null server", self.client)?;
        writeln!(f)?;
        writeln!(
            f,
            "{:<14} {:>8} {:>7} {:>12} {:>12} {:>8}",
            "scenario", "records", "", "true us", "measured us", "error"
        )?;
        for (at, floor_us) in self.floor_us.iter().enumerate() {
            let name = if at == 0 { "floor" } else { "" };
            let quantile = format!("p{}", QUANTILES[at] * 100.0);
            writeln!(f, "{name:<14} {:>8} {quantile:>7} {:>12} {floor_us:>12.0} {:>8}", "", "", "")?;
        }
        for measured in &self.scenarios {
            for (at, percentile) in measured.percentiles.iter().enumerate() {
                let (name, records) = match at {
                    0 => (measured.scenario.name.as_str(), measured.records.to_string()),
                    _ => ("", String::new()),
                };
                let quantile = format!("p{}", percentile.quantile * 100.0);
                writeln!(
                    f,
                    "{name:<14} {records:>8} {quantile:>7} {:>12.0} {:>12.0} {:>+7.2}%",
                    percentile.true_us,
                    percentile.measured_us,
                    percentile.error * 100.0,
                )?;
            }
        }
        for measured in self.scenarios.iter().filter(|measured| measured.tries > 1) {
            writeln!(f, "{}: the best of {} attempts", measured.scenario.name, measured.tries)?;
        }
        let knee = &self.knee;
        writeln!(f)?;
        writeln!(
            f,
            "knee: {:.0} records/s, found {:.0} in {} trials, error {:+.2}%",
            knee.true_records_per_s,
            knee.found_records_per_s,
            knee.trials,
            knee.error * 100.0,
        )?;
        for generator in &self.generator {
            writeln!(f, "{generator}")?;
        }
        for clock in &self.agents {
            let error = match clock.error_us_max {
                u64::MAX => "of unknown error".to_owned(),
                error_us => format!("± {error_us} us"),
            };
            writeln!(f, "agent {}: clock {:+} us {error}", clock.address, clock.offset_us)?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "Latencies count from the intended send time. The floor is the latency of network and scheduling, measured with a \
             server\nthat answers immediately; it is included in the measurements."
        )?;
        let faults = self.faults();
        if faults.is_empty() {
            write!(
                f,
                "Within the limits: {:.1}% for percentiles, {:.1}% for the knee.",
                self.limits.percentile * 100.0,
                self.limits.knee * 100.0,
            )
        } else {
            write!(f, "BEYOND THE LIMITS:\n  {}", faults.join("\n  "))
        }
    }
}

impl Display for Generator {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "generator: {:.2} million records/s of {} bytes from one thread, batches of {} KiB",
            self.records_per_s / 1e6,
            self.value_bytes,
            self.batch_bytes / 1024,
        )?;
        match self.cpu_us_per_record {
            Some(cpu_us) => write!(
                f,
                "; {cpu_us:.3} us of processor a record, {:.2} million in a second of it",
                1.0 / cpu_us
            ),
            None => Ok(()),
        }
    }
}
