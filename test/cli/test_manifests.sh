#!/usr/bin/env bash
# manifests: Ruby and Nix run what package managers would run, on files like those of a release, with stand-ins for what the
# managers provide; the manifests for Windows name files that are in the zip.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3
url=https://example.org/releases/1.2.3
name=chimere-1.2.3-linux-x86_64-glibc2.28 folder=chimere-1.2.3-windows-x86_64

# A release: the program of the tarball answers only where its data is.
mkdir -p "$name/bin" "$name/share"
cat >"$name/bin/chimere" <<'PROGRAM'
#!/bin/sh
cat "$(dirname "$(readlink -f "$0")")/../share/said"
PROGRAM
chmod +x "$name/bin/chimere"
echo 'chimere 1.2.3' >"$name/share/said"
tar -czf "$name.tar.gz" "$name"
echo other >chimere-1.2.3-linux-x86_64.tar.gz
python3 - "$folder" <<'PY'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1] + ".zip", "w") as z:
    for name in "chimere.exe", "start.bat":
        z.writestr(f"{sys.argv[1]}/{name}", name)
PY
sha256sum chimere-*.tar.gz chimere-*.zip >SHA256SUMS
sums=$work/SHA256SUMS
python3 "$SOURCE_DIR/tools/manifests.py" 1.2.3 "$sums" "$url" "$work/made"
sha=$(sha256sum "$name.tar.gz" | cut -d' ' -f1)

# ---- Homebrew ----
if command -v ruby >/dev/null; then
    cat >formula.rb <<'RUBY'
require "pathname"
require "fileutils"
class Place < Pathname
  def install(*names)
    mkpath
    names.flatten.each { |n| FileUtils.mv(n, to_s) }
  end

  def install_symlink(target)
    mkpath
    FileUtils.ln_s(target.to_s, to_s)
  end
end
class Formula
  class << self
    attr_reader :rows, :check
    %i[desc homepage url sha256 license depends_on].each do |word|
      define_method(word) { |value| (@rows ||= {})[word] = value }
    end
    def test(&block) = @check = block
  end
  def libexec = Place.new("#{ENV["CELLAR"]}/libexec")
  def bin = Place.new("#{ENV["CELLAR"]}/bin")
  def shell_output(command) = `#{command}`
  def assert_equal(want, got) = want == got || abort("expected #{want}, got #{got}")
end
load ARGV[0]
rows = Chimere.rows
abort "desc: #{rows[:desc]}" unless rows[:desc].length.between?(10, 80) && rows[:desc] !~ /\A(an?|the|chimere) /i
chimere = Chimere.new
chimere.install
chimere.instance_eval(&Chimere.check)
abort "#{rows[:depends_on]}: the program is for one processor" unless rows[:depends_on] == { arch: :x86_64 }
puts rows[:url], rows[:sha256], rows[:license]
RUBY
    mkdir brewed
    tar -xzf "$name.tar.gz" -C brewed
    # like Homebrew, which enters the only folder of an archive
    (cd "brewed/$name" && CELLAR=$work/cellar ruby "$work/formula.rb" "$work/made/homebrew/chimere.rb") >out 2>err ||
        fail "the formula: $(cat out err)"
    printf '%s\n' "$url/$name.tar.gz" "$sha" Apache-2.0 | cmp -s - out || fail "the formula fetches: $(cat out)"
else
    echo "skip: manifests: no ruby; apt-get install ruby"
fi

# ---- Nix ----
if command -v nix-instantiate >/dev/null; then
    cat >call.nix <<'NIX'
let made = import ./made/nix/chimere.nix {
      lib.licenses.asl20.spdxId = "Apache-2.0";
      stdenv.mkDerivation = row: row;
      fetchurl = row: row;
      autoPatchelfHook = "hook";
    };
in [ made.version made.src.url made.src.sha256 made.meta.license.spdxId made.meta.mainProgram made.installPhase ]
NIX
    export NIX_STORE_DIR=$work/nix/store NIX_STATE_DIR=$work/nix/var NIX_LOG_DIR=$work/nix/log NIX_CONF_DIR=$work/nix/etc HOME=$work
    nix-instantiate --eval --strict --json --store dummy:// call.nix >out 2>err || fail "the derivation: $(cat err)"
    python3 - "$url/$name.tar.gz" "$sha" <<'PY' || fail "the derivation: $(cat out)"
import json, sys
row = json.load(open("out"))
assert row[:5] == ["1.2.3", sys.argv[1], sys.argv[2], "Apache-2.0", "chimere"], row
open("phase", "w").write(row[5])
PY
    mkdir built
    tar -xzf "$name.tar.gz" -C built
    (cd "built/$name" && out=$work/result bash -eu "$work/phase")
    [ "$(result/bin/chimere)" = "chimere 1.2.3" ] || fail "the derivation installs no program"
else
    echo "skip: manifests: no nix-instantiate; apt-get install nix-bin"
fi

# ---- winget, Scoop ----
python3 - "$url/$folder.zip" "$folder.zip" <<'PY' || fail "the manifests for Windows"
import hashlib, json, re, sys, zipfile
url, path = sys.argv[1:]
names = zipfile.ZipFile(path).namelist()
sha = hashlib.sha256(open(path, "rb").read()).hexdigest()
scoop = json.load(open("made/scoop/chimere.json"))
assert set(scoop) <= {"version", "description", "homepage", "license", "architecture", "extract_dir", "bin", "shortcuts"}, scoop
assert scoop["architecture"] == {"64bit": {"url": url, "hash": sha}}, scoop
assert f"{scoop['extract_dir']}/{scoop['bin']}" in names, scoop
assert all(f"{scoop['extract_dir']}/{target}" in names for target, _ in scoop["shortcuts"]), scoop
try:
    import yaml
except ImportError:
    print("skip: manifests: winget: no yaml; apt-get install python3-yaml")
    sys.exit()
winget = yaml.safe_load(open("made/winget/Chimere.Chimere.yaml"))
# the rules of the schema for one file, version 1.9, on the fields that are used; any other field is an error
text = {"PackageIdentifier": r"[^.\s]{1,32}(\.[^.\s]{1,32}){1,7}", "PackageVersion": r"[^\\/:*?\"<>|]{1,128}",
        "PackageLocale": r"[a-z]{2,3}-[A-Z]{2}", "Publisher": ".{2,256}", "PackageName": ".{2,256}", "License": ".{3,512}",
        "ShortDescription": ".{3,256}", "InstallerType": "zip", "NestedInstallerType": "portable",
        "ManifestType": "singleton", "ManifestVersion": r"1\.9\.0"}
assert set(winget) == {*text, "NestedInstallerFiles", "Installers", "ArchiveBinariesDependOnPath"}, sorted(winget)
# else the program is started by a link in another folder, beside which its models are not
assert winget["ArchiveBinariesDependOnPath"] is True, winget
for field, pattern in text.items():
    assert isinstance(winget[field], str) and re.fullmatch(pattern, winget[field]), (field, winget[field])
nested, = winget["NestedInstallerFiles"]
assert nested["RelativeFilePath"].replace("\\", "/") in names and nested["PortableCommandAlias"] == "chimere", nested
assert winget["Installers"] == [{"Architecture": "x64", "InstallerUrl": url, "InstallerSha256": sha.upper()}], winget
PY

# What was not made is not offered.
grep -v windows "$sums" >linux
python3 "$SOURCE_DIR/tools/manifests.py" 1.2.3 "$work/linux" "$url" "$work/less"
[ "$(ls less | tr '\n' ' ')" = "homebrew nix " ] || fail "manifests without a zip: $(ls less)"
echo "manifests: ok"
