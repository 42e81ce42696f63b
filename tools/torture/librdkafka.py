"""librdkafka.py BOOTSTRAP TOPIC PARTITIONS ACKED: an idempotent producer that goes on until its standard input ends.

Writes a line `partition number offset` into ACKED for each acknowledged record. Ends with status 1 when a record was given up.
"""

import select
import sys

from confluent_kafka import Producer

bootstrap, topic, partitions, path = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
producer = Producer({
    "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "message.timeout.ms": 120_000,
    "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20, "log_level": 2,
})
acked = open(path, "w")
given_up = []


def delivered(error, message):
    if error:
        given_up.append(str(error))
    else:
        acked.write(f"{message.partition()} {message.value().decode().split(':')[1]} {message.offset()}\n")


numbers = [0] * partitions
while not select.select([sys.stdin], [], [], 0)[0]:
    for partition in range(partitions):
        number = numbers[partition]
        numbers[partition] += 1
        producer.produce(topic, f"{partition}:{number}:" + "." * (number * 53 % 900), partition=partition, on_delivery=delivered)
    producer.poll(0.005)
    while len(producer) > 2000:
        producer.poll(0.05)
left = producer.flush(60)
acked.close()
if left or given_up:
    sys.exit(f"{left} records left, {len(given_up)} given up: {given_up[:1]}")
