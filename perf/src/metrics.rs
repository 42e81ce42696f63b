//! The broker's own counters, from its /metrics.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The sum of all samples of `name`, over whatever labels they have.
pub fn sum(address: &str, name: &str) -> io::Result<f64> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    sum_of(&page, name).ok_or_else(|| io::Error::other(format!("/metrics has no {name}")))
}

fn sum_of(page: &str, name: &str) -> Option<f64> {
    let sample = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let rest = if rest.starts_with('{') { rest.rsplit_once('}')?.1 } else { rest };
        rest.strip_prefix(' ')?.trim().parse::<f64>().ok()
    };
    page.lines().filter_map(sample).reduce(|sum, value| sum + value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_add_up() {
        let page = "# HELP a b\na{shard=\"0\"} 3\na{shard=\"1\"} 4.5\na_total 9\nb 1\n";
        assert_eq!((sum_of(page, "a"), sum_of(page, "b"), sum_of(page, "c")), (Some(7.5), Some(1.0), None));
    }
}
