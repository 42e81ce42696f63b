//! A fuzzer's bytes as choices: what is missing is 0, so that every input is one.

pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input(bytes)
    }

    pub fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    pub fn u16(&mut self) -> u16 {
        u16::from(self.byte()) | u16::from(self.byte()) << 8
    }

    pub fn u32(&mut self) -> u32 {
        u32::from(self.u16()) | u32::from(self.u16()) << 16
    }

    pub fn u64(&mut self) -> u64 {
        u64::from(self.u32()) | u64::from(self.u32()) << 32
    }

    /// One of `count`, which is not 0.
    pub fn below(&mut self, count: usize) -> usize {
        let choice = if count > 256 { usize::from(self.u16()) } else { usize::from(self.byte()) };
        choice % count
    }

    /// At most `bytes`.
    pub fn take(&mut self, bytes: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(bytes.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// As many as its first two bytes say.
    pub fn piece(&mut self) -> &'a [u8] {
        let bytes = usize::from(self.u16());
        self.take(bytes)
    }

    pub fn rest(self) -> &'a [u8] {
        self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
