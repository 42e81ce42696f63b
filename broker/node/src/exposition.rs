//! The numbers of a node in Prometheus' text format (version 0.0.4).

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::sync::Arc;

use ringmain_metadata::ClusterImage;
use ringmain_shard::Figures;
use ringmain_types::{ErrorCode, Offset, Partition};
use ringmain_wire::APIS;

use crate::metrics::{
    BUCKETS_NS, CLOSES, COMPACTION, Core, Counter, GAUGES, Health, MEMORY, Metrics, PHASES, PartitionCell,
};

pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All of them. Sums are taken here, not on the cores.
pub(crate) fn render(metrics: &Metrics) -> String {
    let mut page = Page(String::with_capacity(64 << 10));
    let image = metrics.image();
    node(&mut page, metrics);
    process(&mut page);
    cores(&mut page, &metrics.cores);
    requests(&mut page, &metrics.cores);
    if let Some(image) = image {
        cluster(&mut page, &image);
        partitions(&mut page, &metrics.cores, &image);
    }
    groups(&mut page, &metrics.cores);
    page.0
}

struct Page(String);
impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            self.0.push(if at == 0 { '{' } else { ',' });
            let _ = write!(self.0, "{label}=\"");
            for c in text.chars() {
                match c {
                    '\\' | '"' => self.0.extend(['\\', c]),
                    '\n' => self.0.push_str("\\n"),
                    other => self.0.push(other),
                }
            }
            self.0.push('"');
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }
}

fn node(page: &mut Page, metrics: &Metrics) {
    let build = "ringmain_build_info";
    page.family(build, "gauge", "Always 1; the label is the version.");
    page.sample(build, &[("version", env!("CARGO_PKG_VERSION"))], 1);
    let uptime = metrics.started.elapsed().as_secs_f64();
    page.single("ringmain_uptime_seconds", "gauge", "Since the process started its cores.", uptime);
    let ready = u8::from(metrics.health() == Health::Ready);
    page.single("ringmain_ready", "gauge", "1 when every shard is ready and no directory is fenced.", ready);
    let fenced = metrics.cores.iter().any(|core| core.fenced.lock().is_ok_and(|why| why.is_some()));
    page.single("ringmain_fenced_dirs", "gauge", "Log directories that failed and take no writes.", u8::from(fenced));
}

/// What the kernel knows of the process, where it says so.
fn process(page: &mut Page) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    if let Some(kib) = resident.and_then(|kib| kib.parse::<u64>().ok()) {
        page.single("process_resident_memory_bytes", "gauge", "Resident memory.", kib << 10);
    }
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the command's name, which may hold anything: state is field 3, user and system time 14 and 15.
    let fields: Vec<&str> = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ').collect();
    let ticks = |at: usize| fields.get(at - 3).and_then(|ticks| ticks.parse::<u64>().ok());
    if let (Some(user), Some(system)) = (ticks(14), ticks(15)) {
        // The kernel's USER_HZ is 100 on every architecture that io_uring runs on.
        let seconds = (user + system) as f64 / 100.0;
        page.single("process_cpu_seconds_total", "counter", "User and system time.", seconds);
    }
}

fn cores(page: &mut Page, cores: &[Core]) {
    for (at, (suffix, kind, help)) in GAUGES.iter().enumerate() {
        let name = format!("ringmain_{suffix}");
        per_core(page, cores, (&name, kind, help), |core| core.gauges[at].get());
    }
    let name = "ringmain_messages_in_total";
    per_core(page, cores, (name, "counter", "Records appended and acknowledged."), |core| core.messages_in.get());
    let name = "ringmain_bytes_in_total";
    per_core(page, cores, (name, "counter", "Bytes of record batches produced."), |core| core.bytes_in.get());
    let name = "ringmain_bytes_out_total";
    per_core(page, cores, (name, "counter", "Bytes of record batches fetched."), |core| core.bytes_out.get());
    let (name, help) = ("ringmain_no_space_total", "Times that a partition found no space left on its disk.");
    per_core(page, cores, (name, "counter", help), |core| core.no_space.get());
    let (name, help) =
        ("ringmain_damaged_places_total", "Places in files whose bytes do not check, as starts and reads met them.");
    per_core(page, cores, (name, "counter", help), |core| core.damaged.get());
    for (at, (suffix, kind, help)) in COMPACTION.iter().enumerate() {
        let name = format!("ringmain_compaction_{suffix}");
        per_core(page, cores, (&name, kind, help), |core| core.compaction[at].get());
    }
    for (name, help, of_both) in [
        (
            "ringmain_memory_bytes",
            "What an account's memory is used for; reply: unsent replies and requests under way.",
            0,
        ),
        ("ringmain_memory_limit_bytes", "What an account may take.", 1),
    ] {
        page.family(name, "gauge", help);
        for (shard, core) in cores.iter().enumerate() {
            for (account, (used, allowed)) in MEMORY.iter().zip(&core.memory) {
                let value = [used, allowed][of_both].get();
                page.sample(name, &[("shard", &shard.to_string()), ("account", account)], value);
            }
        }
    }
    let name = "ringmain_connections_closed_total";
    page.family(name, "counter", "Client connections closed, by reason.");
    for (at, reason) in CLOSES.iter().enumerate() {
        page.sample(name, &[("reason", reason)], sum(cores, |core| &core.closes[at]));
    }
}

fn per_core(page: &mut Page, cores: &[Core], (name, kind, help): (&str, &str, &str), value: impl Fn(&Core) -> u64) {
    page.family(name, kind, help);
    for (shard, core) in cores.iter().enumerate() {
        page.sample(name, &[("shard", &shard.to_string())], value(core));
    }
}

fn sum<'a>(cores: &'a [Core], counter: impl Fn(&'a Core) -> &'a Counter) -> u64 {
    cores.iter().map(|core| counter(core).get()).fold(0, u64::wrapping_add)
}

/// APIs by name, and what none is; those that were asked for.
fn asked_apis(cores: &[Core]) -> Vec<(usize, &'static str)> {
    let names = APIS.iter().map(|spec| spec.name).chain(["Unknown"]);
    names.enumerate().filter(|(at, _)| sum(cores, |core| &core.apis[*at].requests) > 0).collect()
}

fn requests(page: &mut Page, cores: &[Core]) {
    let asked = asked_apis(cores);
    let name = "ringmain_requests_total";
    page.family(name, "counter", "Requests answered, by API.");
    for (at, api) in &asked {
        page.sample(name, &[("api", api)], sum(cores, |core| &core.apis[*at].requests));
    }
    let name = "ringmain_request_errors_total";
    page.family(name, "counter", "Requests answered with an error, by API and Kafka's error.");
    for (at, api) in &asked {
        for code in 0..cores[0].apis[*at].errors.len() {
            let count = sum(cores, |core| &core.apis[*at].errors[code]);
            if count > 0 {
                let error = i16::try_from(code as i64 - 1).ok().and_then(ErrorCode::from_code);
                let error = error.map_or("Other".into(), |error| format!("{error:?}"));
                page.sample(name, &[("api", api), ("error", &error)], count);
            }
        }
    }
    let name = "ringmain_request_seconds";
    page.family(name, "histogram", "Time of requests, by API and phase.");
    for (at, api) in &asked {
        for (phase, label) in PHASES.iter().enumerate() {
            histogram(page, cores, (*at, api), (phase, label));
        }
    }
}

fn histogram(page: &mut Page, cores: &[Core], (api, api_name): (usize, &str), (phase, phase_name): (usize, &str)) {
    let labels = [("api", api_name), ("phase", phase_name)];
    let mut below = 0u64;
    for bucket in 0..=BUCKETS_NS.len() {
        below += sum(cores, |core| &core.apis[api].phases[phase].buckets[bucket]);
        let bound = BUCKETS_NS.get(bucket).map_or("+Inf".into(), |ns| (*ns as f64 / 1e9).to_string());
        let labels = [labels[0], labels[1], ("le", &bound)];
        page.sample("ringmain_request_seconds_bucket", &labels, below);
    }
    let seconds = sum(cores, |core| &core.apis[api].phases[phase].sum_ns) as f64 / 1e9;
    page.sample("ringmain_request_seconds_sum", &labels, seconds);
    page.sample("ringmain_request_seconds_count", &labels, below);
}

fn cluster(page: &mut Page, image: &ClusterImage) {
    let states = || image.topics.values().flat_map(|topic| &topic.partitions);
    let leaderless = states().filter(|state| state.leader.0 < 0).count();
    let under = states().filter(|state| state.isr.len() < state.replicas.len()).count();
    page.single("ringmain_topics", "gauge", "Topics of the cluster.", image.topics.len());
    page.single("ringmain_partitions", "gauge", "Partitions of the cluster.", image.partitions);
    page.single("ringmain_offline_partitions", "gauge", "Partitions without a leader.", leaderless);
    let help = "Partitions with fewer replicas in sync than they have.";
    page.single("ringmain_under_replicated_partitions", "gauge", help, under);
}

/// Name, kind, help and where it is read.
type Series = (&'static str, &'static str, &'static str, fn(&PartitionCell) -> &Counter);
const SERIES: [Series; 7] = [
    ("ringmain_partition_messages_in_total", "counter", "Records appended and acknowledged.", |cell| &cell.messages_in),
    ("ringmain_partition_bytes_in_total", "counter", "Bytes of record batches produced.", |cell| &cell.bytes_in),
    ("ringmain_partition_bytes_out_total", "counter", "Bytes of record batches fetched.", |cell| &cell.bytes_out),
    ("ringmain_log_start_offset", "gauge", "The first offset that is kept.", |cell| &cell.start),
    ("ringmain_log_end_offset", "gauge", "The offset behind the last record.", |cell| &cell.end),
    ("ringmain_high_watermark", "gauge", "The offset behind the last record that consumers see.", |cell| {
        &cell.high_watermark
    }),
    ("ringmain_log_size_bytes", "gauge", "Bytes of record batches kept.", |cell| &cell.size_bytes),
];

fn partitions(page: &mut Page, cores: &[Core], image: &ClusterImage) {
    let left_out = sum(cores, |core| &core.partitions_left_out);
    let help = "Updates of partitions that have no series of their own because there are too many.";
    page.single("ringmain_partition_updates_left_out_total", "counter", help, left_out);
    let lists = cores.iter().filter_map(|core| core.partitions.lock().ok().map(|list| list.clone()));
    let named: Vec<(Arc<PartitionCell>, &str, String)> = lists
        .flatten()
        .filter_map(|cell| {
            let name = match image.topics.get(&cell.partition.topic) {
                Some(topic) => &*topic.name,
                None if cell.partition == Partition::METADATA => "__cluster_metadata",
                None => return None,
            };
            let index = cell.partition.index.0.to_string();
            Some((cell, name, index))
        })
        .collect();
    for (name, kind, help, counter) in SERIES {
        page.family(name, kind, help);
        for (cell, topic, index) in &named {
            page.sample(name, &[("topic", topic), ("partition", index)], counter(cell).get());
        }
    }
}

fn groups(page: &mut Page, cores: &[Core]) {
    let (name, help) = ("ringmain_groups", "Consumer groups that the shard's coordinators know.");
    per_core(page, cores, (name, "gauge", help), |core| core.groups_known.get());
    let help = "Updates of groups that have no series of their own because there are too many.";
    let left_out = sum(cores, |core| &core.groups_left_out);
    page.single("ringmain_group_updates_left_out_total", "counter", help, left_out);
    let lists = cores.iter().filter_map(|core| core.groups.lock().ok().map(|list| list.clone()));
    let listed: Vec<(Arc<str>, Arc<Figures>)> = lists.flatten().collect();
    if listed.is_empty() {
        return;
    }
    let ends = high_watermarks(cores);
    // Of partitions that have a series; what was committed beyond the end (it was cut) is no lag.
    let lags: Vec<(u64, u64)> = listed
        .iter()
        .map(|(_, figures)| {
            let lag = |(partition, offset): &(Partition, Offset)| {
                Some(ends.get(partition)?.saturating_sub(u64::try_from(offset.0).ok()?))
            };
            let lags = figures.offsets.iter().filter_map(lag);
            lags.fold((0, 0), |(sum, max), lag| (lag.saturating_add(sum), lag.max(max)))
        })
        .collect();
    let mut family = |name: &str, kind: &str, help: &str, value: &dyn Fn(usize) -> u64| {
        page.family(name, kind, help);
        for (at, (group, _)) in listed.iter().enumerate() {
            page.sample(name, &[("group", group)], value(at));
        }
    };
    family("ringmain_group_lag_sum", "gauge", "Records that the group has not read, of all its partitions.", &|at| {
        lags[at].0
    });
    family("ringmain_group_lag_max", "gauge", "Records that the group has not read, of the worst partition.", &|at| {
        lags[at].1
    });
    family("ringmain_group_members", "gauge", "Members of the group.", &|at| u64::from(listed[at].1.members));
    family("ringmain_group_rebalances_total", "counter", "Generations or epochs of the group.", &|at| {
        listed[at].1.rebalances
    });
    family("ringmain_group_offsets_committed_total", "counter", "Offsets that the group committed.", &|at| {
        listed[at].1.commits
    });
}

fn high_watermarks(cores: &[Core]) -> BTreeMap<Partition, u64> {
    let lists = cores.iter().filter_map(|core| core.partitions.lock().ok().map(|list| list.clone()));
    lists.flatten().map(|cell| (cell.partition, cell.high_watermark.get())).collect()
}

#[cfg(test)]
mod tests {
    use ringmain_session::Close;
    use ringmain_shard::{Note, Phases};
    use ringmain_types::*;

    use super::*;
    use crate::metrics::tests::{NOW, image, partition};
    use crate::notes::Gauges;

    fn page() -> String {
        let metrics = Metrics::new(2, &Limits::tiny());
        let mut sinks = [metrics.sink(ShardId(0)), metrics.sink(ShardId(1))];
        let phases = Phases { local_ns: 2_000_000, send_ns: 30_000, ..Phases::default() };
        for (sink, error) in [(0, ErrorCode::None), (1, ErrorCode::None), (1, ErrorCode::MessageTooLarge)] {
            sinks[sink].note(NOW, &Note::Request { api: 0, version: 9, error, phases });
        }
        sinks[0].note(NOW, &Note::Request { api: 999, version: 0, error: ErrorCode::UnknownServerError, phases });
        sinks[0].note(NOW, &image(1, &[(5, "a")]));
        for (sink, topic) in [(0, 5), (1, 9)] {
            let partition = partition(topic, sink as i32);
            sinks[sink].note(NOW, &Note::Acked { partition, base: Offset(5), next: Offset(9), acks: 1 });
            sinks[sink].note(NOW, &Note::Traffic { partition, in_bytes: 300, out_bytes: 20 });
            let (start, end) = (Offset(2), Offset(9));
            sinks[sink].note(NOW, &Note::Log { partition, start, end, size_bytes: 700 });
        }
        let offsets = vec![(partition(5, 0), Offset(3)), (partition(5, 7), Offset(1)), (partition(9, 1), Offset(99))];
        let figures = Figures { members: 2, rebalances: 4, commits: 6, offsets };
        sinks[0].note(NOW, &Note::Visible { partition: partition(5, 0), high_watermark: Offset(9) });
        sinks[1].note(NOW, &Note::Visible { partition: partition(9, 1), high_watermark: Offset(9) });
        sinks[1].note(NOW, &Note::Group { group: "g\"".into(), figures: Some(Arc::new(figures.clone())) });
        sinks[1].note(NOW, &Note::Group { group: "gone".into(), figures: Some(Arc::new(figures)) });
        sinks[1].note(NOW, &Note::Group { group: "gone".into(), figures: None });
        sinks[1].note(NOW, &Note::Groups { count: 1 });
        let connection = ConnectionId { shard: ShardId(0), slot: 0, generation: 0 };
        let peer = "127.0.0.1:1".parse().unwrap();
        sinks[1].note(NOW, &Note::Closed { connection, peer, why: Close::Protocol("HTTP".into()) });
        for sink in &mut sinks {
            sink.turn(NOW, &Gauges { connections: 3, disk_flushes: 8, ..Gauges::default() });
        }
        render(&metrics)
    }

    #[test]
    fn every_number_is_there() {
        let page = page();
        for line in [
            "ringmain_requests_total{api=\"Produce\"} 3",
            "ringmain_requests_total{api=\"Unknown\"} 1",
            "ringmain_request_errors_total{api=\"Produce\",error=\"MessageTooLarge\"} 1",
            "ringmain_request_errors_total{api=\"Unknown\",error=\"UnknownServerError\"} 1",
            "ringmain_request_seconds_bucket{api=\"Produce\",phase=\"local\",le=\"0.001\"} 0",
            "ringmain_request_seconds_bucket{api=\"Produce\",phase=\"local\",le=\"0.0025\"} 3",
            "ringmain_request_seconds_bucket{api=\"Produce\",phase=\"total\",le=\"+Inf\"} 3",
            "ringmain_request_seconds_count{api=\"Produce\",phase=\"send\"} 3",
            "ringmain_request_seconds_sum{api=\"Produce\",phase=\"local\"} 0.006",
            "ringmain_partition_messages_in_total{topic=\"a\",partition=\"0\"} 4",
            "ringmain_partition_bytes_in_total{topic=\"a\",partition=\"0\"} 300",
            "ringmain_partition_bytes_out_total{topic=\"a\",partition=\"0\"} 20",
            "ringmain_log_start_offset{topic=\"a\",partition=\"0\"} 2",
            "ringmain_log_end_offset{topic=\"a\",partition=\"0\"} 9",
            "ringmain_log_size_bytes{topic=\"a\",partition=\"0\"} 700",
            "ringmain_messages_in_total{shard=\"1\"} 4",
            "ringmain_connections{shard=\"0\"} 3",
            "ringmain_flushes_total{shard=\"1\"} 8",
            "ringmain_connections_closed_total{reason=\"protocol\"} 1",
            "ringmain_groups{shard=\"1\"} 1",
            "ringmain_group_lag_sum{group=\"g\\\"\"} 6",
            "ringmain_group_lag_max{group=\"g\\\"\"} 6",
            "ringmain_group_members{group=\"g\\\"\"} 2",
            "ringmain_group_rebalances_total{group=\"g\\\"\"} 4",
            "ringmain_group_offsets_committed_total{group=\"g\\\"\"} 6",
            "ringmain_topics 1",
            "ringmain_ready 0",
        ] {
            assert!(page.lines().any(|other| other == line), "{line} is not in\n{page}");
        }
        assert!(!page.contains("api=\"Fetch\""), "what was never asked has no series");
        assert!(page.contains("process_resident_memory_bytes ") && page.contains("process_cpu_seconds_total "));
    }

    /// Each family once, its samples behind its type, no sample twice, every value a number.
    #[test]
    fn the_page_is_well_formed() {
        let page = page();
        let (mut families, mut samples) = (Vec::new(), Vec::new());
        for line in page.lines() {
            if let Some(family) = line.strip_prefix("# TYPE ") {
                let name = family.split(' ').next().unwrap();
                assert!(!families.contains(&name), "{name} twice");
                families.push(name);
            } else if !line.starts_with('#') {
                let (series, value) = line.rsplit_once(' ').unwrap();
                assert!(value.parse::<f64>().is_ok(), "{line}");
                assert!(!samples.contains(&series), "{series} twice");
                let name = series.split('{').next().unwrap();
                assert!(name.starts_with(families.last().unwrap()), "{name} is not of the family before it");
                samples.push(series);
            }
        }
        assert!(samples.len() > 100);
    }

    #[test]
    fn label_values_are_escaped() {
        let mut page = Page(String::new());
        page.sample("x", &[("a", "b\"c\\d\ne")], 1);
        assert_eq!(page.0, "x{a=\"b\\\"c\\\\d\\ne\"} 1\n");
    }
}
