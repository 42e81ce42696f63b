//! A readable history on standard output, when asked for.

#[derive(Clone, Copy, Debug, Default)]
pub struct Trace {
    pub on: bool,
}

impl Trace {
    /// Virtual time in milliseconds, who, what. Nothing is formatted when nobody reads.
    pub fn line(&self, now_ns: u64, who: impl FnOnce() -> String, what: impl FnOnce() -> String) {
        if self.on {
            println!("{:>12.6} {:<14} {}", now_ns as f64 / 1e6, who(), what());
        }
    }
}
