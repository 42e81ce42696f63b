"""Everyday kcat: listing, pipes, keys, headers, codecs, offsets, timestamps, tombstones."""

import json
import time

from harness import CODECS, case, eq, has


def lines(text):
    return text.split()


@case
def kcat_lists_as_json(w):
    meta = json.loads(w.kcat("-L", "-J"))
    eq(len(meta["brokers"]), 1, "brokers")
    eq(meta["brokers"][0]["name"].endswith(w.bootstrap.split(":")[1]), True, "the advertised address")


@case
def kcat_pipe_and_offsets(w):
    t = w.topic("kcat-pipe")
    w.kcat("-P", "-t", t, "-p", "0", stdin="".join(f"{i}\n" for i in range(1, 11)))
    read = lambda *a: lines(w.kcat("-C", "-t", t, "-p", "0", "-e", "-q", *a))
    eq(read("-o", "beginning"), [str(i) for i in range(1, 11)])
    eq(read("-o", "-5"), list("6789") + ["10"], "from the end")
    eq(read("-o", "3", "-c", "2"), ["4", "5"], "absolute, counted")
    eq(read("-o", "end"), [], "at the end")
    topic = json.loads(w.kcat("-L", "-J", "-t", t))["topics"][0]
    eq((topic["topic"], [(p["leader"] >= 0, len(p["replicas"]), len(p["isrs"])) for p in topic["partitions"]][0]),
       (t, (True, 1, 1)), "metadata of an auto-created topic")


@case
def kcat_keys_headers_and_nulls(w):
    t = w.topic("kcat-kh")
    w.kcat("-P", "-t", t, "-p", "0", "-K:", "-H", "src=kcat", "-H", "n=1", "-H", "empty=", stdin="k1:v1\nk2:v2:x\n")
    eq(w.kcat("-C", "-t", t, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%t/%p/%o %K=%k %S=%s %h\n").splitlines(),
       [f"{t}/0/0 2=k1 2=v1 src=kcat,n=1,empty=", f"{t}/0/1 2=k2 4=v2:x src=kcat,n=1,empty="])
    envelopes = [json.loads(x) for x in w.kcat("-C", "-t", t, "-p", "0", "-o", "beginning", "-e", "-q", "-J").splitlines()]
    eq([(m["offset"], m["key"], m["payload"], m["tstype"]) for m in envelopes],
       [(0, "k1", "v1", "create"), (1, "k2", "v2:x", "create")])


@case
def kcat_tombstones(w):
    t = w.topic("kcat-tomb")
    w.kcat("-P", "-t", t, "-p", "0", "-K:", "-Z", stdin="gone:\n")
    w.kcat("-P", "-t", t, "-p", "0", "-K:", stdin="blank:\n")
    eq(w.kcat("-C", "-t", t, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%k=%S\n").split(), ["gone=-1", "blank=0"])


@case
def kcat_every_codec(w):
    text = "".join(f"message number {i:06} the quick brown fox jumps over the lazy dog\n" for i in range(2000))
    for codec in CODECS:
        t = w.topic(f"kcat-z-{codec}")
        w.kcat("-P", "-t", t, "-p", "0", "-z", codec, stdin=text)
        eq(w.kcat("-C", "-t", t, "-p", "0", "-o", "beginning", "-e", "-q"), text, codec)


@case
def kcat_timestamps(w):
    t = w.topic("kcat-ts")
    for i in (1, 2, 3):
        w.kcat("-P", "-t", t, "-p", "0", stdin=f"m{i}\n")
        time.sleep(0.02)
    stamps = lines(w.kcat("-C", "-t", t, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%T\n"))
    eq(lines(w.kcat("-C", "-t", t, "-p", "0", "-o", f"s@{stamps[1]}", "-e", "-q")), ["m2", "m3"])
    eq(lines(w.kcat("-C", "-t", t, "-p", "0", "-o", f"s@{stamps[0]}", "-o", f"e@{stamps[2]}", "-q")), ["m1", "m2"])
    eq(w.kcat("-Q", "-t", f"{t}:0:{stamps[1]}").strip(), f"{t} [0] offset 1")
    eq([w.kcat("-Q", "-t", f"{t}:0:{x}").strip() for x in (-2, -1)], [f"{t} [0] offset 0", f"{t} [0] offset 3"])


@case
def kcat_keys_choose_partitions(w):
    t = w.topic("kcat-spread")
    w.create(t, 4)
    w.kcat("-P", "-t", t, "-K:", stdin="".join(f"key{i}:x\n" for i in range(20)) * 3)
    rows = w.kcat("-C", "-t", t, "-o", "beginning", "-e", "-q", "-f", "%k %p\n").splitlines()
    eq((len(rows), len(set(rows))), (60, 20))


@case
def kcat_acks_and_idempotence(w):
    t = w.topic("kcat-acks")
    for acks in ("0", "1", "all"):
        w.kcat("-P", "-t", t, "-p", "0", "-X", f"acks={acks}", stdin=f"a{acks}\n")
    w.kcat("-P", "-t", t, "-p", "0", "-X", "enable.idempotence=true", stdin="idem\n")
    eq(sorted(lines(w.kcat("-C", "-t", t, "-p", "0", "-o", "beginning", "-e", "-q"))), ["a0", "a1", "aall", "idem"])


@case
def kcat_a_large_message(w):
    t, path = w.topic("kcat-big"), w.work / "big"
    import os
    path.write_bytes(os.urandom(900_000).replace(b"\n", b"n"))
    w.kcat("-P", "-t", t, "-p", "0", str(path))
    out = w.work / "big.out"
    import subprocess
    with open(out, "wb") as f:
        subprocess.run(["kcat", "-b", w.bootstrap, "-C", "-t", t, "-p", "0", "-o", "beginning", "-e", "-q", "-D", ""], stdout=f, check=True, timeout=30)
    eq(out.read_bytes() == path.read_bytes(), True, "900 kB, byte for byte")
