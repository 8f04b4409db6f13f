"""Prometheus' text format, read strictly."""

import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"'
SAMPLE = re.compile(rf"^({NAME})(?:\{{((?:{LABEL})(?:,{LABEL})*)?\}})? (\S+)$")
TYPES = ["counter", "gauge", "histogram"]


class Family:
    def __init__(self, name, kind):
        self.name, self.kind = name, kind
        self.samples = {}  # (name, labels as a sorted tuple) -> value


def parse(text):
    """{family name: Family}; ValueError with the line that breaks the format."""
    families, family, help_of = {}, None, None
    if not text.endswith("\n"):
        raise ValueError("the text does not end with a line feed")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            help_of = line.split(" ", 3)[2]
            continue
        if line.startswith("# TYPE "):
            name, kind = line.split(" ")[2:]
            if name in families or kind not in TYPES or help_of != name:
                raise ValueError(f"twice, without HELP or of unknown type: {line}")
            family = families[name] = Family(name, kind)
            continue
        read_sample(line, family)
    for family in families.values():
        check_family(family)
    return families


def read_sample(line, family):
    match = SAMPLE.match(line)
    if not match or family is None:
        raise ValueError(f"not a sample: {line}")
    name = match.group(1)
    suffixes = ["_bucket", "_sum", "_count"] if family.kind == "histogram" else [""]
    if name not in [family.name + suffix for suffix in suffixes]:
        raise ValueError(f"a sample of another family than {family.name}: {line}")
    labels = re.findall(LABEL, match.group(2) or "")
    if len(dict(labels)) != len(labels):
        raise ValueError(f"a label twice: {line}")
    key = name, tuple(sorted(labels))
    if key in family.samples:
        raise ValueError(f"a series twice: {line}")
    family.samples[key] = float(match.group(match.lastindex))


def check_family(family):
    for (name, labels), value in family.samples.items():
        if value != value:
            raise ValueError(f"{name}{labels} is NaN")
        if family.kind != "gauge" and value < 0:
            raise ValueError(f"{name}{labels} is negative")
    if family.kind == "counter" and not family.name.endswith("_total"):
        raise ValueError(f"the counter {family.name} does not end in _total")
    if family.kind == "histogram":
        check_histogram(family)


def check_histogram(family):
    series = {}
    for (name, labels), value in family.samples.items():
        rest = tuple(pair for pair in labels if pair[0] != "le")
        found = series.setdefault(rest, {"buckets": []})
        if name.endswith("_bucket"):
            found["buckets"].append((float(dict(labels)["le"]), value))
        else:
            found[name.removeprefix(family.name)] = value
    for labels, found in series.items():
        buckets = found["buckets"]
        counts = [count for _, count in buckets]
        if buckets != sorted(buckets) or counts != sorted(counts):
            raise ValueError(f"the buckets of {family.name}{labels} do not grow")
        if buckets[-1] != (float("inf"), found["_count"]) or "_sum" not in found:
            raise ValueError(f"{family.name}{labels} lacks +Inf or a sum")
