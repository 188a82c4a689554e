#!/usr/bin/env python3
"""manifests.py VERSION SUMS URL FOLDER: what package managers need to fetch a release from URL, by the hashes of SHA256SUMS.

Homebrew and Nix for a tarball of Linux, the portable one if it was made, because it runs with the oldest glibc; winget and
Scoop for the zip of Windows; without such a file, not written.
"""
import json
import re
import sys
from pathlib import Path

SUMMARY = "Inference engine and server for hybrid language models"

BREW = """class Chimere < Formula
  desc "{summary}"
  homepage "{home}"
  url "{url}"
  sha256 "{sha}"
  license "Apache-2.0"

  depends_on :linux
  depends_on arch: :x86_64

  def install
    libexec.install Dir["*"]
    bin.install_symlink libexec/"bin/chimere"
  end

  test do
    assert_equal "chimere {version}", shell_output("#{{bin}}/chimere version").strip
  end
end
"""

NIX = """{{ lib, stdenv, fetchurl, autoPatchelfHook }}:
stdenv.mkDerivation {{
  pname = "chimere";
  version = "{version}";
  src = fetchurl {{
    url = "{url}";
    sha256 = "{sha}";
  }};
  nativeBuildInputs = [ autoPatchelfHook ];
  installPhase = "mkdir -p $out && cp -r . $out/";
  meta = {{
    description = "{summary}";
    license = lib.licenses.asl20;
    platforms = [ "x86_64-linux" ];
    mainProgram = "chimere";
  }};
}}
"""

WINGET = """PackageIdentifier: Chimere.Chimere
PackageVersion: {version}
PackageLocale: en-US
Publisher: The Chimere authors
PackageName: Chimere
License: Apache-2.0
ShortDescription: {summary}
InstallerType: zip
NestedInstallerType: portable
NestedInstallerFiles:
- RelativeFilePath: {folder}\\chimere.exe
  PortableCommandAlias: chimere
ArchiveBinariesDependOnPath: true
Installers:
- Architecture: x64
  InstallerUrl: {url}
  InstallerSha256: {upper}
ManifestType: singleton
ManifestVersion: 1.9.0
"""


def scoop(row):
    return json.dumps({"version": row["version"], "description": SUMMARY, "homepage": row["home"], "license": "Apache-2.0",
                       "architecture": {"64bit": {"url": row["url"], "hash": row["sha"]}},
                       "extract_dir": row["folder"], "bin": "chimere.exe",
                       "shortcuts": [["start.bat", "Chimere"]]}, indent=4) + "\n"


LINUX = (r"linux-x86_64-glibc[0-9.]+\.tar\.gz$", r"linux-x86_64\.tar\.gz$")
WINDOWS = (r"windows-x86_64\.zip$",)
FILES = (("homebrew/chimere.rb", LINUX, BREW), ("nix/chimere.nix", LINUX, NIX),
         ("winget/Chimere.Chimere.yaml", WINDOWS, WINGET), ("scoop/chimere.json", WINDOWS, scoop))


def main(version, sums, url, folder):
    hashes = dict(reversed(line.split()) for line in Path(sums).read_text().splitlines())
    for path, patterns, form in FILES:
        name = next((n for pattern in patterns for n in hashes if re.search(pattern, n)), None)
        if not name:
            continue
        row = {"version": version, "summary": SUMMARY, "home": url, "url": f"{url}/{name}", "sha": hashes[name],
               "upper": hashes[name].upper(), "folder": name.removesuffix(".zip")}
        out = Path(folder) / path
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(form(row) if callable(form) else form.format(**row))


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
