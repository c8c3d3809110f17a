//! The figures of a window, as named in options. Pure.

/// A figure of a window.
#[derive(Clone, Debug, PartialEq)]
pub enum Figure {
    /// Number of messages.
    Count,
    /// Sum of the numbers.
    Sum,
    Min,
    Max,
    /// Mean of the numbers.
    Average,
    /// A quantile and its name.
    Quantile(String, f64),
}

/// Parses a list of figures.
pub fn figures(text: &str) -> Option<Vec<Figure>> {
    text.split(',').map(|name| figure(name.trim())).collect()
}

fn figure(name: &str) -> Option<Figure> {
    Some(match name {
        "count" => Figure::Count,
        "sum" => Figure::Sum,
        "min" => Figure::Min,
        "max" => Figure::Max,
        "avg" => Figure::Average,
        _ => {
            let percent: f64 = name.strip_prefix('p')?.parse().ok()?;
            (0.0..=100.0).contains(&percent).then(|| Figure::Quantile(name.to_owned(), percent / 100.0))?
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_known_by_name() {
        assert_eq!(figure("count"), Some(Figure::Count));
        assert_eq!(figure("p99.9"), Some(Figure::Quantile("p99.9".to_owned(), 0.9990000000000001)));
        for wrong in ["", "median", "p", "p101", "p-1"] {
            assert_eq!(figure(wrong), None, "{wrong}");
        }
    }
}
