"""The counter-based generator of weights that test/unit/golden_model.h repeats bit for bit."""
import numpy as np

def u64(x): return np.uint64(x & 0xFFFFFFFFFFFFFFFF)

def fnv(name):
    h = 0xcbf29ce484222325
    for b in name.encode(): h = ((h ^ b) * 0x100000001b3) & 0xFFFFFFFFFFFFFFFF
    return h

def mix(x):
    x ^= x >> 33; x = x * 0xff51afd7ed558ccd & 0xFFFFFFFFFFFFFFFF
    x ^= x >> 33; x = x * 0xc4ceb9fe1a85ec53 & 0xFFFFFFFFFFFFFFFF
    return x ^ x >> 33

def values(name, shape, offset, scale):
    """float32(offset + scale * (2 u - 1)), u = top 53 bits of rng_at(fnv1a(name), i)."""
    n = int(np.prod(shape)) if shape else 1
    with np.errstate(over='ignore'):
        base = u64(mix((fnv(name) + 0x9e3779b97f4a7c15) & 0xFFFFFFFFFFFFFFFF))
        x = base + np.arange(n, dtype=np.uint64) * u64(0xd1342543de82ef95)
        z = x + u64(0x9e3779b97f4a7c15)
        z = (z ^ (z >> u64(30))) * u64(0xbf58476d1ce4e5b9)
        z = (z ^ (z >> u64(27))) * u64(0x94d049bb133111eb)
        z = z ^ (z >> u64(31))
    u = (z >> u64(11)).astype(np.float64) * 2.0 ** -53
    return (offset + scale * (2 * u - 1)).astype(np.float32).reshape(shape)
