//! The growth of counters between two times, interpolated between samples.

/// The growth of counters from a time to another. They are constant before their first and after their last
/// sample, and a step back is no growth.
pub(crate) fn growth<T, const N: usize>(
    readings: &[(u64, T)],
    from_us: u64,
    to_us: u64,
    counters: impl Fn(&T) -> [u64; N],
) -> [f64; N] {
    let (before, after) = (at(readings, from_us, &counters), at(readings, to_us, &counters));
    std::array::from_fn(|index| f64::max(after[index] - before[index], 0.0))
}

fn at<T, const N: usize>(readings: &[(u64, T)], at_us: u64, counters: &impl Fn(&T) -> [u64; N]) -> [f64; N] {
    let of = |reading: &T| counters(reading).map(|counter| counter as f64);
    let behind = readings.partition_point(|(seen_us, _)| *seen_us <= at_us);
    match (behind.checked_sub(1).and_then(|index| readings.get(index)), readings.get(behind)) {
        (None, None) => [0.0; N],
        (None, Some((_, only))) | (Some((_, only)), None) => of(only),
        (Some((before_us, before)), Some((after_us, after))) => {
            let (before, after) = (of(before), of(after));
            let way = (at_us - before_us) as f64 / (after_us - before_us) as f64;
            std::array::from_fn(|index| before[index] + (after[index] - before[index]) * way)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::growth;

    #[test]
    fn counters_are_interpolated_and_constant_beyond_their_samples() {
        let readings = [(10, [100, 7]), (20, [200, 7]), (40, [180, 27])];
        let grown = |from_us, to_us| growth(&readings, from_us, to_us, |counters| *counters);
        assert_eq!(grown(10, 20), [100.0, 0.0]);
        assert_eq!(grown(15, 30), [40.0, 10.0]);
        assert_eq!((grown(0, 12), grown(20, 90)), ([20.0, 0.0], [0.0, 20.0]));
        assert_eq!(growth(&[], 0, 9, |counters: &[u64; 1]| *counters), [0.0]);
    }
}
