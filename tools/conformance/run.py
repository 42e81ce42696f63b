#!/usr/bin/env python3
"""Real clients against a broker, with asserted results. Ends in `N passed, N failed`.

run.py [--bootstrap HOST:PORT] [--binary PATH] [--work DIR] [--only REGEX]
Without --bootstrap it starts a broker from --binary (default target/release/ringmain). With it, any broker will do: run it against
Apache Kafka to see whether a case is right. Everything it installs comes from package registries into --work.
"""

import argparse
import pathlib
import shutil
import sys

import harness
import kcat_cases, kafka_cases, client_cases, window_cases, broker_cases, group_cases, compaction_cases  # noqa: E401,F401 (they declare cases)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--bootstrap")
    options.add_argument("--binary", default=str(harness.ROOT / "target/release/ringmain"))
    options.add_argument("--work", type=pathlib.Path, default=harness.ROOT / "target/conformance")
    options.add_argument("--only")
    options.add_argument("--prepare", action="store_true", help="install what the cases need, and end")
    o = options.parse_args()
    harness.prepare(o.work.resolve())
    if o.prepare:
        return 0
    broker = None
    if not o.bootstrap:
        data = o.work.resolve() / "data"
        shutil.rmtree(data, ignore_errors=True)
        broker = harness.Broker(o.binary, data).start()
    world = harness.World(o.bootstrap or broker.bootstrap, o.work.resolve(), broker)
    try:
        passed, failed = harness.run(world, o.only)
        if broker:
            broker.stop()
    finally:
        if broker:
            broker.kill()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
