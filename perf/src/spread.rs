//! The median of several rounds, and how far they lie apart.

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Spread {
    /// Of at least one value; NaN sorts last.
    pub fn of(values: impl Iterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Some(Spread { median, least, most })
    }

    /// `median (least-most)`.
    pub fn text(&self, decimals: usize) -> String {
        format!("{:.decimals$} ({:.decimals$}-{:.decimals$})", self.median, self.least, self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(Spread::of([].into_iter()), None);
        assert_eq!(Spread::of([3.0, 1.0, 2.0].into_iter()), Some(Spread { median: 2.0, least: 1.0, most: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0].into_iter()).unwrap().text(1), "2.5 (1.0-4.0)");
    }
}
