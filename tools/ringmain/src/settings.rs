//! What a broker is started with: options, properties given by `--set`, a file, and defaults, in this order.
//!
//! | option | property |
//! |---|---|
//! | `--data-dir` | `log.dirs`, `log.dir` |
//! | `--listen` | `listeners` |
//! | `--advertise` | `advertised.listeners` |
//!
//! An option wins over the file. The same property in an option and in `--set` is an error: neither is more the user's word.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ringmain_metadata::config::BrokerConfig;
use ringmain_node::{HostPort, NodeConfig};

use crate::cli::StartArgs;
use crate::properties::{self, PropertiesError};

/// A file of properties that is longer is none.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Properties that say what an option says too, each with its option.
const SAME: [(&str, &str); 4] = [
    ("log.dirs", "--data-dir"),
    ("log.dir", "--data-dir"),
    ("listeners", "--listen"),
    ("advertised.listeners", "--advertise"),
];

#[derive(Debug)]
pub enum SettingsError {
    File {
        path: PathBuf,
        error: io::Error,
    },
    TooLarge {
        path: PathBuf,
    },
    Syntax {
        path: PathBuf,
        error: PropertiesError,
    },
    /// An option and `--set` say the same thing.
    Twice {
        option: &'static str,
        property: &'static str,
    },
    HostPort {
        name: &'static str,
        value: String,
        why: &'static str,
    },
    /// What the broker says of its properties, each with name, value and what is allowed.
    Properties(Vec<String>),
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingsError::File { path, error } => {
                write!(f, "read {}: {error}; give a readable file as --config", path.display())
            }
            SettingsError::TooLarge { path } => {
                write!(f, "{}: more than {FILE_BYTES_MAX} bytes; give a file of properties as --config", path.display())
            }
            SettingsError::Syntax { path, error } => {
                write!(f, "{}: {error}; write the backslash twice", path.display())
            }
            SettingsError::Twice { option, property } => {
                write!(f, "{option} and --set {property} say the same thing; give one of them")
            }
            SettingsError::HostPort { name, value, why } => write!(f, "{name} {}: {why}", value.escape_debug()),
            SettingsError::Properties(errors) => f.write_str(&errors.join("; ")),
        }
    }
}
impl std::error::Error for SettingsError {}

/// The node's settings, and a line each for what was accepted and has no effect.
pub fn resolve(args: &StartArgs) -> Result<(NodeConfig, Vec<String>), SettingsError> {
    let file = args.config.as_deref().map(read).transpose()?.unwrap_or_default();
    resolve_with(args, file)
}

fn read(path: &Path) -> Result<Vec<(String, String)>, SettingsError> {
    let failed = |error| SettingsError::File { path: path.into(), error };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(SettingsError::TooLarge { path: path.into() });
    }
    properties::parse(&text).map_err(|error| SettingsError::Syntax { path: path.into(), error })
}

fn resolve_with(args: &StartArgs, file: Vec<(String, String)>) -> Result<(NodeConfig, Vec<String>), SettingsError> {
    let given = [
        ("--data-dir", args.data_dir.is_some()),
        ("--listen", args.listen.is_some()),
        ("--advertise", args.advertise.is_some()),
    ];
    for (property, option) in SAME {
        if given.contains(&(option, true)) && args.set.iter().any(|(name, _)| name == property) {
            return Err(SettingsError::Twice { option, property });
        }
    }
    // A file's `log.dir` must not outlive a `log.dirs` that was set behind it.
    let mut properties: BTreeMap<String, String> = file.into_iter().collect();
    if args.set.iter().any(|(name, _)| name == "log.dir") {
        properties.remove("log.dirs");
    }
    properties.extend(args.set.iter().cloned());

    let warnings = BrokerConfig::parse(&properties).map_err(SettingsError::Properties)?.warnings;
    let mut config = NodeConfig::new(data_dir(args, &properties));
    if let Some(listen) = &args.listen {
        config.listen = host_port("--listen", listen)?;
    } else if let Some(listen) = properties.get("listeners").and_then(|value| client_listener(value, &properties)) {
        config.listen = host_port("listeners", listen)?;
    }
    if let Some(advertise) = &args.advertise {
        config.advertise = Some(host_port("--advertise", advertise)?);
    } else if let Some(told) =
        properties.get("advertised.listeners").and_then(|value| client_listener(value, &properties))
    {
        config.advertise = Some(host_port("advertised.listeners", told)?);
    }
    match args.admin_listen.as_deref() {
        None => {}
        Some("none") => config.admin_listen = None,
        Some(admin) => config.admin_listen = Some(host_port("--admin-listen", admin)?),
    }
    config.cores = args.cores;
    // What an option decided is not to be read once more from here.
    properties.retain(|name, _| !SAME.iter().any(|(same, _)| same == name));
    config.properties = properties;
    Ok((config, warnings))
}

fn data_dir(args: &StartArgs, properties: &BTreeMap<String, String>) -> PathBuf {
    let property = || properties.get("log.dirs").or_else(|| properties.get("log.dir"));
    match (&args.data_dir, property()) {
        (Some(dir), _) => dir.clone(),
        (None, Some(dir)) => PathBuf::from(dir.trim()),
        (None, None) => PathBuf::from("./ringmain-data"),
    }
}

/// `HOST:PORT` of the first listener that is not the controller's.
fn client_listener<'a>(listeners: &'a str, properties: &BTreeMap<String, String>) -> Option<&'a str> {
    let controllers = properties.get("controller.listener.names").map_or("CONTROLLER", String::as_str);
    let mut listeners = listeners.split(',').map(str::trim).filter_map(|one| one.split_once("://"));
    let client = listeners.find(|(name, _)| !controllers.split(',').any(|other| other.trim() == *name));
    client.map(|(_, address)| address)
}

/// `HOST:PORT`, `[V6]:PORT`, or `:PORT` for every address of the machine.
pub fn host_port(name: &'static str, text: &str) -> Result<HostPort, SettingsError> {
    let fault = |why| SettingsError::HostPort { name, value: text.chars().take(100).collect(), why };
    let (host, port) = text.trim().rsplit_once(':').ok_or(fault("not HOST:PORT"))?;
    let port = port.parse().map_err(|_| fault("the port is not a number from 0 to 65535"))?;
    let host = match host.strip_prefix('[') {
        Some(rest) => {
            let address = rest.strip_suffix(']').filter(|inside| inside.parse::<std::net::Ipv6Addr>().is_ok());
            address.ok_or(fault("not an IPv6 address in brackets"))?
        }
        None if host.contains(':') => return Err(fault("write an IPv6 address in brackets")),
        None if host.contains(|c: char| c.is_whitespace() || c == '/') => return Err(fault("not HOST:PORT")),
        None if host.is_empty() => "0.0.0.0",
        None => host,
    };
    Ok((host.into(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }
    fn resolved(args: &StartArgs, file: &[(&str, &str)]) -> NodeConfig {
        resolve_with(args, pairs(file)).unwrap().0
    }

    #[test]
    fn defaults() {
        let config = resolved(&StartArgs::default(), &[]);
        assert_eq!(config.data_dir, Path::new("./ringmain-data"));
        assert_eq!(config.listen, ("127.0.0.1".into(), 9092));
        assert_eq!(config.advertise, None);
        assert_eq!(config.admin_listen, Some(("127.0.0.1".into(), 9644)));
        assert_eq!((config.cores, config.properties.len()), (None, 0));
    }

    #[test]
    fn options_win_over_set_and_set_over_the_file() {
        let file = [
            ("listeners", "CONTROLLER://:9093, PLAINTEXT://10.0.0.1:1000"),
            ("advertised.listeners", "PLAINTEXT://broker:1001"),
            ("log.dirs", "/from/file"),
            ("num.partitions", "3"),
        ];
        let mut args = StartArgs::default();
        let config = resolved(&args, &file);
        assert_eq!(config.data_dir, Path::new("/from/file"));
        assert_eq!(config.listen, ("10.0.0.1".into(), 1000));
        assert_eq!(config.advertise, Some(("broker".into(), 1001)));
        assert_eq!(config.properties, BTreeMap::from([("num.partitions".into(), "3".into())]));

        args.set = pairs(&[("log.dir", "/from/set"), ("num.partitions", "4"), ("listeners", "PLAINTEXT://h:2000")]);
        let config = resolved(&args, &file);
        assert_eq!(config.data_dir, Path::new("/from/set"));
        assert_eq!(config.listen, ("h".into(), 2000));
        assert_eq!(config.properties["num.partitions"], "4");

        args.set = pairs(&[("num.partitions", "4")]);
        args.data_dir = Some("/from/option".into());
        args.listen = Some("[::1]:3000".into());
        args.advertise = Some("other:3001".into());
        args.admin_listen = Some("none".into());
        let config = resolved(&args, &file);
        assert_eq!(config.data_dir, Path::new("/from/option"));
        assert_eq!(config.listen, ("::1".into(), 3000));
        assert_eq!(config.advertise, Some(("other".into(), 3001)));
        assert_eq!(config.admin_listen, None);
    }

    #[test]
    fn an_option_and_set_must_not_meet() {
        for (property, option) in SAME {
            let mut args = StartArgs { set: pairs(&[(property, "x")]), ..StartArgs::default() };
            args.data_dir = (option == "--data-dir").then(|| "/d".into());
            args.listen = (option == "--listen").then(|| "h:1".into());
            args.advertise = (option == "--advertise").then(|| "h:1".into());
            let error = resolve_with(&args, Vec::new()).unwrap_err();
            assert!(matches!(error, SettingsError::Twice { .. }), "{error}");
        }
    }

    #[test]
    fn an_empty_host_is_every_address() {
        let args = StartArgs { listen: Some(":9092".into()), ..StartArgs::default() };
        let config = resolved(&args, &[]);
        // What clients are told then, the node finds out.
        assert_eq!((config.listen, config.advertise), (("0.0.0.0".into(), 9092), None));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |set: &[(&str, &str)]| {
            resolve_with(&StartArgs { set: pairs(set), ..StartArgs::default() }, Vec::new()).unwrap_err().to_string()
        };
        let text = error(&[("num.partitions", "many")]);
        assert!(text.contains("num.partitions") && text.contains("many"), "{text}");
        assert!(error(&[("log.dirs", "/a,/b")]).contains("log.dirs"));
        assert!(error(&[("num.partition", "3")]).contains("num.partition"));
        assert!(error(&[("listeners", "SSL://:9092")]).contains("PLAINTEXT"));
        for bad in ["9092", "h:", "h:x", "h:65536", "::1:9092", "[::1:9092", "a b:1", "http://h:1"] {
            let args = StartArgs { listen: Some(bad.into()), ..StartArgs::default() };
            assert!(matches!(resolve_with(&args, Vec::new()), Err(SettingsError::HostPort { .. })), "{bad}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_one_line() {
        let args = StartArgs { config: Some("/no/such/file".into()), ..StartArgs::default() };
        let text = resolve(&args).unwrap_err().to_string();
        assert!(text.starts_with("read /no/such/file: No such file") && !text.contains('\n'), "{text}");
    }
}
