//! What one config is: its type, default, allowed values and words for people.

/// A value is at most this long: it is one metadata record (and `record` asserts that it fits), and every core holds it.
pub const VALUE_BYTES_MAX: usize = 32 << 10;

/// The type of a config's value; the discriminant is DescribeConfigs' `ConfigType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub enum Kind {
    Boolean = 1,
    String = 2,
    Int = 3,
    Short = 4,
    Long = 5,
    Double = 6,
    List = 7,
    Class = 8,
    Password = 9,
}

/// Which values of a kind are allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    Any,
    /// Whole numbers, both ends included.
    Range(i64, i64),
    Fraction(f64, f64),
    OneOf(&'static [&'static str]),
    /// As `OneOf`, whatever the case.
    OneOfAnyCase(&'static [&'static str]),
    /// A list of these; empty is allowed, and so are repeats, as in Kafka.
    EachOf(&'static [&'static str]),
    /// -1 (the codec's own default) or 1 to 9.
    GzipLevel,
    /// `partition:broker,...`, or `*`.
    Throttled,
    /// `latest`, `earliest`, or `by_duration:` and an ISO 8601 duration.
    OffsetReset,
}

#[derive(Clone, Copy, Debug)]
pub struct Definition {
    pub name: &'static str,
    pub kind: Kind,
    /// As Kafka prints it; `None` is null (or none at all).
    pub default: Option<&'static str>,
    pub rule: Rule,
    /// May be set while the broker runs (always, for a topic's).
    pub dynamic: bool,
    /// Whether Ringmain does anything about it. Without, it is accepted, kept and shown.
    pub effect: bool,
    pub documentation: &'static str,
}

impl Definition {
    pub fn sensitive(&self) -> bool {
        self.kind == Kind::Password
    }

    /// The value in its kept form (outer blanks gone), or what is wrong with it and what is allowed.
    pub fn check(&self, value: &str) -> Result<String, String> {
        let value = value.trim();
        if value.len() > VALUE_BYTES_MAX {
            return Err(format!(
                "Invalid value of {} bytes for configuration {}: allowed are {VALUE_BYTES_MAX} bytes",
                value.len(),
                self.name
            ));
        }
        let fine = match self.kind {
            Kind::Boolean => value.eq_ignore_ascii_case("true") || value.eq_ignore_ascii_case("false"),
            Kind::Int => value.parse::<i32>().is_ok_and(|number| self.in_range(number.into())),
            Kind::Short => value.parse::<i16>().is_ok_and(|number| self.in_range(number.into())),
            Kind::Long => value.parse::<i64>().is_ok_and(|number| self.in_range(number)),
            Kind::Double => value.parse::<f64>().is_ok_and(|number| match self.rule {
                Rule::Fraction(least, most) => (least..=most).contains(&number),
                _ => number.is_finite(),
            }),
            Kind::String | Kind::Class | Kind::Password | Kind::List => self.text_fits(value),
        };
        if fine {
            return Ok(value.to_owned());
        }
        // A message is a 16-bit string on the wire, and nobody reads on after this.
        let shown = match self.sensitive() {
            true => "[hidden]".to_owned(),
            false => value.chars().take(200).collect(),
        };
        Err(format!(
            "Invalid value {} for configuration {}: allowed is {}",
            shown.escape_debug(),
            self.name,
            self.allowed()
        ))
    }

    fn in_range(&self, number: i64) -> bool {
        match self.rule {
            Rule::Range(least, most) => (least..=most).contains(&number),
            Rule::GzipLevel => number == -1 || (1..=9).contains(&number),
            _ => true,
        }
    }

    fn text_fits(&self, value: &str) -> bool {
        match self.rule {
            Rule::OneOf(allowed) => allowed.contains(&value),
            Rule::OneOfAnyCase(allowed) => allowed.iter().any(|one| one.eq_ignore_ascii_case(value)),
            Rule::EachOf(allowed) => items(value).all(|part| allowed.contains(&part)),
            Rule::Throttled => throttled_fits(value),
            Rule::OffsetReset => {
                ["latest", "earliest"].contains(&value) || value.strip_prefix("by_duration:").is_some_and(is_duration)
            }
            _ => true,
        }
    }

    /// In words, for messages.
    pub fn allowed(&self) -> String {
        let kind = match self.kind {
            Kind::Boolean => return "true or false".into(),
            Kind::Int => ("a 32-bit number", i64::from(i32::MIN), i64::from(i32::MAX)),
            Kind::Short => ("a 16-bit number", i64::from(i16::MIN), i64::from(i16::MAX)),
            Kind::Long => ("a 64-bit number", i64::MIN, i64::MAX),
            Kind::Double => ("a number", 0, 0),
            Kind::List => ("a list separated by commas", 0, 0),
            Kind::String | Kind::Class | Kind::Password => ("a text", 0, 0),
        };
        match self.rule {
            Rule::Range(least, most) if most >= kind.2 => format!("{} of at least {least}", kind.0),
            Rule::Range(least, most) => format!("{} from {least} to {most}", kind.0),
            Rule::Fraction(least, most) => format!("{} from {least} to {most}", kind.0),
            Rule::OneOf(allowed) | Rule::OneOfAnyCase(allowed) => format!("one of {}", allowed.join(", ")),
            Rule::EachOf(allowed) => format!("a list of {}", allowed.join(", ")),
            Rule::GzipLevel => "-1 or a number from 1 to 9".into(),
            Rule::Throttled => "partition:broker pairs separated by commas, or *".into(),
            Rule::OffsetReset => "latest, earliest or by_duration:PnDTnHnMn.nS".into(),
            Rule::Any => kind.0.into(),
        }
    }
}

/// A list's items: separated by commas, blanks around them dropped, empty ones left out.
pub fn items(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|part| !part.is_empty())
}

fn throttled_fits(value: &str) -> bool {
    value == "*"
        || items(value).all(|pair| {
            pair.split_once(':')
                .is_some_and(|(partition, broker)| partition.parse::<u32>().is_ok() && broker.parse::<u32>().is_ok())
        })
}

/// `PnDTnHnMn.nS` of ISO 8601: at least one part, in this order, and nothing negative.
fn is_duration(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('P') else { return false };
    let (days, time) = match rest.split_once('T') {
        Some((_, "")) => return false,
        Some((days, time)) => (days, time),
        None => (rest, ""),
    };
    let parts = |mut text: &str, units: &[char]| {
        for unit in units {
            let Some((number, rest)) = text.split_once(*unit) else { continue };
            let whole = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            let fits = match number.split_once('.') {
                Some((seconds, fraction)) => *unit == 'S' && whole(seconds) && whole(fraction),
                None => whole(number),
            };
            if !fits {
                return false;
            }
            text = rest;
        }
        text.is_empty()
    };
    !rest.is_empty() && parts(days, &['D']) && parts(time, &['H', 'M', 'S'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn define(kind: Kind, rule: Rule) -> Definition {
        Definition { name: "x", kind, default: None, rule, dynamic: true, effect: true, documentation: "" }
    }

    #[test]
    fn values_are_checked_and_messages_name_what_is_allowed() {
        let int = define(Kind::Int, Rule::Range(1, i64::from(i32::MAX)));
        assert_eq!(int.check(" 7 "), Ok("7".into()));
        assert_eq!(
            int.check("0"),
            Err("Invalid value 0 for configuration x: allowed is a 32-bit number of at least 1".into())
        );
        assert!(int.check("2147483648").is_err() && int.check("1.0").is_err() && int.check("").is_err());
        assert!(define(Kind::Boolean, Rule::Any).check("TRUE").is_ok());
        assert!(define(Kind::Boolean, Rule::Any).check("1").is_err());
        let list = define(Kind::List, Rule::EachOf(&["a", "b"]));
        assert!(list.check("a, b").is_ok() && list.check("").is_ok() && list.check("a,a").is_ok());
        assert!(list.check("a,c").is_err());
        assert!(define(Kind::List, Rule::Throttled).check("0:1,3:2").is_ok());
        assert!(define(Kind::List, Rule::Throttled).check("0").is_err());
        let reset = define(Kind::String, Rule::OffsetReset);
        for fine in ["latest", "earliest", "by_duration:P3D", "by_duration:PT1H2M3.5S", "by_duration:P1DT1S"] {
            assert!(reset.check(fine).is_ok(), "{fine}");
        }
        for wrong in
            ["", "soon", "by_duration:", "by_duration:P", "by_duration:PT", "by_duration:P-1D", "by_duration:PT1S2M"]
        {
            assert!(reset.check(wrong).is_err(), "{wrong}");
        }
        assert!(define(Kind::Double, Rule::Fraction(0.0, 1.0)).check("NaN").is_err());
        let text = define(Kind::String, Rule::Any);
        assert!(text.check(&"x".repeat(VALUE_BYTES_MAX)).is_ok());
        assert!(text.check(&"x".repeat(VALUE_BYTES_MAX + 1)).unwrap_err().contains("allowed are 32768 bytes"));
        assert!(int.check(&"x".repeat(VALUE_BYTES_MAX)).unwrap_err().len() < 300);
        let secret = define(Kind::Password, Rule::OneOf(&["a"])).check("hunter2").unwrap_err();
        assert!(!secret.contains("hunter2"));
    }
}
