#!/usr/bin/env python3
"""Writes the facts of Kafka's message schemas as a table: tests/data/schemas.tsv, which the tests hold `net/wire` against.

    facts.py kafka-clients-4.4.0.jar > data/schemas.tsv

Lines: `message name key valid flexible latest-unstable`, then its fields in order, nested ones behind their parent:
`field message path type versions nullable tag tagged-versions default`; `-` is absent. Names are Kafka's.
"""
import json
import re
import sys
import zipfile

APIS = """Produce Fetch ListOffsets Metadata ApiVersions CreateTopics DeleteTopics DeleteRecords InitProducerId
OffsetForLeaderEpoch DescribeConfigs AlterConfigs DescribeLogDirs CreatePartitions IncrementalAlterConfigs DescribeCluster
DescribeProducers ListConfigResources DescribeTopicPartitions""".split()


def line(*columns):
    print("\t".join(str(column) for column in columns))


def default(field):
    if "default" not in field:
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


def main(jar):
    archive = zipfile.ZipFile(jar)
    for api in APIS:
        for name in (api + "Request", api + "Response"):
            text = archive.read(f"common/message/{name}.json").decode()
            schema = json.loads(re.sub(r"(?m)(^|\s)//.*$", "", text))
            line("message", name, schema["apiKey"], schema["validVersions"], schema["flexibleVersions"],
                 str(schema.get("latestVersionUnstable", False)).lower())
            common = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", [])}
            fields(name, [], schema["fields"], common)


main(sys.argv[1])
