"""Each client library as producer and as assigned consumer: every codec of each, read by each other."""

from harness import CODECS, Failed, case, eq

LIBRARIES = ["librdkafka", "franz-go", "kafka-python"]
COUNT = 300


def expected():
    rows = []
    for i in range(COUNT):
        rows.append(f"{i} k{i} {f'v{i}-' * (1 + i % 7)} h={i},n=")
    return rows


@case
def clients_read_each_other(w):
    topic = w.topic("clients")
    pairs = [(library, codec) for library in LIBRARIES for codec in CODECS]
    w.create(topic, len(pairs))
    for partition, (library, codec) in enumerate(pairs):
        said = w.client(library, "produce", topic, partition, codec, COUNT).split()
        eq(said, ["0", str(COUNT - 1), str(COUNT)], f"{library}'s acknowledged offsets with {codec}")
    wrong = []
    for partition, (library, codec) in enumerate(pairs):
        for reader in LIBRARIES:
            rows = w.client(reader, "consume", topic, partition, COUNT).splitlines()
            if rows != expected():
                first = next((a for a in zip(rows, expected()) if a[0] != a[1]), f"{len(rows)} rows")
                wrong.append(f"{library} with {codec} read by {reader}: {first}")
    if wrong:
        raise Failed("; ".join(wrong))


@case
def clients_produce_to_a_missing_topic(w):
    """A topic is made on first use, and its first record is kept."""
    for library in LIBRARIES:
        if library == "franz-go":
            continue  # asks for auto-creation only when told to
        topic = w.topic(f"made-by-{library}")
        eq(w.client(library, "produce", topic, 0, "none", 10).split(), ["0", "9", "10"], library)
