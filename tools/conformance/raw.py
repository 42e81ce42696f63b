"""A client that hides nothing: single requests on a socket, every error code as the broker sent it, no retries.

Versions without compact types (Produce 7, Fetch 11, ListOffsets 2, Metadata 4, CreateTopics 2, DeleteTopics 1): bytes are easily written.
"""

import socket
import struct

PRODUCE, FETCH, LIST_OFFSETS, METADATA, CREATE_TOPICS, DELETE_TOPICS = 0, 1, 2, 3, 19, 20


def _crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def varint(number):
    number = number << 1 ^ number >> 63
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def text(value):
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value)) + value.encode()


def batch(values, timestamp=1_700_000_000_000):
    """One record batch of format 2, uncompressed."""
    records = b""
    for index, value in enumerate(values):
        record = b"\0" + varint(0) + varint(index) + varint(-1) + varint(len(value)) + value.encode() + varint(0)
        records += varint(len(record)) + record
    count = len(values)
    covered = struct.pack(">hiqqqhii", 0, count - 1, timestamp, timestamp, -1, -1, -1, count) + records
    return struct.pack(">qiibI", 0, 4 + 1 + 4 + len(covered), -1, 2, crc32c(covered)) + covered


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        out = self.data[self.at:self.at + count]
        self.at += count
        return out

    def number(self, form):
        return struct.unpack(">" + form, self.take(struct.calcsize(">" + form)))[0]

    def string(self):
        length = self.number("h")
        return None if length < 0 else self.take(length).decode()

    def many(self, one):
        return [one(self) for _ in range(max(self.number("i"), 0))]


def values(data):
    """(offset, value) of every record in whole, uncompressed batches."""
    out, r = [], Reader(data)
    while r.at + 61 <= len(data):
        base = r.number("q")
        end = r.number("i") + r.at
        r.take(4 + 1 + 4 + 2 + 4 + 8 + 8 + 8 + 2 + 4)
        for _ in range(r.number("i")):
            _varint(r)
            r.take(1)
            _varint(r)
            delta = _varint(r)
            r.take(max(_varint(r), 0))
            out.append((base + delta, r.take(max(_varint(r), 0)).decode()))
            for _ in range(_varint(r)):
                r.take(max(_varint(r), 0))
                r.take(max(_varint(r), 0))
        r.at = end
    return out


def _varint(r):
    number = shift = 0
    while True:
        byte = r.take(1)[0]
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number >> 1 ^ -(number & 1)


class Client:
    """One connection."""

    def __init__(self, bootstrap, timeout=20):
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout)
        self.correlation = 0

    def close(self):
        self.socket.close()

    def tell(self, api, version, body):
        self.correlation += 1
        frame = struct.pack(">hhi", api, version, self.correlation) + text("raw") + body
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def reply(self):
        size = struct.unpack(">i", self._exactly(4))[0]
        r = Reader(self._exactly(size))
        r.number("i")
        return r

    def _exactly(self, count):
        out = b""
        while len(out) < count:
            part = self.socket.recv(count - len(out))
            if not part:
                raise ConnectionError(f"closed after {len(out)} of {count} bytes")
            out += part
        return out

    def ask(self, api, version, body):
        self.tell(api, version, body)
        return self.reply()

    def create(self, topic, partitions):
        """The error code."""
        body = struct.pack(">i", 1) + text(topic) + struct.pack(">ihii", partitions, 1, 0, 0) + struct.pack(">i?", 20_000, False)
        r = self.ask(CREATE_TOPICS, 2, body)
        r.number("i")
        return r.many(lambda r: (r.string(), r.number("h"), r.string()))[0][1]

    def delete(self, topic):
        r = self.ask(DELETE_TOPICS, 1, struct.pack(">i", 1) + text(topic) + struct.pack(">i", 20_000))
        r.number("i")
        return r.many(lambda r: (r.string(), r.number("h")))[0][1]

    def metadata(self, topic):
        """The topic's error code and its partitions': (index, error, leader)."""
        r = self.ask(METADATA, 4, struct.pack(">i", 1) + text(topic) + b"\0")
        r.number("i")
        r.many(lambda r: (r.number("i"), r.string(), r.number("i"), r.string()))
        r.string()
        r.number("i")

        def partition(r):
            error, index, leader = r.number("h"), r.number("i"), r.number("i")
            r.many(lambda r: r.number("i"))
            r.many(lambda r: r.number("i"))
            return index, error, leader

        def one(r):
            error, _, _ = r.number("h"), r.string(), r.number("b")
            return error, r.many(partition)

        return r.many(one)[0]

    def produce(self, topic, acks, parts):
        """`parts`: partition -> values. Partition -> (error, base offset); nothing with acks 0."""
        data = b""
        for index, some in parts.items():
            records = batch(some)
            data += struct.pack(">ii", index, len(records)) + records
        body = text(None) + struct.pack(">hii", acks, 20_000, 1) + text(topic) + struct.pack(">i", len(parts)) + data
        self.tell(PRODUCE, 7, body)
        if acks == 0:
            return None
        part = lambda r: (r.number("i"), (r.number("h"), r.number("q"), r.number("q"), r.number("q"))[:2])
        topics = self.reply().many(lambda r: (r.string(), r.many(part)))
        return dict(topics[0][1])

    def offsets(self, topic, partitions, timestamp):
        """Partition -> (error, offset)."""
        asked = b"".join(struct.pack(">iq", index, timestamp) for index in range(partitions))
        r = self.ask(LIST_OFFSETS, 2, struct.pack(">ibi", -1, 0, 1) + text(topic) + struct.pack(">i", partitions) + asked)
        r.number("i")
        part = lambda r: (r.number("i"), (r.number("h"), r.number("q"), r.number("q"))[::2])
        return dict(r.many(lambda r: (r.string(), r.many(part)))[0][1])

    def fetch(self, topic, partitions, offset=0, wait_ms=0):
        """Partition -> (error, records)."""
        asked = b"".join(struct.pack(">iiqqi", index, -1, offset, -1, 1 << 20) for index in range(partitions))
        body = struct.pack(">iiiibii", -1, wait_ms, 1, 8 << 20, 0, 0, -1)
        r = self.ask(FETCH, 11, body + struct.pack(">i", 1) + text(topic) + struct.pack(">i", partitions) + asked + struct.pack(">i", 0) + text(""))
        r.take(4)
        error = r.number("h")
        if error:
            return {index: (error, []) for index in range(partitions)}
        r.take(4)

        def part(r):
            index, error = r.number("i"), r.number("h")
            r.take(8 + 8 + 8)
            r.many(lambda r: (r.number("q"), r.number("q")))
            r.take(4)
            return index, (error, values(r.take(max(r.number("i"), 0))))

        return dict(r.many(lambda r: (r.string(), r.many(part)))[0][1])
