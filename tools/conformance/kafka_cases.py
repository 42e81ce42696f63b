"""Kafka 4.4's own command line tools."""

import json
import re
import time

from harness import CODECS, ROOT, Broker, Failed, case, eq, has, hasnt, own_broker


@case
def kafka_api_versions(w):
    out = w.tool("BrokerApiVersionsCommand")
    for line in (r"Produce\(0\): 0 to 13 \[usable: 13\]", r"Fetch\(1\): 4 to 18", r"ListOffsets\(2\): 1 to 11", r"Metadata\(3\): 0 to 13",
                 r"ApiVersions\(18\): 0 to 5", r"CreateTopics\(19\): 2 to 7", r"InitProducerId\(22\): 0 to 5", r"DescribeTopicPartitions\(75\): 0"):
        has(out, line)


@case
def kafka_topics_create_describe_list(w):
    t = w.topic("topics")
    w.tool("TopicCommand", "--create", "--topic", t, "--partitions", "3", "--replication-factor", "1",
           "--config", "retention.ms=86400000", "--config", "cleanup.policy=compact,delete")
    out = w.tool("TopicCommand", "--describe", "--topic", t)
    has(out, rf"Topic: {t}\s+TopicId: [A-Za-z0-9_-]{{22}}\s+PartitionCount: 3\s+ReplicationFactor: 1\s+Configs: .*cleanup.policy=compact,delete")
    has(w.tool("TopicCommand", "--list"), rf"^{t}$")
    has(w.tool_says("TopicCommand", "--create", "--topic", t), "already exists")
    w.tool("TopicCommand", "--create", "--if-not-exists", "--topic", t)
    identity = re.search(r"TopicId: (\S+)", out)[1]
    has(w.tool("TopicCommand", "--describe", "--topic-id", identity), t)
    has(w.tool("TopicCommand", "--describe", "--topics-with-overrides"), t)
    for state in ("under-replicated-partitions", "unavailable-partitions", "under-min-isr-partitions"):
        hasnt(w.tool("TopicCommand", "--describe", f"--{state}"), t)


@case
def kafka_topics_refused(w):
    says = lambda *a: w.tool_says("TopicCommand", "--create", "--topic", *a)
    has(says(w.topic("r"), "--partitions", "1", "--replication-factor", "30"), "[Rr]eplication factor")
    has(says(w.topic("r"), "--partitions", "0"), "greater than 0|larger than 0")
    has(says("bad*name", "--partitions", "1"), "InvalidTopicException|invalid|illegal")
    has(says(w.topic("r"), "--config", "nosuch=1"), "[Uu]nknown topic config name: nosuch")
    has(says(w.topic("r"), "--config", "retention.ms=soon"), "[Ii]nvalid value soon")
    hasnt(w.tool("TopicCommand", "--list"), rf"^{w.topic('r')}$")


@case
def kafka_topics_grow_delete_recreate(w):
    t = w.topic("grow")
    w.create(t)
    w.tool("TopicCommand", "--alter", "--topic", t, "--partitions", "4")
    has(w.tool("TopicCommand", "--describe", "--topic", t), "PartitionCount: 4")
    has(w.tool_says("TopicCommand", "--alter", "--topic", t, "--partitions", "2"), "InvalidPartitions|would not be an increase")
    before = w.tool("TopicCommand", "--describe", "--topic", t)
    w.tool("TopicCommand", "--delete", "--topic", t)
    has(w.tool_says("TopicCommand", "--describe", "--topic", t), "does not exist")
    w.create(t, 2)
    after = w.tool("TopicCommand", "--describe", "--topic", t)
    if re.search(r"TopicId: (\S+)", before)[1] == re.search(r"TopicId: (\S+)", after)[1]:
        raise Failed("a recreated topic has its old id")
    eq(w.offsets(t), {0: 0, 1: 0}, "end offsets of the recreated topic")


@case
def kafka_configs_of_a_topic(w):
    t = w.topic("configs")
    w.create(t)
    config = lambda *a: w.tool("ConfigCommand", "--entity-type", "topics", "--entity-name", t, *a)
    config("--alter", "--add-config", "retention.ms=123456,segment.bytes=1048576,cleanup.policy=[compact,delete]")
    out = config("--describe")
    has(out, "retention.ms=123456 .*DYNAMIC_TOPIC_CONFIG:retention.ms=123456")
    has(out, "cleanup.policy=compact,delete")
    config("--alter", "--delete-config", "retention.ms")
    hasnt(config("--describe"), "retention.ms=123456")
    everything = config("--describe", "--all")
    has(everything, "retention.ms=604800000 ")
    has(everything, "segment.bytes=1048576 .*DYNAMIC_TOPIC_CONFIG")
    has(w.tool_says("ConfigCommand", "--entity-type", "topics", "--entity-name", t, "--alter", "--add-config", "min.insync.replicas=-3"), "[Ii]nvalid value -3")


@case
def kafka_console_producer(w):
    t = w.topic("console")
    w.create(t)
    w.tool("ConsoleProducer", "--topic", t, "--reader-property", "parse.key=true", "--reader-property", "key.separator=|",
           stdin="a|1\nb|2\nc|3\n")
    for codec in CODECS[1:]:
        w.tool("ConsoleProducer", "--topic", t, "--compression-codec", codec, stdin=f"{codec}\n")
    out = w.tool("consumer.ConsoleConsumer", "--topic", t, "--partition", "0", "--offset", "earliest", "--max-messages", "7", "--timeout-ms", "15000")
    eq(out.split(), ["1", "2", "3", *CODECS[1:]])


@case
def kafka_performance_and_verifiable_producer(w):
    t = w.topic("perf")
    w.create(t, 3)
    out = w.tool("ProducerPerformance", "--topic", t, "--num-records", "50000", "--throughput", "-1", "--record-size", "100",
                 "--command-property", "linger.ms=5")
    has(out, "^50000 records sent")
    eq(sum(w.offsets(t).values()), 50000, "records in the log")
    v = w.topic("verifiable")
    w.create(v, 2)
    out = w.tool("VerifiableProducer", "--topic", v, "--max-messages", "500", "--acks", "-1")
    eq(out.count('"producer_send_success"'), 500, "acknowledged")
    eq(sum(w.offsets(v).values()), 500, "records in the log")


@case
def kafka_get_offsets(w):
    t = w.topic("offsets")
    w.create(t, 2, retention_ms="-1")
    w.tool("VerifiableProducer", "--topic", t, "--max-messages", "100", "--repeating-keys", "10", "--message-create-time", "1700000000000")
    total = lambda *a: sum(w.offsets(t, *a).values())
    eq((total(), total("--time", "-1"), total("--time", "-2"), total("--time", "earliest"), total("--time", "earliest-local")), (100, 100, 0, 0, 0))
    eq(total("--time", "1700000000000"), 0, "the first record at or after a time before all")
    eq(w.offsets(t, "--time", "1900000000000"), {}, "no record so late")
    newest = w.offsets(t, "--time", "max-timestamp")
    ends = w.offsets(t)
    eq(all(0 <= newest[p] < ends[p] for p in newest), True, "max-timestamp")


@case
def kafka_delete_records(w):
    t = w.topic("delete")
    w.create(t)
    w.tool("ConsoleProducer", "--topic", t, stdin="".join(f"{i}\n" for i in range(100)))
    path = w.work / "delete.json"

    def to(offset, tool=w.tool):
        path.write_text(json.dumps({"partitions": [{"topic": t, "partition": 0, "offset": offset}], "version": 1}))
        return tool("DeleteRecordsCommand", "--offset-json-file", str(path))

    has(to(40), f"{t}-0.*low_watermark: 40")
    eq(w.offsets(t, "--time", "-2"), {0: 40})
    out = w.tool("consumer.ConsoleConsumer", "--topic", t, "--partition", "0", "--offset", "earliest", "--max-messages", "1", "--timeout-ms", "15000")
    eq(out.split(), ["40"], "the first record left")
    has(to(1000, w.tool_says), "OffsetOutOfRange|not within the range|out of range")
    has(to(-1), "low_watermark: 100")


@case
def kafka_log_dirs(w):
    t = w.topic("dirs")
    w.create(t, 2)
    w.tool("ConsoleProducer", "--topic", t, stdin="".join(f"{i}\n" for i in range(100)))
    out = w.tool("LogDirsCommand", "--describe", "--topic-list", t)
    found = json.loads(next(x for x in out.splitlines() if x.startswith("{")))
    dirs = [d for b in found["brokers"] for d in b["logDirs"]]
    eq([d["error"] for d in dirs], [None], "errors")
    partitions = [p for d in dirs for p in d["partitions"]]
    eq((len(partitions), sum(p["size"] for p in partitions) > 100, {p["offsetLag"] for p in partitions}, {p["isFuture"] for p in partitions}),
       (2, True, {0}, {False}))


@case
def kafka_too_large(w):
    t = w.topic("large")
    w.create(t, 1, max_message_bytes="20000")
    w.tool("ConsoleProducer", "--topic", t, stdin="a" * 10000 + "\n")
    w.tool_says("ConsoleProducer", "--topic", t, stdin="b" * 50000 + "\n")
    eq(w.offsets(t), {0: 1}, "only the one that fits")


@case
def kafka_topic_compression(w):
    """compression.type other than `producer`: batches are stored in the topic's codec."""
    t = w.topic("recode")
    w.create(t, 1, compression_type="gzip")
    for codec in ("none", "lz4", "zstd"):
        w.tool("ConsoleProducer", "--topic", t, "--compression-codec", codec, stdin="".join(f"{i}\n" for i in range(300)))
    out = w.tool("consumer.ConsoleConsumer", "--topic", t, "--partition", "0", "--offset", "earliest", "--max-messages", "900", "--timeout-ms", "15000")
    eq((len(out.split()), sum(map(int, out.split()))), (900, 3 * 300 * 299 // 2))


@case
def kafka_log_append_time(w):
    t = w.topic("append-time")
    w.create(t, 1, message_timestamp_type="LogAppendTime")
    w.tool("ConsoleProducer", "--topic", t, stdin="x\n")
    out = w.tool("consumer.ConsoleConsumer", "--topic", t, "--partition", "0", "--offset", "earliest", "--max-messages", "1", "--timeout-ms", "15000",
                 "--formatter-property", "print.timestamp=true")
    stamp = int(re.search(r"LogAppendTime:(\d{13})\tx", out)[1])
    eq(abs(time.time() * 1000 - stamp) < 60_000, True, "the broker's clock")


@own_broker
def kafka_edges(w):
    """What must be refused, and with which code: Edges.java's questions, Kafka 4.4's answers."""
    broker = Broker(w.broker.binary, w.work / f"edges-{w.run}", "--set", "auto.create.topics.enable=false").start()
    try:
        out = w.java(w.here / "Edges.java", broker.bootstrap, timeout=240)[0]
        broker.stop()
    finally:
        broker.kill()
    got = dict(line.split("\t")[:2] for line in out.splitlines() if line.count("\t") >= 1)
    wrong = []
    for line in (ROOT / "replication/metadata/tests/data/kafka-4.4-edges.tsv").read_text().splitlines():
        if not line.startswith("#"):
            case_, theirs, *ours = line.split("\t")
            wanted = ours[0] if ours else theirs
            if got.get(case_) != wanted:
                wrong.append(f"{case_}: got {got.get(case_)}, want {wanted}")
    eq(wrong, [], "answers")
