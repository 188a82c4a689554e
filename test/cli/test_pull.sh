#!/usr/bin/env bash
# pull: files and types from a stand-in hub, parts of split models, resuming, checks, offline use, and names
# that try to leave the models directory.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs curl node

nano=$(dirname "$CHIMERE")/chimere-nano.gguf
mkdir -p hub/tiny/model/split hub/gated/model hub/one/file hub/no/gguf got
"$CHIMERE" quantize "$nano" hub/tiny/model/Tiny-Q8_0.gguf Q8_0 >/dev/null
"$CHIMERE" quantize "$nano" hub/tiny/model/Tiny-Q4_K_M.gguf Q4_0 >/dev/null
"$CHIMERE" quantize "$nano" hub/tiny/model/split/Tiny-BF16.gguf BF16 --split 4M >/dev/null
cp hub/tiny/model/Tiny-Q4_K_M.gguf hub/tiny/model/Tiny-UD-IQ4_K_M.gguf
cp hub/tiny/model/Tiny-Q4_K_M.gguf hub/tiny/model/mmproj-Q4_K_M.gguf
cp hub/tiny/model/Tiny-Q4_K_M.gguf hub/gated/model/g.gguf
cp hub/tiny/model/Tiny-Q4_K_M.gguf "hub/one/file/with space.gguf"
echo '{}' >hub/tiny/model/config.json
echo '{}' >hub/no/gguf/config.json
echo 'x' >hub/tiny/model/.hidden

# Its standard input is ours: it ends when this script does.
exec 9> >(exec node "$SOURCE_DIR/test/net/standin.mjs" hub >port)
for _ in $(seq 2400); do [ -s port ] || sleep 0.05; done
url=http://127.0.0.1:$(cut -d' ' -f1 port)
export CHIMERE_HF_ENDPOINT=$url CHIMERE_MODELS_DIR=$work/models
pull() { "$CHIMERE" pull "$@" 2>err; }
dir=models/tiny/model

# the type that everybody means, unless another is named; in any case of letters
[ "$(pull hf:tiny/model)" = "$work/$dir/Tiny-Q4_K_M.gguf" ] || fail "default: $(cat err)"
cmp $dir/Tiny-Q4_K_M.gguf hub/tiny/model/Tiny-Q4_K_M.gguf || fail "other bytes"
(cd $dir && sha256sum --quiet -c Tiny-Q4_K_M.gguf.sha256) || fail "its own note is wrong"
[ "$(pull tiny/model:q8_0)" = "$work/$dir/Tiny-Q8_0.gguf" ] || fail "type: $(cat err)"
[ "$(pull hf:tiny/model:config.json)" = "$work/$dir/config.json" ] || fail "file: $(cat err)"
[ "$(pull hf:one/file)" = "$work/models/one/file/with space.gguf" ] || fail "space: $(cat err)"
pull hf:tiny/model:Q8_0 >/dev/null
grep -q 'there already' err || fail "fetched again: $(cat err)"
[ "$(find models -name '*.part' -o -name '*.state' | wc -l)" = 0 ] || fail "left over: $(find models)"

# all parts of a split model, and what comes out can be used
first=$(pull hf:tiny/model:BF16) || fail "split: $(cat err)"
[ "$(find $dir/split -name '*.gguf' | wc -l)" = "$(find hub/tiny/model/split -name '*.gguf' | wc -l)" ] ||
    fail "parts: $(find $dir)"
"$CHIMERE" inspect "$first" >got/inspect || fail "the split model does not open"

# refusals name what there is
refuses 1 "no file for 'Q2_K'; there are: Tiny-Q4_K_M.gguf, Tiny-Q8_0.gguf" "$CHIMERE" pull hf:tiny/model:Q2_K
refuses 1 "no GGUF file" "$CHIMERE" pull hf:no/gguf
refuses 1 "Repository not found" "$CHIMERE" pull hf:nobody/nothing
for bad in hf: hf:x hf:x/ hf:/x hf:../x hf:x/.. hf:x/y: hf:x/y:../z hf:x/y:/z 'hf:x/y:a\b' hf:x/y/z hf:a..b/c; do
    refuses 2 "expected hf:OWNER/REPO" "$CHIMERE" pull "$bad"
done

# a secret opens what is closed, goes to the hub alone, and is shown nowhere
refuses 1 "restricted" "$CHIMERE" pull hf:gated/model
CHIMERE_HF_TOKEN=hf_secret pull hf:gated/model >/dev/null || fail "gated: $(cat err)"
curl -s "$url/seen" >seen
tr '}' '\n' <seen | grep '/cdn/gated' >cdn || fail "no redirect was followed"
! grep -q hf_secret cdn || fail "the token went to the other host"
tr '}' '\n' <seen | grep '/gated/model/resolve' | grep hf_secret >/dev/null || fail "the token did not go to the hub"
! grep -rq hf_secret models err || fail "the token was written"
CHIMERE_HF_TOKEN=hf_secret "$CHIMERE" doctor >got/doctor
! grep -q hf_secret got/doctor || fail "doctor shows the token"
grep -q 'hf-token.*hidden' got/doctor || fail "doctor does not know hf-token"

# what no honest hub would say
refuses 1 "no GGUF file among 0 files" "$CHIMERE" pull hf:evil/paths
refuses 1 "expected SHA-256" "$CHIMERE" pull hf:evil/hash
refuses 1 "expected a size" "$CHIMERE" pull hf:evil/huge
refuses 1 "expected a size" "$CHIMERE" pull hf:evil/negative
refuses 1 "expected a SHA-256" "$CHIMERE" pull hf:evil/sha
refuses 1 "part 2 of 3 is missing" "$CHIMERE" pull hf:evil/parts
refuses 1 "expected at most" "$CHIMERE" pull hf:evil/many
[ -z "$(find . -name '*evil*.gguf')" ] || fail "written: $(find . -name '*evil*')"
mkdir -p models/one elsewhere
rm -r models/one
ln -s "$work/elsewhere" models/one
refuses 1 "leads outside" "$CHIMERE" pull hf:one/file
[ -z "$(find elsewhere -type f)" ] || fail "written through a link"

# killed in the middle: goes on, and the file is whole
head -c 40000000 /dev/zero | tr '\0' 'z' >hub/one/big.bin
mkdir -p hub/big/file && mv hub/one/big.bin hub/big/file/Big-Q4_K_M.gguf
"$CHIMERE" pull hf:big/file >/dev/null 2>err &
pid=$!
for _ in $(seq 200); do [ -s models/big/file/Big-Q4_K_M.gguf.part ] || sleep 0.01; done
kill -9 $pid 2>/dev/null || true
wait $pid 2>/dev/null || true
pull hf:big/file >/dev/null || fail "after kill -9: $(cat err)"
cmp -s hub/big/file/Big-Q4_K_M.gguf models/big/file/Big-Q4_K_M.gguf || fail "other bytes after kill -9"

# offline: every command finds it, by every way of naming it; pull keeps what it has
export CHIMERE_HF_ENDPOINT=http://127.0.0.1:9
want="$work/$dir/Tiny-Q8_0.gguf"
"$CHIMERE" run -m hf:tiny/model:Q8_0 -q -p "2+2?" -n 4 --temp 0 >got/a || fail "run -m hf: offline"
"$CHIMERE" run -hf tiny/model:Q8_0 -q -p "2+2?" -n 4 --temp 0 >got/b || fail "run -hf offline"
"$CHIMERE" run -m "$want" -q -p "2+2?" -n 4 --temp 0 >got/c
cmp got/a got/c && cmp got/b got/c || fail "another model answered"
[ "$(pull hf:tiny/model:Q8_0)" = "$want" ] || fail "pull offline: $(cat err)"
grep -q 'using the local copy' err || fail "pull offline says: $(cat err)"
refuses 1 "127.0.0.1:9" "$CHIMERE" pull hf:tiny/other
# the conventions of the hub's own client: its cache, its variables, its login
snapshot=cache/hub/models--they--have/snapshots/0123abc
mkdir -p $snapshot cache/hub/models--they--have/{blobs,refs}
cp "$want" cache/hub/models--they--have/blobs/f00
ln -s ../../blobs/f00 $snapshot/Theirs-Q8_0.gguf
printf 0123abc >cache/hub/models--they--have/refs/main
[ "$(HF_HOME=$work/cache "$CHIMERE" pull hf:they/have 2>err)" = "$work/$snapshot/Theirs-Q8_0.gguf" ] || fail "HF_HOME: $(cat err)"
[ "$(HF_HUB_CACHE=$work/cache/hub "$CHIMERE" pull hf:they/have 2>err)" = "$work/$snapshot/Theirs-Q8_0.gguf" ] || fail "HF_HUB_CACHE: $(cat err)"
printf '../..' >cache/hub/models--they--have/refs/main
HF_HOME=$work/cache refuses 1 "127.0.0.1:9" "$CHIMERE" pull hf:they/have
unset CHIMERE_HF_ENDPOINT
rm -r models/gated
HF_HUB_OFFLINE=1 HF_ENDPOINT=$url refuses 1 "HF_HUB_OFFLINE" "$CHIMERE" pull hf:gated/model
HF_ENDPOINT=$url refuses 1 "hf-token" "$CHIMERE" pull hf:gated/model
printf 'hf_secret\n' >cache/token
HF_ENDPOINT=$url HF_HOME=$work/cache "$CHIMERE" pull hf:gated/model >/dev/null 2>err || fail "the kept token: $(cat err)"
rm -r models/gated
HF_ENDPOINT=$url HF_TOKEN=hf_secret "$CHIMERE" pull hf:gated/model >/dev/null 2>err || fail "HF_TOKEN: $(cat err)"
echo "pull: ok"
