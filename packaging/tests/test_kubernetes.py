"""Manifests for Kubernetes against the API's own schemas, and against what the daemon and its configuration know.

usage: python3 -B packaging/tests/test_kubernetes.py [PROGRAM] (some seconds)

The schemas are those that the package `kubernetes-validate` of PyPI brings along; without it (`pip install
kubernetes-validate`) what needs them prints Skipped(reason). PROGRAM is a built nvidia-cuda-mps-control, which reads the
configuration in the manifests; without one it is target/debug/nvidia-cuda-mps-control, or that test is skipped.
"""

from __future__ import annotations

import copy
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "packaging/kubernetes"
PROGRAM = ROOT / "target/debug/nvidia-cuda-mps-control"
# The oldest and the newest version that is tried of those that the package has.
VERSIONS = ("1.31", None)

try:
    import yaml
except ImportError:
    yaml = None
try:
    import kubernetes_validate
except ImportError:
    kubernetes_validate = None

# A daemon set as the device plugin's chart makes one, as far as the patch touches it (k8s-device-plugin at 1b826acc,
# templates/daemonset-mps-control-daemon.yml): names of containers, their list, and that there are init containers already.
PLUGINS = {
    "apiVersion": "apps/v1", "kind": "DaemonSet",
    "metadata": {"name": "nvdp-nvidia-device-plugin-mps-control-daemon", "namespace": "nvidia-device-plugin"},
    "spec": {
        "selector": {"matchLabels": {"app": "mps"}},
        "template": {
            "metadata": {"labels": {"app": "mps"}},
            "spec": {
                "hostPID": True,
                "initContainers": [{"name": "mps-control-daemon-mounts", "image": "plugin"}],
                "containers": [{"name": "mps-control-daemon-ctr", "image": "plugin", "volumeMounts": [
                    {"name": "mps-root", "mountPath": "/mps"}]}],
                "volumes": [{"name": "mps-root", "hostPath": {"path": "/run/nvidia/mps"}}],
            },
        },
    },
}
# By what the API server merges the lists of a strategic merge patch.
KEYS = {"initContainers": "name", "containers": "name", "volumes": "name", "env": "name", "volumeMounts": "mountPath"}


def merged(into, patch, at: str = ""):
    """A strategic merge patch, as far as these patches go: objects by their keys, those lists by theirs."""
    if isinstance(patch, dict) and isinstance(into, dict):
        return {key: merged(into.get(key), patch.get(key, into.get(key)), key) if key in patch else into[key]
                for key in {**into, **patch}}
    if isinstance(patch, list) and isinstance(into, list) and at in KEYS:
        key, result = KEYS[at], [copy.deepcopy(one) for one in into]
        for one in patch:
            found = next((place for place, known in enumerate(result) if known[key] == one[key]), None)
            if found is None:
                result.append(one)
            else:
                result[found] = merged(result[found], one)
        return result
    return copy.deepcopy(patch)


class Kubernetes(unittest.TestCase):
    """Each manifest of the folder."""

    def setUp(self) -> None:
        if yaml is None:
            print(f"{self.id()}: Skipped(PyYAML is missing)", flush=True)
            self.skipTest("PyYAML is missing")

    def objects(self, name: str) -> list[dict]:
        return [one for one in yaml.safe_load_all((MANIFESTS / name).read_text()) if one]

    def check(self, thing: dict) -> None:
        """Against the schema of each version, with nothing in it that the schema does not know."""
        if kubernetes_validate is None:
            print(f"{self.id()}: Skipped(kubernetes-validate is missing)", flush=True)
            self.skipTest("kubernetes-validate is missing")
        for version in VERSIONS:
            version = version or kubernetes_validate.latest_version()
            kubernetes_validate.validate(thing, version, strict=True)

    def test_every_manifest_is_what_the_api_takes(self) -> None:
        count = 0
        for name in ("node.yaml", "events.yaml"):
            for thing in self.objects(name):
                self.check(thing)
                count += 1
        self.assertGreater(count, 8)

    def test_a_misspelt_field_is_found(self) -> None:
        """That the test before would see it."""
        thing = next(one for one in self.objects("node.yaml") if one["kind"] == "DaemonSet")
        probe = thing["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]
        probe["periodSecond"] = probe.pop("periodSeconds")
        if kubernetes_validate is None:
            self.skipTest("kubernetes-validate is missing")
        with self.assertRaises(Exception) as raised:
            self.check(thing)
        self.assertIn("periodSecond", str(raised.exception))

    def test_the_patch_makes_a_sound_daemon_set_of_the_plugins(self) -> None:
        (patch,) = self.objects("device-plugin.yaml")
        whole = merged(PLUGINS, patch)
        pod = whole["spec"]["template"]["spec"]
        self.assertEqual([one["name"] for one in pod["initContainers"]], ["mps-control-daemon-mounts", "remps"])
        (container,) = pod["containers"]
        self.assertEqual([one["mountPath"] for one in container["volumeMounts"]], ["/mps", "/remps"])
        path = next(one["value"] for one in container["env"] if one["name"] == "PATH")
        self.assertTrue(path.startswith("/remps:"), path)
        self.assertEqual({one["name"] for one in pod["volumes"]}, {"mps-root", "remps"})
        self.check(whole)

    def test_whatever_is_mounted_is_there_and_every_account_is_made(self) -> None:
        things = self.objects("node.yaml")
        (daemon,) = [one for one in things if one["kind"] == "DaemonSet"]
        pod = daemon["spec"]["template"]["spec"]
        volumes = {one["name"]: one for one in pod["volumes"]}
        self.assertEqual({one["name"] for one in pod["containers"][0]["volumeMounts"]}, set(volumes))
        made = {(one["kind"], one["metadata"]["name"]) for one in things}
        self.assertIn(("ConfigMap", volumes["config"]["configMap"]["name"]), made)
        self.assertIn(("ServiceAccount", pod["serviceAccountName"]), made)
        for name in ("node.yaml", "events.yaml"):
            things = self.objects(name)
            (role,) = [one for one in things if one["kind"] == "ClusterRole"]
            # The daemon makes Events and reads nothing.
            self.assertEqual(role["rules"], [{"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]}])
            (binding,) = [one for one in things if one["kind"] == "ClusterRoleBinding"]
            self.assertEqual(binding["roleRef"]["name"], role["metadata"]["name"])

    def test_the_probes_ask_for_what_the_daemon_serves(self) -> None:
        (daemon,) = [one for one in self.objects("node.yaml") if one["kind"] == "DaemonSet"]
        pod = daemon["spec"]["template"]["spec"]
        container = pod["containers"][0]
        listen = re.search(r'listen = "([\d.]+):(\d+)"', self.configuration()).groups()
        served = (ROOT / "controld/src/observe/http/answer.rs").read_text()
        for probe, path in (("startupProbe", "/startupz"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
            asked = container[probe]["httpGet"]
            self.assertEqual((asked["host"], str(asked["port"]), asked["path"]), (*listen, path))
            self.assertTrue(f'"{path}"' in served, path)
        # 127.0.0.1 is the node's, for the kubelet, only then.
        self.assertTrue(pod["hostNetwork"])
        # SIGTERM drains for 25 s, and 10 s are for the cluster.
        self.assertGreaterEqual(pod["terminationGracePeriodSeconds"], 35)

    def configuration(self) -> str:
        (config,) = [one for one in self.objects("node.yaml") if one["kind"] == "ConfigMap"]
        return config["data"]["mps-control.toml"]

    def test_the_configuration_is_one_that_the_daemon_takes(self) -> None:
        if not PROGRAM.exists():
            print(f"{self.id()}: Skipped({PROGRAM} is not built)", flush=True)
            self.skipTest("the program is not built")
        documents = (ROOT / "docs/kubernetes.md").read_text()
        texts = [self.configuration(), *(
            yaml.safe_load(block)["data"]["mps-control.toml"]
            for block in re.findall(r"```yaml\n(.*?)```", documents, re.S) if "kind: ConfigMap" in block)]
        self.assertEqual(len(texts), 2)
        for text in texts:
            with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
                file.write(text)
                file.flush()
                done = subprocess.run([PROGRAM, "--check-config", file.name], capture_output=True, text=True,
                                      env=dict(os.environ, MPS_CONTROL_CONFIG=""), check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""), text)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        PROGRAM = pathlib.Path(sys.argv.pop(1))
    unittest.main()
