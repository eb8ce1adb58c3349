"""Manifests for Kubernetes against the API's own schemas, and against what the daemon and its configuration know.

usage: python3 -B packaging/tests/test_kubernetes.py [PROGRAM] (some seconds)

The schemas are those that the package `kubernetes-validate` of PyPI brings along; without it (`pip install
kubernetes-validate`) what needs them prints Skipped(reason). PROGRAM is a built nvidia-cuda-mps-control, which reads the
configuration in the manifests; without one it is target/debug/nvidia-cuda-mps-control, or that test is skipped. The chart
is rendered by `helm`; without it only what can be read off its files is compared.
"""

from __future__ import annotations

import copy
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "packaging/kubernetes"
CHART = MANIFESTS / "chart"
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


class Manifests(unittest.TestCase):
    """What is asked of objects, wherever they come from."""

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

    def take(self, texts: list[str]) -> None:
        """The daemon takes these configurations."""
        for text in texts:
            with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
                file.write(text)
                file.flush()
                done = subprocess.run([PROGRAM, "--check-config", file.name], capture_output=True, text=True,
                                      env=dict(os.environ, MPS_CONTROL_CONFIG=""), check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""), text)


class Kubernetes(Manifests):
    """Each manifest of the folder."""

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

    def test_the_directory_of_nvsentinel_is_mounted_where_the_configuration_says(self) -> None:
        (patch,) = self.objects("nvsentinel.yaml")
        whole = merged(merged(PLUGINS, self.objects("device-plugin.yaml")[0]), patch)
        pod = whole["spec"]["template"]["spec"]
        (volume,) = [one["hostPath"] for one in pod["volumes"] if one["name"] == "nvsentinel"]
        (mount,) = [one["mountPath"] for one in pod["containers"][0]["volumeMounts"] if one["name"] == "nvsentinel"]
        # No pod waits for it where NVSentinel does not run.
        self.assertEqual(volume["type"], "DirectoryOrCreate")
        texts = [(MANIFESTS / "nvsentinel.yaml").read_text(), (ROOT / "docs/kubernetes.md").read_text()]
        sockets = [socket for text in texts for socket in re.findall(r'nvsentinel = "unix:(.*?)"', text)]
        self.assertEqual([str(pathlib.Path(socket).parent) for socket in sockets], [mount] * 2)
        self.assertNotIn("nvsentinel.sock", (MANIFESTS / "events.yaml").read_text())
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
        # The kubelet ends the container, and every server, after the first process has had its turn (six questions, each
        # of 10 s and 10 s after the one before).
        live = container["livenessProbe"]
        self.assertGreater(live["periodSeconds"] * live["failureThreshold"], 120)

    def test_an_image_that_nobody_can_pull_is_not_asked_for(self) -> None:
        """`latest` is pulled each time unless that is said."""
        (patch,) = self.objects("device-plugin.yaml")
        pods = [patch, *(one for one in self.objects("node.yaml") if one["kind"] == "DaemonSet")]
        containers = [one for pod in pods for kind in ("initContainers", "containers")
                      for one in pod["spec"]["template"]["spec"].get(kind, [])]
        ours = [one for one in containers if one.get("image") == "remps:latest"]
        self.assertEqual([one["imagePullPolicy"] for one in ours], ["IfNotPresent"] * 2)

    def test_no_rollout_ends_the_clients_of_nodes_by_itself(self) -> None:
        (daemon,) = [one for one in self.objects("node.yaml") if one["kind"] == "DaemonSet"]
        self.assertEqual(daemon["spec"]["updateStrategy"], {"type": "OnDelete"})

    def test_probes_in_a_container_need_nothing_but_the_program(self) -> None:
        (block,) = [one for one in re.findall(r"```yaml\n(.*?)```", (ROOT / "packaging/monitoring.md").read_text(), re.S)
                    if "Probe:" in one]
        probes = yaml.safe_load(block)
        self.assertEqual(set(probes), {"startupProbe", "livenessProbe", "readinessProbe"})
        commands = (ROOT / "proto/src/admin/command/names.rs").read_text()
        for probe in probes.values():
            program, command, *_options = probe["exec"]["command"]
            self.assertEqual(program, PROGRAM.name)
            self.assertIn(f'"{command}"', commands)
            # The kubelet's own is one second.
            self.assertGreater(probe["timeoutSeconds"], 1)
        (daemon,) = [one for one in self.objects("node.yaml") if one["kind"] == "DaemonSet"]
        live = daemon["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]
        self.assertEqual(probes["livenessProbe"]["failureThreshold"], live["failureThreshold"])

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
        self.take(texts)


class Chart(Manifests):
    """The Helm chart against its own files, and as rendered against the manifest that says the same."""

    TEMPLATES = sorted((CHART / "templates").iterdir())
    # What the manifest has and the chart does not, or otherwise: its namespace is the release's.
    ONLY_IN_MANIFEST = {"Namespace"}

    def values(self) -> dict:
        return yaml.safe_load((CHART / "values.yaml").read_text())

    def leaves(self, values: dict, at: str = "") -> set[str]:
        """The paths of the values; a map that is passed on whole is one of them."""
        found = set()
        for key, value in values.items():
            path = f"{at}{key}"
            found |= self.leaves(value, path + ".") if key == "image" else {path}
        return found

    def test_every_value_is_used_and_whatever_is_used_is_a_value(self) -> None:
        used = {path for file in self.TEMPLATES for path in re.findall(r"\.Values\.([\w.]+)", file.read_text())}
        self.assertEqual(used, self.leaves(self.values()))

    def test_blocks_are_closed_and_nothing_else_than_these_actions_is_there(self) -> None:
        for file in self.TEMPLATES:
            text = file.read_text()
            actions = [one.strip("- ") for one in re.findall(r"{{(.*?)}}", text)]
            self.assertEqual(text.count("{{"), len(actions), file)
            opened = sum(one.split()[0] in ("if", "with", "range") for one in actions)
            self.assertEqual(opened, actions.count("end"), file)
            for one in actions:
                self.assertRegex(one, r"^(if|else|end|eq|include|\.Values\.|\.Release\.)", file)

    def test_whatever_changes_the_configuration_changes_the_pods(self) -> None:
        """The mark of a pod's configuration is made of the whole ConfigMap, and not of the values that are in it today."""
        text = (CHART / "templates/daemonset.yaml").read_text()
        mark = re.search(r"remps/configuration: {{ (.*) }}", text).group(1)
        self.assertEqual(mark, 'include (print .Template.BasePath "/config.yaml") . | sha256sum')
        marks = set()
        for values in ({}, {"mode": "claims"}, {"hostPID": "false"}, {"stateDirectory": ""}, {"servers": "[servers.a]"}):
            (daemon,) = [one for one in self.rendered(**values) if one["kind"] == "DaemonSet"]
            marks.add(daemon["spec"]["template"]["metadata"]["annotations"]["remps/configuration"])
        self.assertEqual(len(marks), 5)

    def test_the_chart_is_called_and_numbered_as_the_program(self) -> None:
        chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
        self.assertEqual((chart["apiVersion"], chart["name"], chart["type"]), ("v2", "remps", "application"))
        known = {"apiVersion", "name", "description", "type", "version", "appVersion", "kubeVersion"}
        self.assertEqual(set(chart), known)
        version = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.M).group(1)
        self.assertEqual((chart["version"], str(chart["appVersion"])), (version, version))

    def test_the_values_are_what_their_schema_takes_and_it_refuses_others(self) -> None:
        try:
            import jsonschema
        except ImportError:
            print(f"{self.id()}: Skipped(jsonschema is missing)", flush=True)
            self.skipTest("jsonschema is missing")
        schema = json.loads((CHART / "values.schema.json").read_text())
        jsonschema.validate(self.values(), schema)
        for wrong in ({"mode": "other"}, {"hostpid": True}, {"pipeDirectory": "run"}, {"port": "9440"},
                      {"logDirectory": '/a"\n[x]'}, {"image": {"repository": "remps"}}, {"updateStrategy": "Recreate"}):
            with self.assertRaises(jsonschema.ValidationError, msg=wrong):
                jsonschema.validate({**self.values(), **wrong}, schema)
        self.assertEqual(set(schema["properties"]) - {"global"}, set(self.values()))

    def test_the_defaults_are_those_of_the_manifest(self) -> None:
        values = self.values()
        (daemon,) = [one for one in self.objects("node.yaml") if one["kind"] == "DaemonSet"]
        pod = daemon["spec"]["template"]["spec"]
        container = pod["containers"][0]
        self.assertEqual(f"{values['image']['repository']}:{values['image']['tag']}", container["image"])
        paths = {one["name"]: one["hostPath"]["path"] for one in pod["volumes"] if "hostPath" in one}
        self.assertEqual([values[f"{name}Directory"] for name in ("pipe", "log", "state")],
                         [paths[name] for name in ("pipe", "log", "state")])
        env = {one["name"]: one.get("value") for one in container["env"]}
        self.assertEqual((values["pipeDirectory"], values["logDirectory"]),
                         (env["CUDA_MPS_PIPE_DIRECTORY"], env["CUDA_MPS_LOG_DIRECTORY"]))
        self.assertEqual((values["port"], values["hostPID"], values["nodeSelector"], values["tolerations"]),
                         (container["livenessProbe"]["httpGet"]["port"], pod["hostPID"], pod["nodeSelector"],
                          pod["tolerations"]))
        self.assertEqual((values["updateStrategy"], values["terminationGracePeriodSeconds"]),
                         (daemon["spec"]["updateStrategy"]["type"], pod["terminationGracePeriodSeconds"]))

    def test_the_values_configuration_is_one_that_the_daemon_takes(self) -> None:
        if not PROGRAM.exists():
            print(f"{self.id()}: Skipped({PROGRAM} is not built)", flush=True)
            self.skipTest("the program is not built")
        self.take([self.values()["config"]])

    def rendered(self, **values: str) -> list[dict]:
        helm = shutil.which("helm")
        if helm is None:
            print(f"{self.id()}: Skipped(helm is missing)", flush=True)
            self.skipTest("helm is missing")
        given = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
        done = subprocess.run([helm, "template", "remps", str(CHART), "--namespace", "remps", *given],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [one for one in yaml.safe_load_all(done.stdout) if one]

    def test_it_renders_to_the_manifest(self) -> None:
        """But for its configuration, and what only a chart has a value for."""
        made = {one["kind"]: one for one in self.rendered()}
        told = {one["kind"]: one for one in self.objects("node.yaml") if one["kind"] not in self.ONLY_IN_MANIFEST}
        self.assertEqual(set(made), set(told))
        pod = made["DaemonSet"]["spec"]["template"]
        for kind in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding"):
            self.assertEqual(made[kind], told[kind])
        container = pod["spec"]["containers"][0]
        self.assertEqual(pod["spec"].pop("priorityClassName"), "system-node-critical")
        container.pop("resources")
        self.assertEqual(made["DaemonSet"]["spec"]["updateStrategy"], told["DaemonSet"]["spec"]["updateStrategy"])
        self.assertEqual(pod["spec"], told["DaemonSet"]["spec"]["template"]["spec"])

    def test_whatever_the_values_say_it_is_what_the_api_and_the_daemon_take(self) -> None:
        variants = ({}, {"mode": "claims"}, {"mode": "plugin"}, {"hostPID": "false"}, {"stateDirectory": ""},
                    {"events": "false"}, {"servers": "[servers.a]"}, {"port": "9555"}, {"runtimeClassName": "nvidia"},
                    {"terminationGracePeriodSeconds": "90"})
        texts = []
        for values in variants:
            things = self.rendered(**values)
            (config,) = [one for one in things if one["kind"] == "ConfigMap"]
            texts.append(config["data"]["mps-control.toml"])
            self.assertEqual("servers.toml" in config["data"], "servers" in values)
            daemons = [one for one in things if one["kind"] == "DaemonSet"]
            self.assertEqual(len(daemons), 0 if values.get("mode") == "plugin" else 1)
            for pod in (one["spec"]["template"]["spec"] for one in daemons):
                volumes = {one["name"] for one in pod["volumes"]}
                self.assertEqual({one["name"] for one in pod["containers"][0]["volumeMounts"]}, volumes)
                self.assertEqual("node-proc" in volumes, not pod["hostPID"])
                self.assertEqual('proc = "/host/proc"' in texts[-1], not pod["hostPID"])
                self.assertEqual("state" in volumes, "stateDirectory" not in values)
                self.assertEqual(pod.get("runtimeClassName"), values.get("runtimeClassName"))
                self.assertEqual(str(pod["terminationGracePeriodSeconds"]), values.get("terminationGracePeriodSeconds", "40"))
                port = str(pod["containers"][0]["livenessProbe"]["httpGet"]["port"])
                self.assertIn(f'listen = "127.0.0.1:{port}"', texts[-1])
            self.assertEqual("containers = true" in texts[-1], values.get("mode") == "claims")
            if kubernetes_validate is not None:
                for thing in things:
                    self.check(thing)
        if PROGRAM.exists():
            self.take(texts)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        PROGRAM = pathlib.Path(sys.argv.pop(1))
    unittest.main()
