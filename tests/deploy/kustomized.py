"""What `kubectl kustomize` would print, for the part of it that deploy/kubernetes uses; anything else fails.

Generated ConfigMaps keep their plain names: kubectl adds a hash of what is in them.
"""

import copy
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]
KEYS = {
    "apiVersion",
    "kind",
    "resources",
    "namespace",
    "labels",
    "images",
    "patches",
    "configMapGenerator",
    "generatorOptions",
}
WORKLOADS = ("Deployment", "StatefulSet")
CLUSTER_WIDE = ("Namespace",)


def build(directory: Path) -> list[Object]:
    """The objects of a kustomization."""
    words = yaml.safe_load((directory / "kustomization.yaml").read_text())
    assert set(words) <= KEYS, (
        f"{directory}: {set(words) - KEYS}: teach tests/deploy/kustomized.py, or do without"
    )
    objects: list[Object] = []
    for resource in words.get("resources", ()):
        path = (directory / resource).resolve()
        found = build(path) if path.is_dir() else list(yaml.safe_load_all(path.read_text()))
        objects += [one for one in found if one is not None]
    options = words.get("generatorOptions", {})
    objects += [_config_map(directory, one, options) for one in words.get("configMapGenerator", ())]
    for patch in words.get("patches", ()):
        _patch(directory, patch, objects)
    for one in objects:
        if "namespace" in words and one["kind"] not in CLUSTER_WIDE:
            one["metadata"]["namespace"] = words["namespace"]
        for label in words.get("labels", ()):
            _label(one, label)
        for container in containers(one):
            _image(container, words.get("images", ()))
    names = [(one["kind"], one["metadata"]["name"]) for one in objects]
    assert len(names) == len(set(names)), f"{directory}: twice: {names}"
    return objects


def pod(one: Object) -> Object | None:
    """The pod's spec of a workload."""
    spec: Object | None = one["spec"]["template"]["spec"] if one["kind"] in WORKLOADS else None
    return spec


def containers(one: Object) -> list[Object]:
    """The containers of a workload, its own first, then sidecars."""
    spec = pod(one) or {}
    return [*spec.get("containers", ()), *spec.get("initContainers", ())]


def config_maps(volume: Object) -> list[str]:
    """The names of the ConfigMaps that a volume shows."""
    sources = volume["projected"]["sources"] if "projected" in volume else [volume]
    return [source["configMap"]["name"] for source in sources if "configMap" in source]


def _config_map(directory: Path, words: Object, options: Object) -> Object:
    assert set(words) == {"name", "files"}, words
    assert set(options) <= {"disableNameSuffixHash", "labels"}, options
    data = {Path(name).name: (directory / name).read_text() for name in words["files"]}
    head = {"name": words["name"]} | {name: dict(options[name]) for name in ("labels",) if name in options}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": head, "data": data}


def _patch(directory: Path, words: Object, objects: list[Object]) -> None:
    assert set(words) == {"path", "target"}, words
    target = words["target"]
    assert set(target) <= {"kind", "name"}, target
    aimed = [
        one
        for one in objects
        if one["kind"] == target["kind"] and target.get("name") in (None, one["metadata"]["name"])
    ]
    assert aimed, f"{directory}: {target}: nothing to patch"
    for step in yaml.safe_load((directory / words["path"]).read_text()):
        for one in aimed:
            _step(one, copy.deepcopy(step))


def _step(one: Object, step: Object) -> None:
    *way, last = step["path"].strip("/").split("/")
    place: Any = one
    for name in way:
        place = place[int(name)] if isinstance(place, list) else place[name]
    if step["op"] == "remove":
        del place[last]
    elif step["op"] == "add" and last == "-":
        place.append(step["value"])
    else:
        raise AssertionError(f"{step}: teach tests/deploy/kustomized.py, or do without")


def _label(one: Object, words: Object) -> None:
    assert words["includeTemplates"]
    assert not words["includeSelectors"]
    one["metadata"].setdefault("labels", {}).update(words["pairs"])
    if one["kind"] in WORKLOADS:
        one["spec"]["template"]["metadata"].setdefault("labels", {}).update(words["pairs"])


def _image(container: Object, images: list[Object]) -> None:
    name, _, tag = container["image"].partition(":")
    for one in images:
        if one["name"] == name:
            container["image"] = f"{one.get('newName', name)}:{one.get('newTag', tag)}"
