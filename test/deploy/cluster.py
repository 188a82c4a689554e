"""A stand-in for a cluster's API server, on loopback: enough of discovery, GET and POST that Helm can install a
chart into it. It keeps what was created and runs nothing. Its version and its kinds are those that a test names."""

import base64
import gzip
import http.server
import json
import re
import threading

# group/version: kinds with their plural, and whether they are in a namespace
KINDS = {
    "v1": [("Namespace", "namespaces", False), ("Secret", "secrets", True), ("ConfigMap", "configmaps", True),
           ("Service", "services", True), ("ServiceAccount", "serviceaccounts", True), ("Pod", "pods", True),
           ("PersistentVolumeClaim", "persistentvolumeclaims", True)],
    "apps/v1": [("Deployment", "deployments", True)],
    "policy/v1": [("PodDisruptionBudget", "poddisruptionbudgets", True)],
    "autoscaling/v2": [("HorizontalPodAutoscaler", "horizontalpodautoscalers", True)],
    "networking.k8s.io/v1": [("NetworkPolicy", "networkpolicies", True), ("Ingress", "ingresses", True)],
    "gateway.networking.k8s.io/v1": [("HTTPRoute", "httproutes", True)],
    "inference.networking.k8s.io/v1": [("InferencePool", "inferencepools", True)],
    "monitoring.coreos.com/v1": [("ServiceMonitor", "servicemonitors", True), ("PrometheusRule", "prometheusrules", True)],
    "keda.sh/v1alpha1": [("ScaledObject", "scaledobjects", True)],
}


def resource_list(version):
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": [
        {"name": plural, "singularName": kind.lower(), "namespaced": namespaced, "kind": kind,
         "verbs": ["create", "delete", "get", "list", "patch", "update"]} for kind, plural, namespaced in KINDS[version]]}


def group_list():
    groups = [v for v in KINDS if "/" in v]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [
        {"name": v.split("/")[0], "versions": [{"groupVersion": v, "version": v.split("/")[1]}],
         "preferredVersion": {"groupVersion": v, "version": v.split("/")[1]}} for v in groups]}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def send(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def missing(self):
        self.send(404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
                        "message": "not found"})

    def do_GET(self):
        cluster, path = self.server.cluster, self.path.split("?")[0].rstrip("/")
        if path == "/version":
            major, minor = cluster.version.split(".")[:2]
            self.send(200, {"major": major, "minor": minor, "gitVersion": "v" + cluster.version, "platform": "linux/amd64"})
        elif path == "/api":
            self.send(200, {"kind": "APIVersions", "versions": ["v1"]})
        elif path == "/apis":
            self.send(200, group_list())
        elif path == "/api/v1" or path[len("/apis/"):] in KINDS:
            self.send(200, resource_list("v1" if path == "/api/v1" else path[len("/apis/"):]))
        elif path in cluster.objects:
            self.send(200, cluster.objects[path])
        elif path.split("/")[-1] in {p for kinds in KINDS.values() for _, p, _ in kinds}:
            items = [o for at, o in cluster.objects.items() if at.rsplit("/", 1)[0] == path]
            self.send(200, {"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items})
        else:
            self.missing()

    def store(self, at, body):
        cluster = self.server.cluster
        body["metadata"].setdefault("uid", str(len(cluster.objects) + 1))
        body["metadata"]["resourceVersion"] = str(len(cluster.objects) + 1)
        cluster.objects[at] = body

    def body(self):
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if data[:1] == b"{":
            return json.loads(data)
        # Helm sends its record of a release as protobuf: the name, and gzip in base64, are found in it.
        name = re.search(rb"sh\.helm\.release\.v1\.[a-z0-9.-]+\.v\d+", data)
        release = re.search(rb"H4sI[A-Za-z0-9+/=]+", data)
        return {"kind": "Secret", "apiVersion": "v1", "type": "helm.sh/release.v1",
                "metadata": {"name": name.group().decode(), "namespace": "default"},
                "data": {"release": base64.b64encode(release.group()).decode()}}

    def do_POST(self):
        body, path = self.body(), self.path.split("?")[0]
        self.store(path + "/" + body["metadata"]["name"], body)
        self.send(201, body)

    def do_PUT(self):
        body = self.body()
        self.store(self.path.split("?")[0], body)
        self.send(200, body)

    def do_DELETE(self):
        self.send(200, self.server.cluster.objects.pop(self.path.split("?")[0], {}))


class Cluster:
    """with Cluster("1.30.0") as c: c.kubeconfig is the text of a kubeconfig."""

    def __init__(self, version):
        self.version, self.objects = version, {}

    def __enter__(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.cluster = self
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.kubeconfig = json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:%d" % self.server.server_port}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "default"}}]})
        return self

    def __exit__(self, *args):
        self.server.shutdown()
        self.server.server_close()

    def manifest(self, release):
        """What Helm stored of the release: the rendered text."""
        for o in self.objects.values():
            if o["kind"] == "Secret" and o["metadata"]["name"].startswith("sh.helm.release.v1.%s." % release):
                text = gzip.decompress(base64.b64decode(base64.b64decode(o["data"]["release"])))
                return json.loads(text)["manifest"]
        return None

    def created(self):
        return [o for o in self.objects.values() if not o["metadata"]["name"].startswith("sh.helm.release")]
