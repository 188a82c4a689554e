#!/usr/bin/env python3
"""What a release consists of, as JSON on standard output.

sbom.py sbom VERSION PROGRAM [DIST] SPDX 2.3: the program, the libraries that it links (as dpkg knows them), the packages of
                                    the page (studio/package-lock.json), and what is linked into the other programs of
                                    the folder DIST: libraries of cmake/cross/sources.txt, CUDA's runtime
sbom.py provenance VERSION SUMS     in-toto statement (SLSA provenance 1): the files of SHA256SUMS, the commit, the pinned
                                    sources of libraries, the tools

Dates are SOURCE_DATE_EPOCH and identifiers follow from the content, so that two builds give the same bytes.
"""
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import uuid
from datetime import datetime, timezone
from pathlib import Path


def text_of(*command):
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()


def spdx_id(name):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name)


def package_of(path):
    """(name, version, source) of the package that a file belongs to; dpkg knows one of its names."""
    real = os.path.realpath(path)
    for candidate in dict.fromkeys((path, real, re.sub("^/usr", "", real), "/usr" + path)):
        found = subprocess.run(["dpkg-query", "-S", candidate], capture_output=True, text=True)
        if found.returncode == 0:
            name = found.stdout.split(": ")[0].split(",")[0]
            version, source = text_of("dpkg-query", "-W", "-f=${Version}\t${source:Package}", name).split("\t")
            return name.split(":")[0], version, source
    sys.exit(f"sbom: no package has {path}")


def libraries(program):
    rows = (line.split("=>")[1].split()[0] for line in text_of("ldd", program).splitlines() if "=> /" in line)
    return sorted({package_of(path) for path in rows})


def cross_sources():
    """(name, version, SHA-256 of the .dsc) of the libraries that script/cross builds."""
    lines = Path("cmake/cross/sources.txt").read_text().splitlines()
    return [line.split() for line in lines if line and not line.startswith("#")]


def page_packages():
    locked = json.loads(Path("studio/package-lock.json").read_text())["packages"]
    for path, row in sorted(locked.items()):
        if path and not row.get("dev") and not row.get("optional"):
            yield path.rsplit("node_modules/", 1)[1], row["version"], row.get("license", "NOASSERTION")


def entry(name, version, licence, purl):
    return {"SPDXID": spdx_id(f"{name}-{version}"), "name": name, "versionInfo": version,
            "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": "NOASSERTION",
            "licenseDeclared": licence, "copyrightText": "NOASSERTION",
            "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                              "referenceLocator": purl}]}


def sbom(version, program, dist=None):
    ours = entry("chimere", version, "Apache-2.0", f"pkg:generic/chimere@{version}")
    packages, relations = [ours], []

    def add(kind, row, where=None):
        packages.append(row)
        relations.append({"spdxElementId": ours["SPDXID"], "relationshipType": kind, "relatedSpdxElement": row["SPDXID"],
                          **({"comment": where} if where else {})})

    distribution = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    vendor = distribution["ID"].strip('"')
    for name, package_version, source in libraries(program):
        add("DYNAMIC_LINK", entry(name, package_version, "NOASSERTION",
                                  f"pkg:deb/{vendor}/{name}@{package_version}?source={source}"))
    if re.search(r"faiss +yes", text_of(program, "doctor")):  # an archive: part of the program
        found = text_of("dpkg-query", "-W", "-f=${Version}", "libfaiss-dev")
        add("STATIC_LINK", entry("libfaiss", found, "MIT", f"pkg:deb/{vendor}/libfaiss-dev@{found}"))
    others = sorted(p.name for p in Path(dist).glob("chimere-*")) if dist else []
    for name, source_version, _ in cross_sources():
        into = [f for f in others if "glibc" in f or ("windows" in f and name not in ("openssl", "ncurses", "libedit"))]
        if into:
            add("STATIC_LINK", entry(f"source-{name}", source_version, "NOASSERTION",
                                     f"pkg:deb/debian/{name}@{source_version}?arch=source"), "in " + ", ".join(into))
    into = [f for f in others if "cuda" in f]
    if into:
        found = re.search(r"release [\d.]+, V([\d.]+)", text_of("nvcc", "--version"))[1]
        add("STATIC_LINK", entry("cudart", found, "NOASSERTION", f"pkg:generic/nvidia-cudart@{found}"), "in " + ", ".join(into))
    for name, package_version, licence in page_packages():
        purl = name.replace("@", "%40", 1)
        add("CONTAINS", entry(name, package_version, licence, f"pkg:npm/{purl}@{package_version}"))
    date = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    identity = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(packages, sort_keys=True) + date)
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
            "name": f"chimere-{version}", "documentNamespace": f"urn:uuid:{identity}",
            "creationInfo": {"created": date, "creators": ["Organization: The Chimere authors", "Tool: sbom.py"]},
            "documentDescribes": [ours["SPDXID"]], "packages": packages, "relationships": relations}


def provenance(version, sums):
    subjects = []
    for line in Path(sums).read_text().splitlines():
        digest, name = line.split("  ", 1)
        subjects.append({"name": name, "digest": {"sha256": digest}})
    commit = text_of("git", "rev-parse", "HEAD")
    changed = bool(text_of("git", "status", "--porcelain"))
    tools = {name: text_of(name, "--version").splitlines()[0]
             for name in ("cc", "c++", "cmake", "ninja", "aarch64-linux-gnu-gcc") if shutil.which(name)}
    if shutil.which("zig"):
        tools["zig"] = text_of("zig", "version")
    if shutil.which("nvcc"):
        tools["nvcc"] = text_of("nvcc", "--version").splitlines()[-1]
    sources = [{"name": name, "uri": f"pkg:deb/debian/{name}@{v}?arch=source", "digest": {"sha256": dsc}}
               for name, v, dsc in cross_sources()]
    return {"_type": "https://in-toto.io/Statement/v1", "subject": subjects,
            "predicateType": "https://slsa.dev/provenance/v1",
            "predicate": {
                "buildDefinition": {
                    "buildType": "urn:chimere:script/release:1",
                    "externalParameters": {"version": version, "changedFiles": changed},
                    "internalParameters": {"SOURCE_DATE_EPOCH": os.environ["SOURCE_DATE_EPOCH"],
                                           "architecture": platform.machine(), "tools": tools},
                    "resolvedDependencies": [{"name": "source", "digest": {"gitCommit": commit}}, *sources]},
                "runDetails": {"builder": {"id": "urn:chimere:builder:local"}}}}


def main():
    makers = {"sbom": sbom, "provenance": provenance}
    if len(sys.argv) not in (4, 5) or sys.argv[1] not in makers:
        sys.exit(__doc__)
    json.dump(makers[sys.argv[1]](*sys.argv[2:]), sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
