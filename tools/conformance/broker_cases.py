"""Cases that start and stop a broker of their own: what its files are for others, and what survives a kill."""

import json
import subprocess
import urllib.request

from harness import Broker, Failed, eq, has, hasnt, own_broker


@own_broker
def broker_files_are_kafkas(w):
    """DumpLogSegments reads every .log, .index, .timeindex and .snapshot of a stopped broker without an error."""
    directory = w.work / f"dump-{w.run}"
    broker = Broker(w.broker.binary, directory).start()
    try:
        bootstrap = broker.bootstrap
        for codec in ("none", "lz4"):
            subprocess.run(["kcat", "-b", bootstrap, "-P", "-t", "dumped", "-p", "0", "-z", codec, "-X", "enable.idempotence=true"],
                           input="".join(f"record {i} of {codec} {'x' * (i % 300)}\n" for i in range(20000)).encode(), check=True, timeout=60)
        broker.stop()
    finally:
        broker.kill()
    files = sorted(str(p) for s in ("log", "index", "timeindex", "snapshot") for p in (directory / "dumped-0").glob(f"*.{s}"))
    eq({f.rsplit(".", 1)[1] for f in files} >= {"log", "index", "timeindex"}, True, f"files {files}")
    for f in files:
        deep = ["--deep-iteration"] if f.endswith(".log") else []
        out, err, _ = w.java("org.apache.kafka.tools.DumpLogSegments", "--files", f, *deep)
        hasnt(out + err, "(?i)exception|mismatch|corrupt|not find|invalid")
        if f.endswith("00.log"):
            eq(out.count("| offset: "), 40000, "records dumped")
    sane = w.java("org.apache.kafka.tools.DumpLogSegments", "--index-sanity-check", "--files", ",".join(f for f in files if f.endswith("index")))
    hasnt(sane[0] + sane[1], "(?i)exception|mismatch|corrupt|failed")


@own_broker
def broker_keeps_what_it_acknowledged(w):
    """kcat writes to four partitions on two cores; kill -9; everything is read again; a clean stop; again."""
    directory = w.work / f"kill-{w.run}"
    broker = Broker(w.broker.binary, directory, "--set", "num.partitions=4").start()
    try:
        kcat = lambda *a, **k: subprocess.run(["kcat", "-b", broker.bootstrap, *a], check=True, timeout=60, capture_output=True, **k).stdout.decode()
        kcat("-P", "-t", "kept", "-K:", input="".join(f"key{i}:value{i}\n" for i in range(5000)).encode())
        read = lambda: sorted(kcat("-C", "-t", "kept", "-o", "beginning", "-e", "-q", "-f", "%k:%s %p %o\n").splitlines())
        before = read()
        eq(len(before), 5000)
        broker.kill()
        broker.start()
        eq(read(), before, "after a kill -9")
        broker.stop()
        broker.start()
        eq(read(), before, "after a clean stop")
        out = json.loads(kcat("-L", "-J"))
        eq([t["topic"] for t in out["topics"]], ["kept"])
    finally:
        broker.kill()


@own_broker
def broker_tells_how_it_is(w):
    get = lambda path: urllib.request.urlopen(f"http://127.0.0.1:{w.broker.admin}{path}", timeout=5).read().decode()
    get("/health/live")
    get("/health/ready")
    metrics = get("/metrics")
    has(metrics, "^# (TYPE|HELP) ")
    has(metrics, "^ringmain_")
