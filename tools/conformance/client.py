"""client.py LIBRARY VERB BOOTSTRAP TOPIC ...: one producer and one assigned consumer over confluent-kafka (librdkafka) or kafka-python.

produce BOOTSTRAP TOPIC PARTITION CODEC COUNT   sends COUNT records of a known content, waits for every ack, prints the offsets' range
consume BOOTSTRAP TOPIC PARTITION COUNT         reads from offset 0 and prints one line a record: offset, key, value, headers
recreate BOOTSTRAP TOPIC PARTITIONS ROUNDS      (librdkafka) creates, writes without retries, reads, deletes, again and again
topics BOOTSTRAP - 0                            (librdkafka) the names of all topics as JSON
group BOOTSTRAP TOPIC MEMBERS GROUP PROTOCOL COUNT   MEMBERS members of GROUP (PROTOCOL: classic or consumer) read COUNT records from the
                                                earliest, commit them and leave; a line a record: member, partition, offset, value
member BOOTSTRAP TOPIC 0 GROUP PROTOCOL         (librdkafka) one member that reads and commits until it is killed; prints its assignments too
committed BOOTSTRAP TOPIC PARTITIONS GROUP      (librdkafka) what the group committed for each partition
The content of record i: key k<i>, value v<i>- repeated 1 + i % 7 times, headers h=<i> and an empty n; go/main.go has the same.
"""

import sys
import time


def content(i):
    return f"k{i}".encode(), (f"v{i}-" * (1 + i % 7)).encode(), [("h", str(i).encode()), ("n", b"")]


def show(offset, key, value, headers):
    text = ",".join(f"{k}={'null' if v is None else v.decode()}" for k, v in headers)
    print(f"{offset} {key.decode()} {value.decode()} {text}")


def confluent_produce(bootstrap, topic, partition, codec, count):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20, "enable.idempotence": True})
    offsets = []

    def acked(error, message):
        if error:
            sys.exit(f"not acknowledged: {error}")
        offsets.append(message.offset())

    for i in range(count):
        key, value, headers = content(i)
        producer.produce(topic, value, key, partition, headers=headers, on_delivery=acked)
    if producer.flush(30):
        sys.exit("not everything was acknowledged within 30 s")
    print(min(offsets), max(offsets), len(set(offsets)))


def confluent_consume(bootstrap, topic, partition, count):
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0)])
    for _ in range(count):
        m = consumer.poll(20)
        if m is None or m.error():
            sys.exit(f"no record: {m and m.error()}")
        show(m.offset(), m.key(), m.value(), m.headers() or [])
    consumer.close()


def confluent_recreate(bootstrap, topic, partitions, rounds):
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for life in range(rounds):
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(20)
        # Clients of their own each time: what an old one knows of the name is its own affair.
        producer = Producer({"bootstrap.servers": bootstrap, "retries": 0, "acks": (0, 1, "all")[life % 3]})
        failed = []
        for partition in range(partitions):
            value = f"{life} {partition}".encode()
            producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: error and failed.append(error))
        if producer.flush(20) or failed:
            sys.exit(f"life {life}: {failed or 'not everything was acknowledged'}")
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        got = [consumer.poll(20) for _ in range(partitions)]
        errors = [m and m.error() for m in got if m is None or m.error()]
        if errors:
            sys.exit(f"life {life}: {errors}")
        seen = sorted((m.offset(), m.value().decode()) for m in got)
        if seen != [(0, f"{life} {partition}") for partition in range(partitions)]:
            sys.exit(f"life {life}: read {seen}")
        consumer.close()
        admin.delete_topics([topic])[topic].result(20)
        if topic in admin.list_topics(timeout=20).topics:
            sys.exit(f"life {life}: still listed")
    print(rounds)


def confluent_topics(bootstrap, *_):
    import json

    from confluent_kafka.admin import AdminClient

    print(json.dumps(list(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=20).topics)))


def confluent_member(bootstrap, topic, group, protocol, instance=None):
    from confluent_kafka import Consumer

    options = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
               "group.protocol": protocol}
    if protocol == "classic":
        options |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000, "partition.assignment.strategy": "cooperative-sticky"}
    if instance:
        options["group.instance.id"] = instance
    return Consumer(options)


def confluent_group(bootstrap, topic, members, group, protocol, count):
    consumers = [confluent_member(bootstrap, topic, group, protocol) for _ in range(members)]
    for consumer in consumers:
        consumer.subscribe([topic])
    seen, end = set(), time.monotonic() + 75
    # Until every partition is somebody's, a member that reads all of it early would prove nothing about sharing.
    while len(seen) < count:
        if time.monotonic() > end:
            sys.exit(f"{len(seen)} of {count} records within 75 s; assigned {[c.assignment() for c in consumers]}")
        for number, consumer in enumerate(consumers):
            m = consumer.poll(0.05)
            if m is None:
                continue
            if m.error():
                sys.exit(f"no record: {m.error()}")
            consumer.commit(m, asynchronous=True)
            if (m.partition(), m.offset()) not in seen:
                seen.add((m.partition(), m.offset()))
                print(number, m.partition(), m.offset(), m.value().decode())
    for consumer in consumers:
        consumer.close()


def confluent_one_member(bootstrap, topic, _, group, protocol):
    consumer = confluent_member(bootstrap, topic, group, protocol)
    say = lambda what: lambda _, partitions: print(what, *sorted(p.partition for p in partitions), flush=True)
    consumer.subscribe([topic], on_assign=say("assigned"), on_revoke=say("revoked"), on_lost=say("lost"))
    while True:
        m = consumer.poll(1)
        if m is not None and not m.error():
            print("record", m.partition(), m.offset(), flush=True)
            consumer.commit(m, asynchronous=True)


def confluent_committed(bootstrap, topic, partitions, group):
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    print(*[p.offset for p in consumer.committed([TopicPartition(topic, i) for i in range(partitions)], timeout=20)])
    consumer.close()


def python_produce(bootstrap, topic, partition, codec, count):
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, linger_ms=20)
    sent = []
    for i in range(count):
        key, value, headers = content(i)
        sent.append(producer.send(topic, value, key, headers=headers, partition=partition))
    offsets = [f.get(timeout=30).offset for f in sent]
    print(min(offsets), max(offsets), len(set(offsets)))
    producer.close()


def python_consume(bootstrap, topic, partition, count):
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=20000, enable_auto_commit=False)
    consumer.assign([TopicPartition(topic, partition)])
    consumer.seek(TopicPartition(topic, partition), 0)
    for _, m in zip(range(count), consumer):
        show(m.offset, m.key, m.value, m.headers)
    consumer.close()


def python_commits(consumer):
    """Whether a member is at the end of all that it has, and could commit that."""
    from kafka.errors import CommitFailedError, RebalanceInProgressError

    ends = consumer.end_offsets(list(consumer.assignment()))
    try:
        if any(consumer.position(partition) != end for partition, end in ends.items()):
            return False
        consumer.commit()
    except (CommitFailedError, RebalanceInProgressError):
        return False
    return True


def python_group(bootstrap, topic, members, group, protocol, count):
    """A thread a member: three in one thread wait for each other's joins, on Kafka 4.4 until the end."""
    import threading

    from kafka import KafkaConsumer

    if protocol != "classic":
        sys.exit("kafka-python speaks the classic protocol alone")
    lock, seen, done, committed, failed, end = threading.Lock(), set(), threading.Event(), set(), [], time.monotonic() + 75

    def keep(number, records):
        with lock:
            for m in records:
                if (m.partition, m.offset) not in seen:
                    seen.add((m.partition, m.offset))
                    print(number, m.partition, m.offset, m.value.decode())

    def run(number):
        consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
                                 session_timeout_ms=6000, heartbeat_interval_ms=1000)
        # All commit before the first one leaves: a rebalance refuses the rest. One may still be under way, and what it moves is read again
        # from where it was committed.
        while not done.is_set():
            if time.monotonic() > end:
                return failed.append(f"{len(seen)} of {count} records within 75 s; {number} has {consumer.assignment()}, committed {committed}")
            for records in consumer.poll(timeout_ms=50).values():
                keep(number, records)
            if len(seen) < count:
                consumer.commit_async()
            elif python_commits(consumer):
                committed.add(number)
            if len(committed) == members:
                done.set()
        consumer.close()

    def member(number):
        try:
            run(number)
        except Exception as error:
            failed.append(f"{number}: {error!r}")

    threads = [threading.Thread(target=member, args=(number,)) for number in range(members)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        sys.exit("; ".join(failed))


if __name__ == "__main__":
    library, verb, bootstrap, topic, partition, *rest = sys.argv[1:]
    function = {
        ("librdkafka", "produce"): confluent_produce, ("librdkafka", "consume"): confluent_consume,
        ("librdkafka", "recreate"): confluent_recreate, ("librdkafka", "topics"): confluent_topics,
        ("librdkafka", "group"): confluent_group, ("librdkafka", "member"): confluent_one_member,
        ("librdkafka", "committed"): confluent_committed, ("kafka-python", "group"): python_group,
        ("kafka-python", "produce"): python_produce, ("kafka-python", "consume"): python_consume,
    }[library, verb]
    function(bootstrap, topic, int(partition), *[int(x) if x.isdigit() else x for x in rest])
