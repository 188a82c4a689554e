#!/usr/bin/env bash
# package: the .deb of this build has what it should where it should, the same bits twice, and nothing that lintian objects to.
# script/release --check installs it into a new root.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs dpkg-deb dpkg-query dpkg-shlibdeps cpack python3
build=$(dirname "$CHIMERE")
[ -f "$build/manual/man1/chimere.1.gz" ] || {
    echo "skip: package: this build has no man pages; the release build does"
    exit 77
}
export SOURCE_DATE_EPOCH=1760000000
# gzip: what is tested here is the content.
for n in 1 2; do
    cpack --config "$build/CPackConfig.cmake" -G DEB -B "$work/$n" -D CPACK_DEBIAN_COMPRESSION_TYPE=gzip >log 2>&1 ||
        fail "cpack: $(cat log)"
done
deb=$(ls 1/chimere_*.deb)
cmp "$deb" 2/chimere_*.deb || fail "two packages of one build differ"
dpkg-deb -R "$deb" tree
[ "$(dpkg-deb -f "$deb" Version)" = "$("$CHIMERE" version | cut -d' ' -f2)" ] || fail "version: $(dpkg-deb -f "$deb" Version)"
[ "$(cat tree/DEBIAN/conffiles)" = /etc/chimere/config.yaml ] || fail "conffiles: $(cat tree/DEBIAN/conffiles)"
[[ $(dpkg-deb -f "$deb" Depends) == *libmicrohttpd* ]] || fail "no libraries: $(dpkg-deb -f "$deb" Depends)"
for script in postinst prerm postrm; do
    [ -x tree/DEBIAN/$script ] || fail "$script cannot be run"
    sh -n tree/DEBIAN/$script
done
# Nothing is started or enabled by the installation alone.
! grep -E 'enable|systemctl.* start|invoke start' tree/DEBIAN/postinst || fail "postinst starts the server"
env -i HOME="$work/nobody" tree/usr/bin/chimere run -q --temp 0 "What is 12 plus 30?" </dev/null >out
grep -q 42 out || fail "the program of the package: $(cat out)"
# what the conffile says is what the unit reads, and the program accepts it
grep -q -- '--config /etc/chimere/config.yaml' tree/usr/lib/systemd/system/chimere.service || fail "unit and conffile differ"
# without it, `systemctl reload`, which the pages name, is refused
grep -q '^ExecReload=.*-HUP' tree/usr/lib/systemd/system/chimere.service || fail "the unit cannot be reloaded"
cmp tree/etc/chimere/config.yaml tree/usr/share/chimere/config.yaml
if command -v systemd-analyze >/dev/null; then
    sed "s#=/usr/bin/#=$work/tree/usr/bin/#" tree/usr/lib/systemd/system/chimere.service >chimere.service
    systemd-analyze verify --man=no ./chimere.service 2>err || fail "unit: $(cat err)"
fi
if command -v lintian >/dev/null; then
    lintian --allow-root --fail-on error,warning "$deb" >out 2>&1 || fail "lintian: $(cat out)"
else
    echo "skip: package: no lintian; script/setup --test installs it"
fi

# The bill of materials: every library that the program links, no identifier twice, none that is unknown, no date of today.
mkdir dist
touch dist/chimere-0.1.0-{windows-x86_64.zip,linux-x86_64-glibc2.28.tar.gz}
(cd "$SOURCE_DIR" && python3 tools/sbom.py sbom 0.1.0 "$CHIMERE" "$work/dist") >sbom.json
python3 - <<'END'
import json
bill = json.load(open("sbom.json"))
ids = [row["SPDXID"] for row in bill["packages"]]
assert len(ids) == len(set(ids)) and ids[0] in bill["documentDescribes"], "identifiers"
for row in bill["relationships"]:
    assert row["spdxElementId"] in ids and row["relatedSpdxElement"] in ids, row
names = {row["name"] for row in bill["packages"]}
assert {"libjansson4", "libc6", "preact", "katex"} <= names, names
into = {row["relatedSpdxElement"].split("-")[2]: row["comment"] for row in bill["relationships"] if "comment" in row}
assert "zip" in into["curl"] and "glibc" in into["curl"] and "zip" not in into["openssl"] and "cudart" not in names, into
assert bill["creationInfo"]["created"] == "2025-10-09T08:53:20Z", bill["creationInfo"]
END
echo "package: ok"
