//! The `.properties` format of server.properties, as `java.util.Properties` reads it, of a UTF-8 file.
//!
//! A line is `key=value`, `key:value` or `key value`. `#` and `!` begin a comment line. A line that ends in an odd number of
//! backslashes goes on with the next, less its leading blanks. `\t \n \r \f \uXXXX` are characters; before any other a backslash
//! falls away.

use std::fmt;

/// Pairs in the order of the file; of a key that is repeated the last counts.
pub fn parse(text: &str) -> Result<Vec<(String, String)>, PropertiesError> {
    let mut pairs = Vec::new();
    for (number, line) in logical_lines(text) {
        let (key, value) = split(&line);
        let unescaped = |raw| unescape(raw).ok_or(PropertiesError { line: number });
        pairs.push((unescaped(key)?, unescaped(value)?));
    }
    Ok(pairs)
}

/// An escape `\u` without four hexadecimal digits behind it, or one that names no character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropertiesError {
    /// From 1.
    pub line: usize,
}

impl fmt::Display for PropertiesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: \\u wants four hexadecimal digits of a character", self.line)
    }
}
impl std::error::Error for PropertiesError {}

/// Lines with their continuations joined, without comments and blank ones, each with the number of its first line.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    for (at, line) in text.split('\n').enumerate() {
        let line = line.trim_start_matches(blank);
        if !goes_on && (line.is_empty() || line.starts_with(['#', '!'])) {
            continue;
        }
        let slashes = line.len() - line.trim_end_matches('\\').len();
        let last = if slashes % 2 == 1 { &line[..line.len() - 1] } else { line };
        match lines.last_mut().filter(|_| goes_on) {
            Some((_, before)) => before.push_str(last),
            None => lines.push((at + 1, last.to_owned())),
        }
        goes_on = slashes % 2 == 1;
    }
    lines
}

fn blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\x0c')
}

/// At the first `=`, `:` or blank that no backslash guards.
fn split(line: &str) -> (&str, &str) {
    let mut guarded = false;
    let end = line.find(|c: char| {
        let ends = !guarded && (blank(c) || c == '=' || c == ':');
        guarded = c == '\\' && !guarded;
        ends
    });
    let Some(end) = end else { return (line, "") };
    let value = line[end..].trim_start_matches(blank);
    let value = value.strip_prefix(['=', ':']).unwrap_or(value);
    (&line[..end], value.trim_start_matches(blank))
}

fn unescape(raw: &str) -> Option<String> {
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            text.push(c);
            continue;
        }
        match rest.next() {
            Some('t') => text.push('\t'),
            Some('n') => text.push('\n'),
            Some('r') => text.push('\r'),
            Some('f') => text.push('\x0c'),
            Some('u') => text.push(unicode(&mut rest)?),
            Some(other) => text.push(other),
            None => {}
        }
    }
    Some(text)
}

fn unicode(rest: &mut std::str::Chars<'_>) -> Option<char> {
    let mut code = 0;
    for _ in 0..4 {
        code = code * 16 + rest.next()?.to_digit(16)?;
    }
    char::from_u32(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        parse(text).unwrap()
    }
    fn pair(text: &str) -> (String, String) {
        let mut pairs = pairs(text);
        assert_eq!(pairs.len(), 1, "{pairs:?}");
        pairs.remove(0)
    }

    #[test]
    fn separators_and_blanks() {
        for text in ["a=b", "a:b", "a b", "  a = b", "a\t:\tb", "a  b", "a=b\n", "a=b\r\n", "\x0ca = b"] {
            assert_eq!(pair(text), ("a".into(), "b".into()), "{text:?}");
        }
        assert_eq!(pair("listeners=PLAINTEXT://:9092"), ("listeners".into(), "PLAINTEXT://:9092".into()));
        assert_eq!(pair("a = b = c "), ("a".into(), "b = c ".into()));
        assert_eq!(pair("a"), ("a".into(), String::new()));
        assert_eq!(pair("a="), ("a".into(), String::new()));
        assert_eq!(pair("a ==b"), ("a".into(), "=b".into()));
        assert_eq!(pair("=b"), (String::new(), "b".into()));
    }

    #[test]
    fn comments_and_continuations() {
        let text = "# one\n  ! two\n\na=1,\\\n   2,\\\n#3\nb=x\\\\\nc=y\\\\\\\nz\n\\\n\nd=e\\";
        let expected = [("a", "1,2,#3"), ("b", "x\\"), ("c", "y\\z"), ("", ""), ("d", "e")];
        let expected: Vec<_> = expected.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        assert_eq!(pairs(text), expected);
        assert_eq!(pairs(" \n#a=b\\\nc=d"), [("c".into(), "d".into())], "a comment does not go on");
    }

    #[test]
    fn escapes() {
        assert_eq!(pair(r"a\=b\:c\ d = e\=f\tg\qh"), ("a=b:c d".into(), "e=f\tgqh".into()));
        assert_eq!(pair(r"k=\u00e4\u20AC"), ("k".into(), "ä€".into()));
        assert_eq!(pair(r"k=C:\\dir\\"), ("k".into(), r"C:\dir\".into()));
        assert_eq!(parse("ok=1\nk=\\u00g0"), Err(PropertiesError { line: 2 }));
        assert_eq!(parse("k=\\u00"), Err(PropertiesError { line: 1 }));
        assert_eq!(parse("k=\\ud800"), Err(PropertiesError { line: 1 }));
    }
}
