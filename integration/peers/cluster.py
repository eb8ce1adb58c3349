"""As much of a cluster as the DRA driver needs for a claim's daemon: an API server that has Deployments and their pods, and
a kubelet that runs the one container of each.

A container is a process in a root and a mount namespace of its own, with the volumes, variables, command and arguments
that its Deployment has. It is ready when its startup probe succeeds, and at its end all that it has started is killed.
"""

import json
import shlex
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlparse

OWN_NAMESPACE = ["unshare", "--mount", "--propagation", "private"]


def with_mounts(pairs):
    """What runs the command behind it in a mount namespace of its own, with these folders mounted over those."""
    words = [(shlex.quote(str(what)), shlex.quote(str(to))) for what, to in pairs]
    lines = [f"mkdir -p {to}; mount --rbind {what} {to}" for what, to in words]
    return [*OWN_NAMESPACE, "sh", "-c", "; ".join(["set -e", *lines, 'exec "$@"']), "sh"]


class Pod:
    """The container of a Deployment on a node."""

    def __init__(self, node, deployment):
        self.node = node
        template = deployment["spec"]["template"]
        self.labels = template["metadata"]["labels"]
        (self.container,) = template["spec"]["containers"]
        self.root = node.make_root(f"{deployment['metadata']['name']}-{len(node.processes)}")
        host = {one["name"]: one["hostPath"]["path"] for one in template["spec"]["volumes"]}
        mounts = [
            (node.place(host[one["name"]]), self.root / one["mountPath"].lstrip("/"))
            for one in self.container["volumeMounts"]
        ]
        self.variables = {one["name"]: one.get("value", "") for one in self.container["env"]}
        self.process = node.start(
            *self.container["command"], *self.container["args"],
            environment=self.variables, root=self.root, before=with_mounts(mounts),
        )

    def is_ready(self):
        """What the startup probe says now."""
        if self.process.poll() is not None:
            return False
        enter = ["nsenter", "--mount", "--target", str(self.process.pid)]
        probe = self.container["startupProbe"]["exec"]["command"]
        return self.node.run(*probe, root=self.root, before=enter).returncode == 0

    def kill(self):
        """As the runtime does, which kills what is in the container's cgroup."""
        self.process.kill()
        self.node.kill(self.root)
        self.process.wait()


class Cluster:
    """The API server, and the pods of its Deployments on one node."""

    def __init__(self, node):
        self.node = node
        self.deployments, self.pods = {}, {}
        cluster = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                self.answer(*cluster.get(urlparse(self.path)))

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.answer(*cluster.create(json.loads(body)))

            def do_DELETE(self):
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.answer(*cluster.delete(urlparse(self.path)))

            def answer(self, status, thing):
                body = json.dumps(thing).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def create(self, deployment):
        name = deployment["metadata"]["name"]
        self.deployments[name] = deployment
        self.pods[name] = Pod(self.node, deployment)
        return 201, deployment

    def restart(self, name):
        """Kills a pod and starts it again, as the kubelet does with a container that has ended."""
        self.pods[name].kill()
        self.pods[name] = Pod(self.node, self.deployments[name])

    def get(self, url):
        if url.path.endswith("/pods"):
            key, _, value = parse_qs(url.query)["labelSelector"][0].partition("=")
            found = [pod for pod in self.pods.values() if pod.labels.get(key) == value]
            statuses = [{"name": pod.container["name"], "ready": pod.is_ready()} for pod in found]
            items = [{"metadata": {}, "status": {"containerStatuses": [status]}} for status in statuses]
            return 200, {"kind": "PodList", "apiVersion": "v1", "items": items}
        name = url.path.rpartition("/")[2]
        if name not in self.deployments:
            return not_found(name)
        ready = int(self.pods[name].is_ready())
        return 200, {**self.deployments[name], "status": {"replicas": 1, "readyReplicas": ready}}

    def delete(self, url):
        name = url.path.rpartition("/")[2]
        if self.deployments.pop(name, None) is None:
            return not_found(name)
        self.pods.pop(name).kill()
        return 200, {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        for pod in self.pods.values():
            pod.kill()


def not_found(name):
    return 404, {
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
        "message": f"{name} not found",
    }
