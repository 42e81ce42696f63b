//! The bars of issue 6: what is compared, and with what it must hold.

use crate::figure::{Figures, Metric};
use crate::spread::Spread;

/// One round's figures, by the side's label.
pub type Round<'a> = &'a dyn Fn(&str) -> Option<&'a Figures>;

pub struct Bar {
    pub text: String,
    of: Of,
    limit: Limit,
}

enum Of {
    /// One side's number.
    Own(String, Metric),
    /// The first side's over the second's.
    Ratio(String, String, Metric),
    /// The first side's over the second's; but where the second's median is less than the bound, the first side's own number.
    RatioUnless(String, String, Metric, f64),
}

#[derive(Clone, Copy)]
enum Limit {
    Least(f64),
    Most(f64),
    /// Of the ratio; and of the number that stands in for it.
    MostOr(f64, f64),
}

/// What came of a bar.
pub enum Verdict {
    /// Whether it holds for the median, and what was seen.
    Judged(bool, String),
    /// No round had all that it needs.
    NotMeasured,
}

pub fn own_at_most(side: &str, metric: Metric, most: f64) -> Bar {
    let text = format!("{side}: {} <= {most}", metric.heading());
    Bar { text, of: Of::Own(side.into(), metric), limit: Limit::Most(most) }
}

pub fn at_least(side: &str, than: &str, metric: Metric, factor: f64) -> Bar {
    let text = format!("{}: {side} >= {factor} x {than}", metric.heading());
    Bar { text, of: Of::Ratio(side.into(), than.into(), metric), limit: Limit::Least(factor) }
}

pub fn at_most(side: &str, than: &str, metric: Metric, factor: f64) -> Bar {
    let text = format!("{}: {side} <= {factor} x {than}", metric.heading());
    Bar { text, of: Of::Ratio(side.into(), than.into(), metric), limit: Limit::Most(factor) }
}

/// At most `factor` times the other's; where the other's is under `under`, less than `most`.
pub fn at_most_unless(side: &str, than: &str, metric: Metric, factor: f64, (under, most): (f64, f64)) -> Bar {
    let heading = metric.heading();
    let text = format!("{heading}: {side} <= {factor} x {than}; < {most} where {than} has less than {under}");
    let of = Of::RatioUnless(side.into(), than.into(), metric, under);
    Bar { text, of, limit: Limit::MostOr(factor, most) }
}

impl Bar {
    pub fn judge(&self, rounds: &[Round<'_>]) -> Verdict {
        let of = |side: &str, metric: Metric| -> Vec<Option<f64>> {
            rounds.iter().map(|round| round(side).and_then(|figures| figures.get(metric))).collect()
        };
        let ratios = |a: &str, b: &str, metric: Metric| -> Vec<f64> {
            of(a, metric).iter().zip(of(b, metric)).filter_map(|(a, b)| Some((*a)? / b?)).collect()
        };
        let (values, decimals, stands_in) = match &self.of {
            Of::Own(side, metric) => {
                (of(side, *metric).into_iter().flatten().collect(), metric.decimals().max(2), false)
            }
            Of::Ratio(a, b, metric) => (ratios(a, b, *metric), 2, false),
            Of::RatioUnless(a, b, metric, under) => {
                let other = Spread::of(of(b, *metric).into_iter().flatten());
                match other.is_some_and(|other| other.median < *under) {
                    true => (of(a, *metric).into_iter().flatten().collect(), metric.decimals(), true),
                    false => (ratios(a, b, *metric), 2, false),
                }
            }
        };
        let Some(spread) = Spread::of(values.into_iter()) else { return Verdict::NotMeasured };
        let met = match self.limit {
            Limit::Least(least) => spread.median >= least,
            Limit::Most(most) => spread.median <= most,
            Limit::MostOr(_, most) if stands_in => spread.median < most,
            Limit::MostOr(factor, _) => spread.median <= factor,
        };
        let unit = if stands_in || matches!(self.of, Of::Own(..)) { "" } else { " x" };
        Verdict::Judged(met, format!("{}{unit}", spread.text(decimals)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(bar: &Bar, a: f64, b: Option<f64>) -> Option<bool> {
        let figures = |value: f64| {
            let mut figures = Figures::default();
            figures.set(Metric::P99, value);
            figures
        };
        let (a, b) = (figures(a), b.map(figures));
        let round = |side: &str| if side == "a" { Some(&a) } else { b.as_ref() };
        match bar.judge(&[&round]) {
            Verdict::Judged(met, _) => Some(met),
            Verdict::NotMeasured => None,
        }
    }

    #[test]
    fn verdicts() {
        assert_eq!(seen(&own_at_most("a", Metric::P99, 3.0), 3.0, None), Some(true));
        assert_eq!(seen(&own_at_most("a", Metric::P999, 3.0), 3.0, None), None);
        assert_eq!(seen(&at_least("a", "b", Metric::P99, 0.8), 7.9, Some(10.0)), Some(false));
        assert_eq!(seen(&at_most("a", "b", Metric::P99, 0.8), 7.9, Some(10.0)), Some(true));
        assert_eq!(seen(&at_most("a", "b", Metric::P99, 0.8), 7.9, None), None);
        let unless = at_most_unless("a", "b", Metric::P99, 2.0, (4.0, 10.0));
        assert_eq!(seen(&unless, 9.0, Some(1.0)), Some(true), "under 10");
        assert_eq!(seen(&unless, 11.0, Some(1.0)), Some(false));
        assert_eq!(seen(&unless, 11.0, Some(6.0)), Some(true), "less than twice");
        assert_eq!(seen(&unless, 13.0, Some(6.0)), Some(false));
    }
}
