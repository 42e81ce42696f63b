"""What compaction leaves is what Kafka's consumer and its dump tool read."""

import random
import re
import urllib.request

from harness import CODECS, Broker, Failed, World, eq, hasnt, own_broker, until

TOPIC = "latest"
KEYS, LINES = 1000, 15_000
END = LINES * len(CODECS)


def produced(seed):
    """For each codec the lines for the console producer, and each key's last value at the end; None: it was deleted."""
    rng, last, inputs = random.Random(seed), {}, {}
    for codec in CODECS:
        lines = []
        for number in range(LINES):
            # Some keys are one codec's alone: something is left of each.
            key = f"{rng.choice(('k', codec))}{rng.randrange(KEYS)}"
            last[key] = None if rng.random() < 0.1 else f"{codec}-{number}-{rng.getrandbits(400):x}"
            lines.append(f"{key}:{last[key] or 'NULL'}\n")
        inputs[codec] = "".join(lines)
    inputs[CODECS[-1]] += "end:end\n"
    return inputs, last | {"end": "end"}


def read(v):
    """Every record by its offset, as Kafka's consumer reads them: up to the last one, which nothing overwrites."""
    with v.running("consumer.ConsoleConsumer", "--topic", TOPIC, "--partition", "0", "--offset", "earliest",
                   "--formatter-property", "print.key=true", "--formatter-property", "print.offset=true",
                   "--formatter-property", "null.literal=NULL") as consumer:
        until(90, "the last record is read", lambda: consumer.lines and consumer.lines[-1] == f"Offset:{END}\tend\tend")
        records = [line.split("\t") for line in consumer.lines]
    offsets = [int(record[0].removeprefix("Offset:")) for record in records]
    eq(offsets, sorted(set(offsets)), "offsets, each once and in order")
    return {offset: (key, None if value == "NULL" else value) for offset, (_, key, value) in zip(offsets, records)}


def check(records, last, before, when):
    """Last values are right, and whatever is left stands where it stood."""
    got = {}
    for key, value in records.values():
        got[key] = value
    wrong = [key for key in last if got.get(key) != last[key]]
    eq(wrong, [], f"keys without their last value {when}")
    moved = [offset for offset, record in records.items() if before.get(offset) != record]
    eq(moved, [], f"offsets with another record {when}")


def compacted(broker):
    page = urllib.request.urlopen(f"http://127.0.0.1:{broker.admin}/metrics", timeout=5).read().decode()
    figure = lambda name: sum(int(value) for value in re.findall(rf"^ringmain_compaction_{name}{{.*}} (\d+)$", page, re.M))
    return figure("runs_total") > 0 and figure("dirty_bytes") == 0


@own_broker
def kafka_reads_compacted_topics(w):
    broker = Broker(w.broker.binary, w.work / f"compacted-{w.run}").start()
    v = World(broker.bootstrap, w.work, broker)
    try:
        # 1.0: nothing is as dirty as that.
        v.create(TOPIC, cleanup_policy="compact", segment_bytes="1048576", min_cleanable_dirty_ratio="1.0")
        inputs, last = produced(5)
        for codec, lines in inputs.items():
            v.tool("ConsoleProducer", "--topic", TOPIC, "--compression-codec", codec, "--reader-property", "parse.key=true",
                   "--reader-property", "key.separator=:", "--reader-property", "null.marker=NULL", stdin=lines)
        before = read(v)
        eq(sorted(before), list(range(END + 1)), "offsets before")
        check(before, last, before, "before")
        v.tool("ConfigCommand", "--entity-type", "topics", "--entity-name", TOPIC, "--alter", "--add-config",
               "min.cleanable.dirty.ratio=0.01")
        until(60, "compacted", lambda: compacted(broker))
        after = read(v)
        check(after, last, before, "after compaction")
        if len(after) > len(before) // 3:
            raise Failed(f"{len(after)} of {len(before)} records are left")
        broker.kill()
        broker.start()
        killed = read(v)
        check(killed, last, before, "after kill -9")
        broker.stop()
    finally:
        broker.kill()
    dumped(v, broker.directory / f"{TOPIC}-0", set(killed))


def dumped(v, folder, offsets):
    """Kafka's dump tool finds nothing wrong in the files of a stopped broker, and in the segments the records that were read."""
    files = lambda kind: ",".join(str(path) for path in sorted(folder.glob(f"*.{kind}")))
    dump = lambda kind, *args: "".join(v.java("org.apache.kafka.tools.DumpLogSegments", *args, "--files", files(kind))[:2])
    out = dump("log", "--deep-iteration")
    hasnt(out, "(?i)isvalid: false|exception|corrupt|mismatch")
    eq({int(offset) for offset in re.findall(r"^\| offset: (\d+)", out, re.M)}, offsets, "records in the segments")
    for codec in CODECS:
        if f"compresscodec: {codec} " not in out.lower():
            raise Failed(f"no batch of {codec} is left: this shows nothing of it")
    for kind in ("index", "timeindex"):
        hasnt(dump(kind, "--index-sanity-check"), "(?i)exception|corrupt|fail")
        # The tool compares a time with the records of its batch. A batch whose records all went keeps its time, on Kafka too, and has
        # none to compare with: it says -1.
        out = re.sub(r"Found timestamp mismatch in .*\n(  Index timestamp: \d+, log timestamp: -1\n)+", "", dump(kind))
        hasnt(out, "(?i)exception|mismatch|out of order|does not|no corresponding|Indexed offset")
