"""Consumer groups: kcat, the client libraries and Kafka's own tools, classic and KIP-848 (`group.protocol=consumer`)."""

import json
import subprocess

from harness import Broker, Failed, Running, case, eq, has, hasnt, own_broker, until

GROUPS = "consumer.group.ConsumerGroupCommand"
# kafka-python speaks the classic protocol alone.
SPEAKERS = [("librdkafka", "classic"), ("librdkafka", "consumer"), ("franz-go", "classic"), ("franz-go", "consumer"), ("kafka-python", "classic")]
PROTOCOLS = ["CLASSIC", "CONSUMER"]
COUNT = 240


def numbers(first, last):
    return "".join(f"{i}\n" for i in range(first, last + 1))


def fill(w, topic, partitions, first=1, last=COUNT):
    """Numbers, spread evenly over the partitions."""
    for partition in range(partitions):
        mine = "".join(f"{i}\n" for i in range(first, last + 1) if i % partitions == partition)
        w.kcat("-P", "-t", topic, "-p", str(partition), stdin=mine)


def described(w, group, *args):
    """ConsumerGroupCommand's rows: (topic, partition) -> columns from the committed offset on."""
    rows = [line.split() for line in w.tool(GROUPS, "--describe", "--group", group, *args).splitlines()]
    return {(row[1], int(row[2])): row[3:] for row in rows if len(row) > 5 and row[0] == group}


def committed(w, topic, partitions, group):
    return [int(x) for x in w.client("librdkafka", "committed", topic, partitions, group).split()]


# kcat ---------------------------------------------------------------------------------------------------------------


@case
def group_kcat_goes_on_where_it_stopped(w):
    one, two, group = w.topic("g-kcat-1"), w.topic("g-kcat-2"), w.topic("g-kcat")
    w.create(one, 2)
    w.create(two, 1)
    read = lambda count: sorted(map(int, w.kcat("-G", group, "-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=6000", "-c", str(count),
                                               "-q", one, two, timeout=60).split()))
    fill(w, one, 2, 1, 20)
    w.kcat("-P", "-t", two, "-p", "0", stdin=numbers(21, 30))
    eq(read(30), list(range(1, 31)), "both topics")
    fill(w, one, 2, 31, 40)
    eq(read(10), list(range(31, 41)), "what came since")
    eq(committed(w, one, 2, group), [15, 15], "committed")


@case
def group_kcat_by_pattern(w):
    names = [w.topic(f"g-pattern-{x}") for x in ("a", "b")]
    for name in names + [w.topic("other-pattern")]:
        w.kcat("-P", "-t", name, "-p", "0", stdin=f"{name}\n")
    out = w.kcat("-G", w.topic("g-pattern"), "-X", "auto.offset.reset=earliest", "-c", "2", "-q", f"^g-pattern-.*-{w.run}$", timeout=60)
    eq(sorted(out.split()), sorted(names))


# libraries ----------------------------------------------------------------------------------------------------------


@case
def group_of_three_in_every_library(w):
    """Three members of each library read four partitions, commit, leave; three others go on where they stopped."""
    for library, protocol in SPEAKERS:
        topic = group = w.topic(f"g-{library}-{protocol}")
        w.create(topic, 4)
        for life in range(2):
            fill(w, topic, 4, life * COUNT + 1, (life + 1) * COUNT)
            rows = [row.split() for row in w.client(library, "group", topic, 3, group, protocol, COUNT, timeout=90).splitlines()]
            what = f"{library}, {protocol}, life {life}"
            eq(sorted(int(row[3]) for row in rows), list(range(life * COUNT + 1, (life + 1) * COUNT + 1)), what)
            eq({int(row[1]) for row in rows}, {0, 1, 2, 3}, f"partitions of {what}")
        eq(committed(w, topic, 4, group), [2 * COUNT // 4] * 4, f"committed by {library}, {protocol}")


def owned(lines):
    """What a member of `client.py member` has now."""
    mine = set()
    for line in lines:
        what, *partitions = line.split()
        if what == "assigned":
            mine |= set(map(int, partitions))
        elif what in ("revoked", "lost"):
            mine -= set(map(int, partitions))
    return mine


@case
def group_a_member_vanishes(w):
    """kill -9 of one of two librdkafka members: the other has all partitions when its session is over, and reads what is left."""
    for protocol in ("classic", "consumer"):
        topic = group = w.topic(f"g-vanish-{protocol}")
        w.create(topic, 4)
        member = lambda: Running([w.python, w.here / "client.py", "librdkafka", "member", w.bootstrap, topic, 0, group, protocol], w.work / "running.log")
        with member() as one, member() as two:
            until(60, "two partitions each", lambda: (len(owned(one.lines)), len(owned(two.lines))) == (2, 2))
            eq(owned(one.lines) & owned(two.lines), set(), "a partition of both")
            two.kill()
            fill(w, topic, 4)
            until(90, "all four are the other's", lambda: owned(one.lines) == {0, 1, 2, 3})
            records = lambda: {line for line in one.lines if line.startswith("record")}
            until(60, f"all {COUNT} records", lambda: len(records()) == COUNT)
            until(20, "everything is committed", lambda: committed(w, topic, 4, group) == [COUNT // 4] * 4)


# Kafka's consumers --------------------------------------------------------------------------------------------------


@case
def group_console_consumer(w):
    for protocol in PROTOCOLS:
        topic = group = w.topic(f"g-console-{protocol.lower()}")
        w.create(topic, 1)
        w.kcat("-P", "-t", topic, "-p", "0", stdin=numbers(1, 10))
        read = lambda count, *args: list(map(int, w.tool("consumer.ConsoleConsumer", "--topic", topic, "--group", group, "--max-messages", str(count),
            "--timeout-ms", "30000", "--command-property", f"group.protocol={protocol}", *args).split()))
        eq(read(4, "--from-beginning"), [1, 2, 3, 4], protocol)
        eq(read(6), [5, 6, 7, 8, 9, 10], f"{protocol}, the second time")


@case
def group_console_consumer_by_pattern(w):
    for protocol in PROTOCOLS:
        p = protocol.lower()
        for name in (f"g-re-{p}-a", f"g-re-{p}-b", f"not-{p}"):
            w.create(w.topic(name))
            w.kcat("-P", "-t", w.topic(name), "-p", "0", stdin=f"{name}\n")
        out = w.tool("consumer.ConsoleConsumer", "--include", f"g-re-{p}-.*-{w.run}", "--from-beginning", "--max-messages", "2", "--timeout-ms", "30000",
                     "--command-property", f"group.protocol={protocol}")
        eq(sorted(out.split()), [f"g-re-{p}-a", f"g-re-{p}-b"], protocol)


def events(lines):
    return [json.loads(line) for line in lines if line.startswith("{")]


def has_partitions(running):
    """What a VerifiableConsumer has now, by its own account."""
    mine = set()
    for event in events(list(running.lines)):
        partitions = {(p["topic"], p["partition"]) for p in event.get("partitions", []) if "topic" in p}
        if event["name"] == "partitions_assigned":
            mine |= partitions
        elif event["name"] == "partitions_revoked":
            mine -= partitions
    return mine


@case
def group_verifiable_consumer(w):
    for protocol in PROTOCOLS:
        topic = group = w.topic(f"g-verifiable-{protocol.lower()}")
        w.create(topic, 3)
        w.tool("VerifiableProducer", "--topic", topic, "--max-messages", "3000", "--acks", "-1")
        out = w.tool("VerifiableConsumer", "--topic", topic, "--group-id", group, "--max-messages", "3000", "--verbose", "--group-protocol", protocol)
        seen = [(e["partition"], e["offset"]) for e in events(out.splitlines()) if e["name"] == "record_data"]
        eq((len(seen), len(set(seen))), (3000, 3000), f"records of {protocol}")
        rows = described(w, group)
        # The producer may have had only one partition's batches to fill.
        eq((sum(int(r[0]) for r in rows.values()), {r[2] for r in rows.values()}), (3000, {"0"}), "committed and lag")


def shared(w, name, *args, strategy):
    """A second member gets half of six partitions; when it leaves, the first has them all again. Nothing is read by nobody."""
    topic = group = w.topic(name)
    w.create(topic, 6)
    member = lambda: w.running("VerifiableConsumer", "--topic", topic, "--group-id", group, "--verbose", *args)
    with member() as one:
        until(60, "six partitions", lambda: len(has_partitions(one)) == 6)
        with member() as two:
            until(60, "three each", lambda: (len(has_partitions(one)), len(has_partitions(two))) == (3, 3))
            eq(has_partitions(one) & has_partitions(two), set(), "a partition of both")
            fill(w, topic, 6)
            seen = lambda: {(e["partition"], e["offset"]) for r in (one, two) for e in events(list(r.lines)) if e["name"] == "record_data"}
            until(60, f"{COUNT} records", lambda: len(seen()) == COUNT)
            eq(any(e["name"] == "record_data" for e in events(list(two.lines))), True, "the second reads too")
            has(w.tool(GROUPS, "--describe", "--group", group, "--state"), rf"{group}.* {strategy} +Stable +2")
            rows = w.tool(GROUPS, "--describe", "--group", group, "--members").splitlines()
            eq(sum(row.startswith(group) for row in rows), 2, "members")
            two.stop()
        until(60, "six partitions again", lambda: len(has_partitions(one)) == 6)
        until(30, "no lag", lambda: [r[2] for r in described(w, group).values()] == ["0"] * 6)


@case
def group_rebalances_range(w):
    shared(w, "g-range", strategy="range")


@case
def group_rebalances_cooperative(w):
    shared(w, "g-cooperative", "--assignment-strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor", strategy="cooperative-sticky")


@case
def group_rebalances_consumer_uniform(w):
    shared(w, "g-uniform", "--group-protocol", "CONSUMER", strategy="uniform")


@case
def group_rebalances_consumer_range(w):
    shared(w, "g-range-848", "--group-protocol", "CONSUMER", "--group-remote-assignor", "range", strategy="range")


@case
def group_changes_protocol_member_by_member(w):
    """An upgrade as users do it: a KIP-848 member joins a classic group, the classic one leaves; then back again."""
    topic = group = w.topic("g-upgrade")
    w.create(topic, 4)
    member = lambda protocol: w.running("VerifiableConsumer", "--topic", topic, "--group-id", group, "--verbose", "--group-protocol", protocol)
    kind = lambda: w.tool(GROUPS, "--list", "--type", "consumer")
    with member("CLASSIC") as old:
        until(60, "the classic member has all", lambda: len(has_partitions(old)) == 4)
        with member("CONSUMER") as new:
            until(60, "both protocols share", lambda: (len(has_partitions(old)), len(has_partitions(new))) == (2, 2))
            eq(has_partitions(old) & has_partitions(new), set(), "a partition of both")
            has(kind(), rf"^{group}\b")
            old.stop()
            until(60, "the new member has all", lambda: len(has_partitions(new)) == 4)
            with member("CLASSIC") as again:
                until(60, "both share again", lambda: (len(has_partitions(new)), len(has_partitions(again))) == (2, 2))
                new.stop()
                until(60, "the classic member has all again", lambda: len(has_partitions(again)) == 4)
                hasnt(kind(), rf"^{group}\b")


@case
def group_static_members_come_back(w):
    """A static member that is gone for a moment finds its partitions again, and the other sees no rebalance."""
    for protocol in PROTOCOLS:
        topic = group = w.topic(f"g-static-{protocol.lower()}")
        w.create(topic, 4)
        member = lambda name: w.running("VerifiableConsumer", "--topic", topic, "--group-id", group, "--group-instance-id", name, "--group-protocol", protocol)
        with member("i1") as one, member("i2") as two:
            until(60, "two each", lambda: (len(has_partitions(one)), len(has_partitions(two))) == (2, 2))
            before, changes = has_partitions(two), lambda: sum(e["name"].startswith("partitions_") for e in events(list(one.lines)))
            count = changes()
            # A KIP-848 member says that it will be back; without that the instance is its until its session ends, on Kafka too.
            two.stop() if protocol == "CONSUMER" else two.kill()
            with member("i2") as two:
                until(60, "the same partitions", lambda: has_partitions(two) == before)
                eq(changes(), count, f"rebalances of the one that stayed, {protocol}")
                has(w.tool(GROUPS, "--describe", "--group", group, "--members"), r"\bi2\b")


# Kafka's tools ------------------------------------------------------------------------------------------------------


def with_offsets(w, name):
    """An empty group that has read 60 of 100 records."""
    topic = group = w.topic(name)
    w.create(topic, 1)
    w.kcat("-P", "-t", topic, "-p", "0", stdin=numbers(0, 99))
    w.tool("consumer.ConsoleConsumer", "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "60", "--timeout-ms", "30000")
    return topic, group


@case
def group_tools_list_and_describe(w):
    topic, group = with_offsets(w, "g-described")
    has(w.tool("GroupsCommand", "--list"), rf"^{group} +Classic +consumer")
    hasnt(w.tool("GroupsCommand", "--list", "--share"), group)
    has(w.tool(GROUPS, "--list"), rf"^{group}$")
    has(w.tool(GROUPS, "--list", "--state", "empty"), rf"^{group} +Empty")
    hasnt(w.tool(GROUPS, "--list", "--state", "stable"), group)
    eq(described(w, group)[topic, 0][:3], ["60", "100", "40"], "committed, end, lag")
    has(w.tool(GROUPS, "--describe", "--group", group, "--state"), r"Empty +0")
    for protocol, assignor in (("CLASSIC", "range"), ("CONSUMER", "uniform")):
        with w.running("VerifiableConsumer", "--topic", topic, "--group-id", group, "--group-protocol", protocol) as member:
            until(60, f"an assignment, {protocol}", lambda: has_partitions(member) == {(topic, 0)})
            has(w.tool(GROUPS, "--describe", "--group", group, "--state"), rf"{assignor} +Stable +1")
            has(w.tool(GROUPS, "--describe", "--group", group, "--members", "--verbose"), rf"{group} .* 1 .*{topic}:0")
            until(30, "no lag", lambda: described(w, group)[topic, 0][:3] == ["100", "100", "0"])
            has(w.tool_says(GROUPS, "--delete", "--group", group), "GroupNotEmpty|not empty")
            has(w.tool_says(GROUPS, "--reset-offsets", "--to-earliest", "--execute", "--topic", topic, "--group", group), "inactive|Stable")
            member.stop()
    has(w.tool_says(GROUPS, "--describe", "--group", w.topic("no-such")), "does not exist|not found")


@case
def group_tools_reset(w):
    topic, group = with_offsets(w, "g-reset")
    reset = lambda *args: int([row.split()[3] for row in w.tool(GROUPS, "--reset-offsets", "--group", group, "--topic", topic, *args).splitlines()
                               if row.split()[1:2] == [topic]][0])
    eq(reset("--to-earliest", "--dry-run"), 0, "a dry run says")
    eq(committed(w, topic, 1, group), [60], "after a dry run")
    for args, wanted in ((["--to-earliest"], 0), (["--to-latest"], 100), (["--to-offset", "42"], 42), (["--shift-by", "-2"], 40),
                         (["--shift-by", "1000"], 100), (["--by-duration", "P3650D"], 0), (["--to-offset", "7"], 7)):
        eq(reset(*args, "--execute"), wanted, str(args))
        eq(committed(w, topic, 1, group), [wanted], f"after {args}")
    out = w.tool("consumer.ConsoleConsumer", "--topic", topic, "--group", group, "--max-messages", "1", "--timeout-ms", "30000")
    eq(out.split(), ["7"], "the first record after it")


@case
def group_tools_delete(w):
    topic, group = with_offsets(w, "g-deleted")
    has(w.tool(GROUPS, "--delete-offsets", "--group", group, "--topic", topic), "Successful")
    eq(committed(w, topic, 1, group), [-1001], "after the deletion of offsets")
    topic, group = with_offsets(w, "g-deleted-whole")
    has(w.tool(GROUPS, "--delete", "--group", group), "was successful")
    hasnt(w.tool(GROUPS, "--list"), rf"^{group}$")
    has(w.tool_says(GROUPS, "--delete", "--group", group), "not found|not exist|could not be deleted")


# the process --------------------------------------------------------------------------------------------------------


@own_broker
def group_outlives_its_broker(w):
    """kill -9: what was committed is committed, a member of either protocol that was there goes on; Kafka's dump reads what we wrote."""
    directory = w.work / f"groups-{w.run}"
    broker = Broker(w.broker.binary, directory, "--set", "offsets.topic.num.partitions=4").start()
    try:
        mine = type(w)(broker.bootstrap, w.work, broker)
        for protocol in ("classic", "consumer"):
            topic = group = f"kept-{protocol}"
            mine.create(topic, 4)
            fill(mine, topic, 4)
            command = [w.python, w.here / "client.py", "librdkafka", "member", broker.bootstrap, topic, 0, group, protocol]
            with Running(command, w.work / "running.log") as member:
                until(60, "everything is committed", lambda: committed(mine, topic, 4, group) == [COUNT // 4] * 4)
                broker.kill()
                broker.start()
                eq(committed(mine, topic, 4, group), [COUNT // 4] * 4, f"after kill -9, {protocol}")
                fill(mine, topic, 4, COUNT + 1, 2 * COUNT)
                until(90, "it goes on", lambda: len({x for x in member.lines if x.startswith("record")}) == 2 * COUNT)
                until(20, "it commits", lambda: committed(mine, topic, 4, group) == [2 * COUNT // 4] * 4)
        broker.stop()
    finally:
        broker.kill()
    files = [str(path) for n in range(4) for path in (directory / f"__consumer_offsets-{n}").glob("*.log")]
    dumped = ""
    for path in files:
        out, err, _ = w.java("org.apache.kafka.tools.DumpLogSegments", "--files", path, "--offsets-decoder")
        hasnt(out + err, "(?i)exception|mismatch|corrupt|invalid|unknown")
        dumped += out
    for kind in ("kept-classic", "kept-consumer", "generation", "memberEpoch", "leaderEpoch"):
        has(dumped, kind)
