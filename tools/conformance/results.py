#!/usr/bin/env python3
"""Writes the tables of RESULTS.md from results.tsv files of the clients' own suites. Ends with 1 when a test failed for no known reason.

results.py BASELINES RUNS
BASELINES/SUITE/baseline-*.tsv says what each suite has, and what Apache Kafka 4.4 made of it. RUNS/TABLE/*/results.tsv are runs on
Ringmain (TABLE: kcat, kafka-python, franz-go, librdkafka, librdkafka-consumer, librdkafka-noautocreate, java); of two runs of a test the later
directory's counts, so that one run alone again goes by a name that sorts behind. What stands between `<!-- TABLE -->` and `<!-- end -->` in
RESULTS.md is replaced.
"""

import pathlib
import re
import sys

PAGE = pathlib.Path(__file__).with_name("RESULTS.md")
GOOD = ("pass", "passed")
# Why a test does not pass, by its name as the table has it: what it asks for is not there yet. The first that matches.
REASONS = [
    (r"sasl|SASL|SCRAM|OAuth|scram|0126|0135|0142|delegation", "SASL"),
    (r"ssl|tls|0097", "TLS"),
    (r"[sS]hare|^01[78]\d_", "share groups"),
    (r"connect_distributed", "transactions (source exactly once); passes without them"),
    (r"streams_protocol", "Streams groups, transactions"),
    (r"streams_", "transactions; word count passes at least once"),
    (r"0055|0061", "transactions in its last part; what is before passes"),
    (r"[tT]xn|transaction|read_committed|0098|0103|0129|0137", "transactions"),
    (r"0081", "ACLs, SCRAM; all other subtests pass (by SUBTESTS)"),
    (r"0109", "ACLs in its last four parts; the first four pass"),
    (r"acl|0115|0119", "ACLs"),
    (r"quota", "quotas"),
    (r"client_metrics", "client metrics"),
    (r"replica_log_dirs|reassign|elect|metadata_quorum|^features$", "reassignment, elections, quorum, features"),
    (r"0101", "three brokers"),
]
SUITES = {
    "kcat": ("kcat", ""),
    "kafka-python": ("kafka-python", ""),
    "franz-go": ("franz-go", "-broker"),
    "librdkafka": ("librdkafka", ""),
    "librdkafka-consumer": ("librdkafka", "-consumer"),
    "librdkafka-noautocreate": ("librdkafka", "-noautocreate"),
    "java": ("java", ""),
}


def rows(path):
    """[(test, result)], the header left out."""
    lines = [line.split("\t") for line in path.read_text().splitlines() if "\t" in line]
    return [(fields[0], fields[1]) for fields in lines if fields[0] != "test"]


def kafka(baselines, table):
    """{test: what Kafka 4.4 made of it}, in the suite's order."""
    suite, variant = SUITES[table]
    found = [path for path in [baselines / suite / f"baseline{variant}-kafka-4.4.tsv", baselines / suite / f"baseline-kafka-4.4{variant}.tsv"] if path.exists()]
    return {test: result for test, result in rows(found[0]) if not test.endswith("_mock")}  # these ask no broker


def ringmain(runs, table):
    """{test: what Ringmain made of it}, of the last run that has it."""
    out = {}
    for path in sorted((runs / table).glob("*/results.tsv")):
        out.update(rows(path))
    return out


def verdict(table, test, ours, theirs):
    """(result, note)"""
    reason = next((reason for pattern, reason in REASONS if re.search(pattern, test)), None)
    if ours in GOOD:
        return "pass", "" if theirs in GOOD else f"Kafka: {theirs}"
    if theirs not in GOOD and not (theirs == "timeout" and (ours is None or reason)):  # a timeout there was the run's limit, nothing had failed
        return "-", f"Kafka: {theirs}"
    if reason:
        return "not yet", reason
    return ("not run", "") if ours is None else ("FAIL", "")


def write(table, baselines, runs):
    """The table's text and its failures."""
    theirs, ours = kafka(baselines, table), ringmain(runs, table)
    judged = [(test, *verdict(table, test, ours.get(test), result)) for test, result in theirs.items()]
    counts = {}
    for _, result, _ in judged:
        counts[result] = counts.get(result, 0) + 1
    names = {"-": "not passed by Kafka either"}
    order = sorted(counts.items(), key=lambda item: (item[0] != "pass", -item[1]))
    total = ", ".join(f"{count} {names.get(result, result)}" for result, count in order)
    passed = sum(result in GOOD for result in theirs.values())
    lines = [f"{total}. Kafka 4.4: {passed} of {len(theirs)} pass.", "", "| test | result | note |", "|---|---|---|"]
    lines += [f"| {test.replace('_integration.py', '')} | {result} | {note} |" for test, result, note in judged]
    return "\n".join(lines), [f"{table}: {test}" for test, result, _ in judged if result in ("FAIL", "not run")]


def main():
    baselines, runs = (pathlib.Path(arg) for arg in sys.argv[1:3])
    page, bad = PAGE.read_text(), []
    for table in SUITES:
        text, failed = write(table, baselines, runs)
        bad += failed
        part = re.compile(rf"(<!-- {table} -->\n).*?(<!-- end -->)", re.S)
        page = part.sub(lambda found, text=text: f"{found[1]}{text}\n{found[2]}", page)
    PAGE.write_text(page)
    print(*bad, sep="\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
