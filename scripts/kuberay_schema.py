"""Makes the schema of a RayJob, for tests, from the custom resource definition that KubeRay publishes.

    python scripts/kuberay_schema.py v1.7.0 ray-operator/config/crd/bases/ray.io_rayjobs.yaml \\
        tests/shared/kuberay_schema.json

Left out are descriptions and the status, which only the operator writes. What occurs several times, such as the
template of a pod, is written once. An object with a list of fields takes no others: Kubernetes would drop them without
a word, or refuse them. The rules in CEL, `x-kubernetes-validations`, are left out: nothing here evaluates them.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

# Below this a reference is hardly shorter than what it stands for.
_WORTH_A_NAME_BYTES = 400
_LICENSE = (
    "Derived from the custom resource definition ray.io_rayjobs.yaml of KubeRay {version}, "
    "https://github.com/ray-project/kuberay, Copyright the KubeRay authors, licensed under the Apache License, "
    "Version 2.0. Changed by scripts/kuberay_schema.py."
)


def main() -> None:
    version, definition, out = sys.argv[1:]
    published = yaml.safe_load(Path(definition).read_text())
    (schema,) = (each["schema"]["openAPIV3Schema"] for each in published["spec"]["versions"] if each["name"] == "v1")
    del schema["properties"]["status"]
    plain = closed(schema)
    counts: Counter[str] = Counter()
    count(plain, counts)
    names = {text: f"d{number}" for number, text in enumerate(text for text in counts if counts[text] > 1)}
    top = {"$comment": _LICENSE.format(version=version), **{key: named(each, names) for key, each in plain.items()}}
    definitions = {name: {key: named(each, names) for key, each in json.loads(text).items()}
                   for text, name in names.items()}  # fmt: skip
    # One definition a line, so that a later version of KubeRay shows as a difference of a few lines.
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in definitions.items())
    Path(out).write_text(f'{json.dumps(top)[:-1]},\n"$defs": {{\n{lines}\n}}}}\n')


def closed(schema: Any) -> Any:
    """A schema without descriptions, in which objects take no fields but those that they list."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        key: closed(each)
        for key, each in schema.items()
        if not (key == "description" and isinstance(each, str)) and key != "x-kubernetes-validations"
    }
    if isinstance(kept.get("properties"), dict) and "type" in kept and "additionalProperties" not in kept:
        kept["additionalProperties"] = bool(kept.get("x-kubernetes-preserve-unknown-fields", False))
    return kept


def count(schema: Any, counts: Counter[str]) -> None:
    """How often each large object occurs. What lies in one that was seen before is not counted again."""
    if isinstance(schema, dict) and "type" in schema:
        text = json.dumps(schema)
        if len(text) >= _WORTH_A_NAME_BYTES:
            counts[text] += 1
            if counts[text] > 1:
                return
    for each in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        count(each, counts)


def named(schema: Any, names: dict[str, str]) -> Any:
    """The schema with references in place of what has a name."""
    if isinstance(schema, list):
        return [named(each, names) for each in schema]
    if not isinstance(schema, dict):
        return schema
    name = names.get(json.dumps(schema))
    return {"$ref": f"#/$defs/{name}"} if name else {key: named(each, names) for key, each in schema.items()}


if __name__ == "__main__":
    main()
