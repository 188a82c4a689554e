#!/usr/bin/env bash
# ramp from the shell: a file within its budget, the same bytes twice, steps that continue, budgets that
# cannot be met.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3

"$CHIMERE" synth qwen35moe-mini q8 q8.gguf --layers 1 --experts 2 --vocab 512 >/dev/null
"$CHIMERE" quantize q8.gguf in.gguf BF16 --pure -q >/dev/null
fast=(--tokens 512 --probe-tokens 256 --population 2 --generations 1 --sample 256 -q --threads 1)

# predicted errors alone: the file keeps within its budget and is close to it
"$CHIMERE" ramp in.gguf a.gguf --bpw 4.0 --predict "${fast[@]}" >said
grep -q 'bits per weight, predicted divergence' said || fail "no summary: $(cat said)"
bits=$("$CHIMERE" inspect a.gguf | grep -o '[0-9.]* bits per weight' | cut -d' ' -f1)
python3 -c "assert 3.9 < $bits <= 4.0, $bits" || fail "expected just below 4 bits, got $bits"
"$CHIMERE" logits -m a.gguf --tokens 5,6,7 >/dev/null

# an embedding that is the head, too, does not get the least bits
"$CHIMERE" ramp "$SOURCE_DIR/models/chimere-nano-bf16.gguf" tied.gguf --bpw 4.0 --predict --sample 4096 -q >/dev/null
grep -Eq '"token_embd.weight": "(iq4_xs|q[4-8])' tied.gguf.ramp/plan.json ||
    fail "the head has $(grep -o 'token_embd.weight": ".*"' tied.gguf.ramp/plan.json)"

# the same options give the same bytes, whatever the threads
"$CHIMERE" ramp in.gguf b.gguf --bpw 4.0 --predict "${fast[@]}" --threads 2 >/dev/null
cmp a.gguf b.gguf || fail "two runs differ"

# without a text or a matrix, the model writes a text and the inputs' correlations are collected over it
"$CHIMERE" ramp analyse in.gguf w.gguf --bpw 4.0 "${fast[@]}" >/dev/null
"$CHIMERE" inspect w.gguf.ramp/imatrix.gguf --tensors >tensors
grep -q in_corr tensors || fail "no correlations were collected"

# with the engine: divergence is measured; a repeated run finds every step done and builds the same file
for i in $(seq 40); do echo "The $i cats sat on $((i * 7)) mats; none of them moved."; done >text
"$CHIMERE" imatrix -m in.gguf -f text -o m.imatrix --ctx 64 --chunks 3 -q --process-output >/dev/null
for step in analyse search build; do
    "$CHIMERE" ramp $step in.gguf c.gguf --bpw 4.0 --imatrix m.imatrix "${fast[@]}" >$step.said
done
grep -q 'measured.* uniform' search.said || fail "no measured divergence: $(cat search.said)"
mv c.gguf d.gguf
"$CHIMERE" ramp in.gguf c.gguf --bpw 4.0 --imatrix m.imatrix "${fast[@]}" >/dev/null
cmp c.gguf d.gguf || fail "a repeated run gives another file"
# without cached encodings, too
rm -r c.gguf.ramp/cache-*
"$CHIMERE" ramp build in.gguf c.gguf --bpw 4.0 --imatrix m.imatrix "${fast[@]}" >/dev/null
cmp c.gguf d.gguf || fail "a build without cached encodings differs"

# a text that was changed under its name is read again
"$CHIMERE" ramp analyse in.gguf t.gguf --bpw 4.0 -f text "${fast[@]}" >/dev/null
cp t.gguf.ramp/imatrix.gguf first.imatrix
for i in $(seq 40); do echo "Rain fell on the $i roofs of the town, and the river rose by $((i * 3)) inches."; done >text
"$CHIMERE" ramp analyse in.gguf t.gguf --bpw 4.0 -f text "${fast[@]}" >/dev/null
if cmp -s t.gguf.ramp/imatrix.gguf first.imatrix; then fail "moments of a text that was changed"; fi

# an effort that encodes nothing leaves the divergence predicted; one that is too small for all forms restricts the
# candidates to those that are encoded, and repeats to the same bytes
"$CHIMERE" ramp in.gguf z.gguf --bpw 4.0 --imatrix m.imatrix "${fast[@]}" --effort 0 >none.said 2>err
grep -q 'is predicted, not measured: .* more than --effort allows' err || fail "nothing is said of the effort: $(cat err)"
if grep -q measured none.said; then fail "measured without effort: $(cat none.said)"; fi
[ -e z.gguf ] || fail "no file from predictions"
for i in 1 2; do
    "$CHIMERE" ramp in.gguf g$i.gguf --bpw 4.0 --imatrix m.imatrix "${fast[@]}" --population 8 --effort 0.04 >small.said
    grep -q 'measured' small.said || fail "not measured: $(cat small.said)"
done
cmp g1.gguf g2.gguf || fail "two runs with little effort differ"

# the plan in the forms of other tools
python3 - <<'END'
import json, re
plan = json.load(open("c.gguf.ramp/plan.json"))
# the best uniform type of the budget is measured too, and the result is never worse
assert 0 <= plan["measured"] <= plan["measured_uniform"], plan
rules = dict(line.strip().rsplit("=", 1) for line in open("c.gguf.ramp/types.txt"))
assert len(rules) == len(plan["types"])
for rule, type in rules.items():
    hits = [n for n in plan["types"] if re.search(rule, n)]
    assert len(hits) == 1 and plan["types"][hits[0]] == type, (rule, hits)
assert open("c.gguf.ramp/custom-q.txt").read().startswith('--custom-q "')
END

# a search with other options does not go on from what these made
"$CHIMERE" ramp search in.gguf c.gguf --bpw 4.0 --imatrix m.imatrix "${fast[@]}" --generations 0 >/dev/null
python3 -c 'import json; assert json.load(open("c.gguf.ramp/plan.json"))["generations"] == 0' ||
    fail "a search without generations has some"

# a card's memory is a budget too
"$CHIMERE" ramp in.gguf e.gguf --card rtx-5060-ti-16g --ctx 4096 --predict "${fast[@]}" >/dev/null

refuses 1 "the smallest file that these types give" \
    "$CHIMERE" ramp in.gguf x.gguf --bpw 1.0 --predict "${fast[@]}"
[ ! -e x.gguf ] || fail "a file without a plan"
refuses 2 "expected one of --size, --bpw and --card" "$CHIMERE" ramp in.gguf x.gguf --predict -q
# an impossible budget is refused before anything takes time, and leaves nothing
refuses 1 "the smallest file that these types give" "$CHIMERE" ramp in.gguf early.gguf --size 10K -q
[ ! -e early.gguf.ramp ] || fail "a refused budget left a work folder"
# so is a result that would replace the model, or a folder
refuses 2 "the result would replace its source" "$CHIMERE" ramp in.gguf in.gguf --bpw 4 --predict -q
mkdir folder
refuses 2 "expected the name of a file, got a folder" "$CHIMERE" ramp in.gguf folder --bpw 4 --predict -q
if [ -e in.gguf.ramp ] || [ -e folder.ramp ]; then fail "a refused result left a work folder"; fi
# and a matrix of another model
python3 -c 'import sys; sys.stdout.buffer.write(open("m.imatrix", "rb").read().replace(b".weight.", b".height."))' >other.imatrix
refuses 1 "names a tensor of this model" "$CHIMERE" ramp in.gguf x.gguf --bpw 4 --imatrix other.imatrix -q
refuses 2 "no card named 'gtx'" "$CHIMERE" ramp in.gguf x.gguf --card gtx --predict -q
refuses 2 "expected MODEL and OUT" "$CHIMERE" ramp in.gguf
refuses 1 "there is no analysis" "$CHIMERE" ramp search in.gguf none.gguf --bpw 4 --predict -q

# a source with blocks is searched from what it has, with a warning; NaN is refused by its place
"$CHIMERE" ramp q8.gguf y.gguf --bpw 4.0 --predict "${fast[@]}" >/dev/null 2>err
grep -q 'is quantized already' err || fail "no warning about a quantized source: $(cat err)"
# with room for all that it has, it stays as it is
"$CHIMERE" ramp q8.gguf whole.gguf --bpw 16 --predict "${fast[@]}" >/dev/null 2>&1 || fail "no file of all that is there"
for file in q8 whole; do "$CHIMERE" inspect $file.gguf --tensors | grep '^ *blk' >$file.tensors; done
cmp q8.tensors whole.tensors || fail "a search with room for everything changed tensors"
python3 - <<'END'
data = bytearray(open("in.gguf", "rb").read())
data[-(1 << 20):] = b"\xc0\x7f" * (1 << 19)
open("nan.gguf", "wb").write(data)
END
refuses 1 "expected finite numbers" "$CHIMERE" ramp nan.gguf x.gguf --bpw 4.0 --predict "${fast[@]}"

# experts that the text of a matrix never reached, and rows that no quantized type holds: a sentence each
python3 - <<'END'
import struct
data = bytearray(open("m.imatrix", "rb").read())
name = b"blk.0.ffn_down_exps.weight.counts"
at = data.index(name) + len(name)
n_dims = struct.unpack_from("<I", data, at)[0]
offset = struct.unpack_from("<Q", data, at + 4 + 8 * n_dims + 4)[0]
# the data follows the directory, whose last entry is that of the last tensor
last = at
while (nxt := data.find(b".in_sum2", last + 1)) > 0 or (nxt := data.find(b".counts", last + 1)) > 0:
    last = nxt
    suffix = 8 if data[last:last + 8] == b".in_sum2" else 7
end = last + suffix
end += 4 + 8 * struct.unpack_from("<I", data, end)[0] + 12
start = (end + 31) // 32 * 32
struct.pack_into("<f", data, start + offset, 0)
open("rare.imatrix", "wb").write(data)

text = lambda s: struct.pack("<Q", len(s)) + s.encode()
out, body = b"GGUF" + struct.pack("<IQQ", 3, 3, 1) + text("general.architecture") + struct.pack("<I", 8) + text("llama"), b""
for name, n in (("blk.0.ffn_up.weight", 100), ("blk.0.ffn_down.weight", 256)):
    out += text(name) + struct.pack("<IQQIQ", 2, n, 8, 0, len(body))
    body += struct.pack("<%df" % (8 * n), *(i * 7 % 31 - 15 for i in range(8 * n)))
out += text("blk.0.ffn_norm.weight") + struct.pack("<IQIQ", 1, 100, 0, len(body))
body += struct.pack("<100f", *[1] * 100)
open("odd.gguf", "wb").write(out + bytes(-len(out) % 32) + body)
END
"$CHIMERE" ramp analyse in.gguf r.gguf --bpw 4.0 --imatrix rare.imatrix "${fast[@]}" >/dev/null 2>err
grep -q 'counts no row for 1 matrices of experts' err || fail "nothing is said of an unseen expert: $(cat err)"
"$CHIMERE" ramp analyse odd.gguf o.gguf --bpw 14 --predict "${fast[@]}" >/dev/null 2>err
grep -q 'blk.0.ffn_up.weight: no quantized type holds rows of 100: it is stored as f16' err ||
    fail "nothing is said of a row that no type holds: $(cat err)"
"$CHIMERE" ramp report in.gguf c.gguf --bpw 4.0 --imatrix m.imatrix "${fast[@]}" >/dev/null
grep -q 'mix Q4_K_M' c.gguf.ramp/pareto.svg || fail "no mixes in the Pareto picture"
"$CHIMERE" ramp report in.gguf c.gguf --bpw 4.0 --imatrix m.imatrix -f text "${fast[@]}" >said
grep -qE '^KL mean +0\.[0-9]*[1-9]' said || fail "no divergence: $(cat said)"
grep -qE '^tokens per second here +[1-9][0-9]*\.[0-9] \(MODEL: [1-9][0-9]*\.[0-9]\)$' said || fail "no speed: $(cat said)"
