"""Renders the chart for each file of cases/ and each of five Kubernetes versions, by installing it with Helm into a
stand-in for a cluster, and checks what comes out: against Kubernetes' own schemas, against golden files, and for
rules that no schema has. --update rewrites the golden files.

usage: chart.py CHART [--update] [--chimere PROGRAM]"""

import argparse
import asyncio
import copy
import json
import os
import re
import subprocess
import sys
import tempfile

import helm_sdkpy
import jsonschema
import kubernetes_validate
import yaml

from cluster import Cluster

VERSIONS = ["1.28.0", "1.30.0", "1.32.0", "1.34.0", "1.37.0"]  # the first: kubeVersion of Chart.yaml
HERE = os.path.dirname(os.path.abspath(__file__))
failures = []


def fail(where, text):
    failures.append("%s: %s" % (where, text))


def render(chart, version, values):
    """The rendered text and the objects that the cluster was given; raises what Helm refuses."""
    with Cluster(version) as cluster, tempfile.NamedTemporaryFile("w", suffix=".json") as config:
        config.write(cluster.kubeconfig)
        config.flush()
        helm = helm_sdkpy.Configuration(namespace="default", kubeconfig=config.name)
        asyncio.run(helm_sdkpy.Install(helm).run("chimere", chart, values=values, wait=False))
        return cluster.manifest("chimere"), cluster.created()


# ---- kinds that Kubernetes' schemas do not have: the fields that their definitions know ----

S, B, I, O, A = ({"type": t} for t in ("string", "boolean", "integer", "object", "array"))


def shape(required, **fields):
    return {"type": "object", "additionalProperties": False, "required": required.split(), "properties": fields}


def listed(item, **more):
    return {"type": "array", "items": item, "minItems": 1, **more}


CUSTOM = {
    "ServiceMonitor": shape("selector endpoints", selector=O, endpoints=listed(shape(
        "port", port=S, path=S, scheme={"enum": ["http", "https"]}, tlsConfig=shape("", insecureSkipVerify=B), interval={"pattern": "^[0-9]+(ms|s|m|h)$"},
        authorization=shape("credentials", type=S, credentials=shape("name key", name=S, key=S))))),
    "PrometheusRule": shape("groups", groups=listed(shape("name rules", name=S, rules=listed(shape(
        "alert expr labels annotations", **{"alert": S, "expr": S, "for": {"pattern": "^[0-9]+(s|m|h|d)$"}, "annotations": O,
                                          "labels": shape("severity", severity={"enum": ["info", "warning", "critical"]})}))))),
    "ScaledObject": shape(
        "scaleTargetRef triggers", scaleTargetRef=shape("name", name=S), minReplicaCount=I, maxReplicaCount=I,
        pollingInterval=I, cooldownPeriod=I, fallback=shape("failureThreshold replicas", failureThreshold=I, replicas=I),
        advanced=O, triggers=listed(shape("type metadata", type=S, metricType={"enum": ["AverageValue", "Value"]},
                                          metadata=shape("serverAddress query threshold", serverAddress=S, query=S, threshold=S)))),
    "HTTPRoute": shape("parentRefs rules", parentRefs=listed(O), hostnames=A, rules=listed(shape(
        "backendRefs", matches=listed(O, maxItems=64), timeouts=shape("request", request=S),
        sessionPersistence=shape("type", type={"enum": ["Cookie", "Header"]}, sessionName=S),
        backendRefs=listed(shape("name", group=S, kind=S, name=S, port=I))))),
    "InferencePool": shape("selector targetPorts endpointPickerRef", selector=shape("matchLabels", matchLabels=O),
                           targetPorts=listed(shape("number", number=I)),
                           endpointPickerRef=shape("name port", name=S, port=shape("number", number=I),
                                                   failureMode={"enum": ["FailOpen", "FailClose"]})),
}


def check_schema(where, o, version):
    try:
        if o["kind"] in CUSTOM:
            jsonschema.validate(o["spec"], CUSTOM[o["kind"]])
        else:
            kubernetes_validate.validate(o, version, strict=True)
    except (jsonschema.ValidationError, kubernetes_validate.SchemaNotFoundError) as e:
        fail(where, "%s %s: %s" % (o["kind"], o["metadata"]["name"], getattr(e, "message", e)))


# ---- rules ----

def check_pod(where, o, values):
    if o["kind"] != "Deployment":
        return
    pod = o["spec"]["template"]["spec"]
    c = pod["containers"][0]
    mounts, volumes = {m["name"] for m in c["volumeMounts"]}, {v["name"] for v in pod["volumes"]}
    if mounts != volumes:
        fail(where, "mounts %s, volumes %s" % (sorted(mounts), sorted(volumes)))
    if pod["automountServiceAccountToken"] or not pod["securityContext"]["runAsNonRoot"]:
        fail(where, "the pod has a token, or runs as root")
    s = c["securityContext"]
    if not s["readOnlyRootFilesystem"] or s["allowPrivilegeEscalation"] or s["capabilities"] != {"drop": ["ALL"]}:
        fail(where, "security context: %s" % s)
    grace = values.get("grace", 60)
    if pod["terminationGracePeriodSeconds"] < grace + 30:
        fail(where, "the pod is killed before running answers end")
    command = c["lifecycle"]["preStop"]["exec"]["command"]
    if command[:2] != ["chimere", "drain"] or str(grace) not in command:
        fail(where, "preStop: %s" % command)
    wait = c["startupProbe"]["periodSeconds"] * c["startupProbe"]["failureThreshold"]
    model = values.get("model", {})
    if wait < 60 + model.get("sizeMiB", 0) // (10 if model.get("uri", "").startswith("hf:") else 200):
        fail(where, "startup: %d s are less than reading the model takes" % wait)
    once = [v for v in values.get("persistence", {}).values() if v.get("accessMode", "").startswith("ReadWriteOnce")]
    if once and o["spec"]["strategy"]["type"] != "Recreate":
        fail(where, "a new pod waits for the claim of the old one")
    paths = [c[p]["httpGet"]["path"] for p in ("startupProbe", "livenessProbe", "readinessProbe")]
    if paths != ["/health/live", "/health/live", "/health/ready"]:
        fail(where, "probes: %s" % paths)
    gpu = values.get("gpu", {}).get("count") if values.get("gpu", {}).get("enabled") else None
    if c["resources"]["limits"].get("nvidia.com/gpu") != gpu:
        fail(where, "GPUs: expected %s: %s" % (gpu, c["resources"]))


def check_scheme(where, objects, values):
    """Who asks the pods with TLS expects it, and no certificate that names the address of a pod."""
    tls = bool(values.get("tls", {}).get("existingSecret"))
    for o in objects:
        if o["kind"] == "Ingress":
            got = o["metadata"]["annotations"].get("nginx.ingress.kubernetes.io/backend-protocol", "HTTP")
            if got != ("HTTPS" if tls else "HTTP"):
                fail(where, "the ingress speaks %s to the pods" % got)
        if o["kind"] == "ServiceMonitor":
            for e in o["spec"]["endpoints"]:
                if tls != (e["scheme"] == "https") or tls != bool(e.get("tlsConfig", {}).get("insecureSkipVerify")):
                    fail(where, "the scrape of %s" % e)


def check_names(where, objects):
    """What refers to another object of the release finds it."""
    names = {(o["kind"], o["metadata"]["name"]) for o in objects}
    labels = next(o for o in objects if o["kind"] == "Deployment")["spec"]["template"]["metadata"]["labels"]
    for o in objects:
        spec = o.get("spec", {})
        target = spec.get("scaleTargetRef", {}).get("name")
        if target and ("Deployment", target) not in names:
            fail(where, "%s scales %s" % (o["kind"], target))
        selector = spec.get("selector", {}) if o["kind"] != "Service" else {"matchLabels": spec["selector"]}
        if o["kind"] == "NetworkPolicy":
            selector = spec["podSelector"]
        for k, v in selector.get("matchLabels", {}).items():
            if labels.get(k) != v:
                fail(where, "%s selects %s=%s, which no pod has" % (o["kind"], k, v))
        for rule in spec.get("rules", []) if o["kind"] == "HTTPRoute" else []:
            for ref in rule["backendRefs"]:
                if (ref.get("kind", "Service"), ref["name"]) not in names:
                    fail(where, "HTTPRoute: no %s" % ref)


def metrics_of(text):
    return set(re.findall(r"\bchimere_[a-z_]+", text))


def check_exposition(text):
    """Readers such as endpoint pickers refuse a metric that is declared twice or whose lines lie apart."""
    seen, last = [], None
    for line in text.splitlines():
        name = line.split()[2] if line.startswith("# TYPE ") else re.match(r"[\w:]*", line).group()
        if line.startswith("# TYPE "):
            if name in seen:
                fail("metrics", "%s is declared twice" % name)
            seen.append(name)
        elif name:
            base = re.sub("_(bucket|sum|count)$", "", name)
            name = base if base in seen else name
            if name != last and name not in seen[-1:]:
                if name in seen:
                    fail("metrics", "%s lies apart" % name)
                seen.append(name)
        last = name or last
    if len(re.findall(r"^vllm:num_requests_waiting\{", text, re.M)) != 1:
        fail("metrics", "endpoint pickers expect one row of vllm:num_requests_waiting for an engine")


def check_metrics(where, objects, known):
    """Alerts, autoscalers and dashboards ask for metrics that the server has, if known is not None."""
    for o in objects:
        text = json.dumps(o.get("spec", {})) if o["kind"] in ("PrometheusRule", "ScaledObject", "HorizontalPodAutoscaler") else ""
        if o["metadata"]["name"].endswith("-dashboard"):
            text = o["data"]["chimere.json"]
            check_dashboard(where, json.loads(text))
        for name in metrics_of(text) - known if known is not None else ():
            fail(where, "%s: the server has no metric %s" % (o["kind"], name))


def check_dashboard(where, d):
    if d["schemaVersion"] < 36 or not re.fullmatch("[a-zA-Z0-9_-]{1,40}", d["uid"]):
        fail(where, "dashboard: schema version or uid")
    ids, cells = [p["id"] for p in d["panels"]], set()
    if len(set(ids)) != len(ids):
        fail(where, "dashboard: two panels have one id")
    for p in d["panels"]:
        g = p["gridPos"]
        own = {(x, y) for x in range(g["x"], g["x"] + g["w"]) for y in range(g["y"], g["y"] + g["h"])}
        if g["x"] + g["w"] > 24 or own & cells or not p["targets"]:
            fail(where, "dashboard: panel %s overlaps, leaves the grid or shows nothing" % p["title"])
        cells |= own


def check_config(where, objects, values, chimere):
    """The server accepts its configuration, but for files that only the cluster has."""
    config = next(o["data"] for o in objects if o["kind"] == "ConfigMap" and "config.yaml" in o["data"])["config.yaml"]
    options = yaml.safe_load(config)
    if options.get("night", False) != values.get("night", {}).get("enabled", False):
        fail(where, "the server does not use what nights learn")
    for name in ("model", "api-key", "tls-cert", "tls-key", "state-dir", "shared-states", "device", "also", "models-dir"):
        options.pop(name, None)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as f:
        yaml.safe_dump(options, f)
        f.flush()
        got = subprocess.run([chimere, "serve", "--check", "-m", "nano", "--config", f.name], capture_output=True, text=True)
    if got.returncode:
        fail(where, "serve --check: %s" % got.stderr.strip())


# ---- refusals: values, and a part of the sentence ----

REFUSED = [
    ({"replicas": 2}, "replicas"),
    ({"model": {"uri": "s3://x"}}, "uri"),
    ({"model": {"uri": "pvc://x"}}, "model.file: name the file"),
    ({"model": {"uri": "hf:a/b"}}, "persistence.models.enabled"),
    ({"replicaCount": 2, "persistence": {"store": {"enabled": True}}}, "a store has one writer"),
    ({"keda": {"enabled": True}, "hpa": {"enabled": True}}, "enable one of them"),
    ({"serviceMonitor": {"enabled": True}}, "serviceMonitor.keySecret.name"),
    ({"inferencePool": {"enabled": True}}, "endpoint picker"),
    ({"keda": {"enabled": True, "minReplicas": 0}}, "minReplicas"),
    ({"night": {"enabled": True}}, "persistence.store.enabled"),
    ({"ingress": {"enabled": True}}, "ingress.hosts"),
    ({"httpRoute": {"enabled": True}}, "httpRoute.parentRefs"),
    ({"config": {"port": 80}}, "config.port: the chart sets it"),
    ({"image": {"digest": "sha256:12"}}, "digest"),
    ({"service": {"port": 0}}, "port"),
    ({"gpu": {"enabled": True, "count": 0}}, "count"),
]


def check_refusals(chart):
    old = {"model": {"uri": "oci://r/m:1", "file": "m.gguf"}}
    more = [("1.32.0", old, "Kubernetes has from 1.33"), ("1.27.0", {}, "requires kubeVersion: >=%s" % VERSIONS[0])]
    for version, values, text in [(VERSIONS[-1], v, t) for v, t in REFUSED] + more:
        try:
            render(chart, version, values)
            fail("refusals", "%s is accepted" % values)
        except helm_sdkpy.HelmError as e:
            if text not in str(e):
                fail("refusals", "%s: expected '%s', got: %s" % (values, text, e))


def check_case(chart, name, args, known):
    path = os.path.join(HERE, "cases", name + ".yaml")
    text = open(path).read()
    values = yaml.safe_load(text) or {}
    first = re.match(r"# kubernetes: (\S+)", text)
    golden, last = os.path.join(HERE, "golden", name + ".yaml"), None
    for version in VERSIONS:
        where = "%s, Kubernetes %s" % (name, version)
        if first and [int(x) for x in version.split(".")[:2]] < [int(x) for x in first.group(1).split(".")]:
            continue
        last, objects = render(chart, version, copy.deepcopy(values))
        for o in objects:
            check_schema(where, {k: v for k, v in o.items()}, version)
            check_pod(where, o, values)
        check_names(where, objects)
        check_scheme(where, objects, values)
        check_metrics(where, objects, known)
    if args.chimere:
        check_config(name, objects, values, args.chimere)
    if args.update:
        open(golden, "w").write(last)
    elif not os.path.exists(golden) or open(golden).read() != last:
        fail(name, "differs from %s; look at the difference, then run this with --update" % golden)


def check_kustomize(chart, kubectl):
    """The plain manifests are the chart's own, as kubectl reads them."""
    base = os.path.join(os.path.dirname(os.path.dirname(chart)), "kustomize")
    for overlay in sorted(os.listdir(base)):
        got = subprocess.run([kubectl, "kustomize", os.path.join(base, overlay)], capture_output=True, text=True)
        if got.returncode:
            fail("kustomize " + overlay, got.stderr.strip())
            continue
        objects = [o for o in yaml.safe_load_all(got.stdout) if o]
        for o in objects:
            for version in VERSIONS:
                check_schema("kustomize %s, Kubernetes %s" % (overlay, version), o, version)
        if overlay != "base":
            continue
        key = lambda o: (o["kind"], o["metadata"]["name"])
        want = [o for o in yaml.safe_load_all(open(os.path.join(HERE, "golden", "default.yaml"))) if o]
        for o in want:
            for labels in (o["metadata"]["labels"],):
                labels.pop("helm.sh/chart"), labels.pop("app.kubernetes.io/managed-by")
            # names of the namespace differ: a base is put into any
        if sorted(map(key, objects)) != sorted(map(key, want)):
            fail("kustomize base", "has %s" % sorted(map(key, objects)))
        pairs = {key(o): o for o in objects}
        for o in want:
            if o["kind"] != "ConfigMap" and pairs.get(key(o)) != o:
                fail("kustomize base", "%s %s differs from the chart's; run with --update" % key(o))


def write_base(chart):
    base = os.path.join(os.path.dirname(os.path.dirname(chart)), "kustomize", "base")
    text = open(os.path.join(HERE, "golden", "default.yaml")).read()
    text = re.sub(r"^ *helm\.sh/chart:.*\n|^ *app\.kubernetes\.io/managed-by:.*\n|^# Source:.*\n", "", text, flags=re.M)
    text = re.sub(r"\n\n+", "\n", text).strip().removeprefix("---\n")
    open(os.path.join(base, "chimere.yaml"), "w").write(
        "# Written by test/deploy/chart.py --update from the chart's defaults; edit the chart.\n" + text + "\n")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("chart")
    p.add_argument("--update", action="store_true")
    p.add_argument("--chimere")
    p.add_argument("--kubectl")
    p.add_argument("--metrics", help="file with the text of GET /metrics; without it, names of metrics are not checked")
    args = p.parse_args()
    chart = os.path.abspath(args.chart)
    known = metrics_of(open(args.metrics).read()) if args.metrics else None
    if known is not None:
        check_exposition(open(args.metrics).read())
        known |= {n + s for n in known for s in ("_bucket", "_sum", "_count")}
    lint = asyncio.run(helm_sdkpy.Lint(helm_sdkpy.Configuration()).run(chart))
    for m in lint["Messages"]:
        if m["Severity"] > 1:
            fail("helm lint", str(m))
    cases = sorted(f[:-5] for f in os.listdir(os.path.join(HERE, "cases")))
    for name in cases:
        check_case(chart, name, args, known)
    check_refusals(chart)
    if args.update:
        write_base(chart)
    if args.kubectl:
        check_kustomize(chart, args.kubectl)
    for f in failures:
        print("FAILED:", f, file=sys.stderr)
    print("chart: %d cases, %d versions, %d refusals, %d failures" % (len(cases), len(VERSIONS), len(REFUSED) + 2, len(failures)))
    return 1 if failures else 0


sys.exit(main())
