#!/usr/bin/env python3
"""Writes the facts of Kafka's message schemas as a table: tests/data/schemas.tsv, which the tests hold `net/wire` against.

    facts.py kafka-clients-4.4.0.jar kafka-group-coordinator-4.4.0.jar > data/schemas.tsv

Lines: `message name key valid flexible latest-unstable` (`format` where it is no API's), then its fields in order, nested ones behind their parent:
`field message path type versions nullable tag tagged-versions default`; `-` is absent. Names are Kafka's.
"""
import json
import re
import sys
import zipfile

APIS = """Produce Fetch ListOffsets Metadata ApiVersions CreateTopics DeleteTopics DeleteRecords InitProducerId
OffsetForLeaderEpoch DescribeConfigs AlterConfigs DescribeLogDirs CreatePartitions IncrementalAlterConfigs DescribeCluster
DescribeProducers ListConfigResources DescribeTopicPartitions FindCoordinator JoinGroup Heartbeat LeaveGroup SyncGroup DescribeGroups
ListGroups OffsetCommit OffsetFetch DeleteGroups OffsetDelete ConsumerGroupHeartbeat ConsumerGroupDescribe""".split()
# No API's: first of the clients' jar, then of the group coordinator's.
EMBEDDED = "ConsumerProtocolSubscription ConsumerProtocolAssignment".split()
RECORDS = """OffsetCommit LegacyOffsetCommit GroupMetadata ConsumerGroupMetadata ConsumerGroupPartitionMetadata
ConsumerGroupMemberMetadata ConsumerGroupTargetAssignmentMetadata ConsumerGroupTargetAssignmentMember
ConsumerGroupCurrentMemberAssignment ConsumerGroupRegularExpression""".split()


def line(*columns):
    print("\t".join(str(column) for column in columns))


def default(field):
    # A bare null is no default for Kafka's generator, unlike "null".
    if field.get("default") is None:
        return "-"
    value = str(field["default"])
    if field["type"].startswith("int"):
        return int(value, 0)
    return {"": '""', "True": "true", "False": "false"}.get(value, value)


def fields(message, path, declared, common):
    for field in declared:
        here = path + [field["name"]]
        line("field", message, ".".join(here), field["type"], field["versions"], field.get("nullableVersions", "-"),
             field.get("tag", "-"), field.get("taggedVersions", "-"), default(field))
        fields(message, here, field.get("fields") or common.get(field["type"].removeprefix("[]"), []), common)


def message(kind, archive, name):
    text = archive.read(f"common/message/{name}.json").decode()
    schema = json.loads(re.sub(r"(?m)(^|\s)//.*$", "", text))
    line(kind, name, schema.get("apiKey", -1), schema["validVersions"], schema["flexibleVersions"],
         str(schema.get("latestVersionUnstable", False)).lower())
    common = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", [])}
    fields(name, [], schema["fields"], common)


def main(clients, coordinator):
    clients, coordinator = zipfile.ZipFile(clients), zipfile.ZipFile(coordinator)
    for api in APIS:
        message("message", clients, api + "Request")
        message("message", clients, api + "Response")
    for name in EMBEDDED:
        message("format", clients, name)
    for record in RECORDS:
        message("format", coordinator, record + "Key")
        message("format", coordinator, record + "Value")


main(sys.argv[1], sys.argv[2])
