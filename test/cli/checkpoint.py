"""checkpoint.py SOURCE TOKENIZER OUT: writes a checkpoint in two shards, with values of no meaning.

SOURCE is a folder of test/data/hf with config.json and weights.tsv.
"""
import json, os, shutil, struct, sys

source, tokenizer, out = sys.argv[1:]
os.makedirs(out)
shutil.copy(source + "/config.json", out)
for name in ("tokenizer.json", "tokenizer_config.json"):
    shutil.copy(tokenizer + "/" + name, out)
heads, bodies, places = [{}, {}], [b"", b""], {}
for i, line in enumerate(open(source + "/weights.tsv")):
    name, shape = line.split("\t")[:2]
    shape = [int(x) for x in shape.split(",")]
    n = 1
    for x in shape:
        n *= x
    part = i % 2
    data = struct.pack("<%df" % n, *((k * 7 % 31 - 15) / 64 for k in range(n)))
    heads[part][name] = dict(dtype="F32", shape=shape, data_offsets=[len(bodies[part]), len(bodies[part]) + 4 * n])
    bodies[part] += data
    places[name] = "model-0000%d-of-00002.safetensors" % (part + 1)
for part in range(2):
    head = json.dumps(heads[part]).encode()
    with open(out + "/model-0000%d-of-00002.safetensors" % (part + 1), "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + bodies[part])
with open(out + "/model.safetensors.index.json", "w") as f:
    json.dump(dict(metadata={}, weight_map=places), f)
