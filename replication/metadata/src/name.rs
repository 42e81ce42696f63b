//! What a topic may be called: Kafka's rules (`org.apache.kafka.common.internals.Topic`).

/// A topic's directory is `<name>-<partition>` and file names end at 255 bytes.
pub const TOPIC_NAME_LENGTH_MAX: usize = 249;

/// Where groups keep their offsets and generations.
pub const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// Topics that belong to the broker itself: not made or written by clients on purpose.
const INTERNAL: [&str; 3] = [OFFSETS_TOPIC, "__transaction_state", "__share_group_state"];

pub fn is_internal(name: &str) -> bool {
    INTERNAL.contains(&name)
}

/// The error says which rule is broken and what is allowed.
pub fn check_topic_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("Topic name is invalid: it must not be empty".into());
    }
    if name == "." || name == ".." {
        return Err(format!("Topic name is invalid: '{name}' is not allowed ('.' and '..' are directories)"));
    }
    if name.len() > TOPIC_NAME_LENGTH_MAX {
        return Err(format!(
            "Topic name is invalid: its length is {} and at most {TOPIC_NAME_LENGTH_MAX} characters are allowed",
            name.len()
        ));
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')) {
        return Err(format!(
            "Topic name is invalid: '{}' contains a character other than ASCII letters, digits, '.', '_' and '-'",
            name.escape_debug()
        ));
    }
    Ok(())
}

/// Names with equal keys collide in metric names, where '.' and '_' are one; `None` for a name that has neither.
pub(crate) fn collision_key(name: &str) -> Option<String> {
    name.contains(['.', '_']).then(|| name.replace('.', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_by_kafkas_rules() {
        for good in ["a", "A.b_c-9", "...", "-", &"x".repeat(249)] {
            assert_eq!(check_topic_name(good), Ok(()), "{good}");
        }
        for bad in ["", ".", "..", "a b", "a/b", "é", "a\0", &"x".repeat(250)] {
            assert!(check_topic_name(bad).is_err(), "{bad}");
        }
        assert!(check_topic_name(&"x".repeat(250)).unwrap_err().contains("250 and at most 249"));
    }

    #[test]
    fn dots_and_underscores_collide() {
        assert_eq!(collision_key("a.b"), collision_key("a_b"));
        assert_ne!(collision_key("a.b"), collision_key("a_c"));
        assert_eq!(collision_key("ab"), None);
    }
}
