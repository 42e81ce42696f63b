"""No window: what was acknowledged holds at once, for everybody.

A created topic takes produce, fetch and ListOffsets on every partition, with every kind of acks; a deleted one is gone; one that is
made again under its name is new. No client retries here, so that an answer that is late would be seen. Kafka has that window: there
these cases fail, now and then.
"""

import json
import socket

import raw
from harness import Failed, case, eq, sh, until

PARTITIONS = 4
ROUNDS = 50
UNKNOWN_TOPIC = 3


def every(answer):
    return {index: answer for index in range(PARTITIONS)}


@case
def window_recreated_topics(w):
    """Fifty lives of one topic; each is asked on two connections, which are two cores', and by kcat in every tenth."""
    t = w.topic("window")
    one, two = raw.Client(w.bootstrap), raw.Client(w.bootstrap)
    for life in range(ROUNDS):
        one, two = two, one
        eq(one.create(t, PARTITIONS), 0, f"creation {life}")
        eq(two.metadata(t), (0, [(i, 0, two.metadata(t)[1][i][2]) for i in range(PARTITIONS)]), "partitions and errors")
        eq(two.offsets(t, PARTITIONS, -1), every((0, 0)), f"end offsets in life {life}")
        for acks in (0, 1, -1):
            some = {i: [f"{life} {acks} {i}"] for i in range(PARTITIONS)}
            base = {0: 0, 1: 1, -1: 2}[acks]
            answer = two.produce(t, acks, some)
            if acks:
                eq(answer, every((0, base)), f"acks={acks} in life {life}")
            else:
                # Seen once it is durable; the others come behind it.
                until(20, f"all of acks=0 in life {life}", lambda: two.offsets(t, PARTITIONS, -1) == every((0, 1)))
        eq(one.fetch(t, PARTITIONS), {i: (0, [(n, f"{life} {acks} {i}") for n, acks in enumerate((0, 1, -1))]) for i in range(PARTITIONS)},
           f"what is read in life {life}")
        if life % 10 == 0:
            w.kcat("-P", "-t", t, "-p", "3", "-X", "retries=0", stdin="kcat\n")
            eq(w.kcat("-C", "-t", t, "-p", "3", "-o", "beginning", "-e", "-q").splitlines()[-1], "kcat")
        eq(two.delete(t), 0, f"deletion {life}")
        eq(one.metadata(t)[0], UNKNOWN_TOPIC, "metadata of a deleted topic")
        for client in (one, two):
            eq({e for e, _ in client.offsets(t, PARTITIONS, -1).values()}, {UNKNOWN_TOPIC}, "offsets of a deleted topic")
            eq({e for e, _ in client.fetch(t, PARTITIONS).values()}, {UNKNOWN_TOPIC}, "a deleted topic's records")
            eq({e for e, _ in client.produce(t, 1, {0: ["late"]}).values()}, {UNKNOWN_TOPIC}, "Produce to a deleted topic")


@case
def window_librdkafka(w):
    w.client("librdkafka", "recreate", w.topic("window-rdk"), PARTITIONS, ROUNDS, timeout=240)


@case
def window_java(w):
    out, err, _ = sh("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", f"{w.jars}/*",
                     w.here / "Window.java", w.bootstrap, w.topic("window-java"), str(PARTITIONS), str(ROUNDS), timeout=240)
    eq(out.split()[-1:], [str(ROUNDS)], f"lives; {err[-300:]}")


@case
def window_half_closed(w):
    """A client that sends no more gets the replies to what it has sent: `nc` and some health checks end their side first."""
    t = w.topic("window-half")
    first = raw.Client(w.bootstrap)
    eq(first.create(t, PARTITIONS), 0)
    client = raw.Client(w.bootstrap)
    for index in range(PARTITIONS):
        records = raw.batch([f"value {index}"])
        body = raw.text(None) + raw.struct.pack(">hii", -1, 20_000, 1) + raw.text(t) + raw.struct.pack(">iii", 1, index, len(records)) + records
        client.tell(raw.PRODUCE, 7, body)
    client.tell(raw.METADATA, 4, raw.struct.pack(">i", 1) + raw.text(t) + b"\0")
    client.socket.shutdown(socket.SHUT_WR)
    for _ in range(PARTITIONS + 1):
        client.reply()
    try:
        client.reply()
    except ConnectionError:
        pass
    else:
        raise Failed("a sixth reply")
    eq(first.fetch(t, PARTITIONS), {i: (0, [(0, f"value {i}")]) for i in range(PARTITIONS)})


@case
def window_lists_topics(w):
    """librdkafka leaves bytes behind the end of its Metadata request for all topics; Kafka does not mind."""
    t = w.topic("window-list")
    w.create(t)
    if t not in json.loads(w.client("librdkafka", "topics", t, 0)):
        raise Failed("the new topic is not in the list")
