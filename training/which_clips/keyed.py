"""Random numbers that are pure functions of a key and a number: no state, and the same on every machine.

`key` makes a key of 64 bits of anything that names a purpose: a seed, an epoch, a word. `hashes` makes 64 random bits
of a key and each of many numbers; `below` turns them into integers below a bound; `permuted` is a permutation of
range(n) of which any part can be computed without the rest. numpy promises the streams of its own generators for one
build only, so the arithmetic is written out here, on integers alone, and tests hold values of it.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

import numpy as np

from ...manifests.ragged import Array

# Below this many, a permutation is a sort of hashes: a Feistel network on so few bits shows patterns.
_SORTED_BELOW = 1 << 16
# Eight rounds do for 17 bits and more; four show in a chi-square test on few bits.
_ROUNDS = 8
_WORD = np.uint64(32)
_LOW_HALF = np.uint64(0xFFFFFFFF)


def key(*parts: int | str) -> int:
    """A key of 64 bits made of integers and texts, by BLAKE2b: other parts make a key that has nothing in common."""
    # Draws of samplers and integers of numpy are the integers that they equal.
    text = "\0".join(f"{'str' if isinstance(part, str) else 'int'}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def hashes(hash_key: int, numbers: Any) -> Array:
    """64 random bits for each of these integers: uint64, of their shape. `hash_key` is of 64 bits.

    The finaliser of SplitMix64 (Steele, Lea, Flood 2014, with the constants of Stafford's variant 13), twice.
    """
    # At least one dimension: numpy warns where a scalar overflows.
    mixed: Array = np.atleast_1d(np.asarray(numbers, dtype=np.int64)).astype(np.uint64)
    turned = (hash_key << 23 | hash_key >> 41) & 0xFFFFFFFFFFFFFFFF
    mixed = _mixed(mixed ^ np.uint64(hash_key))
    mixed = _mixed(mixed + np.uint64(turned))
    return mixed.reshape(np.shape(numbers))


def _mixed(bits: Array) -> Array:
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return bits


def below(random_bits: Any, bounds: Any) -> Array:
    """floor(bits * bound / 2**64), exactly: integers from 0 to bound - 1, int64. Bounds are below 2**63.

    With random bits each integer is as likely as any other, to within one in 2**64 / bound.
    """
    bits, bound = np.broadcast_arrays(
        np.asarray(random_bits, dtype=np.uint64), np.asarray(bounds, dtype=np.int64).astype(np.uint64)
    )
    high_bits, low_bits = bits >> _WORD, bits & _LOW_HALF
    high_bound, low_bound = bound >> _WORD, bound & _LOW_HALF
    carried = high_bits * low_bound + (low_bits * low_bound >> _WORD)
    middle = low_bits * high_bound + (carried & _LOW_HALF)
    product: Array = high_bits * high_bound + (carried >> _WORD) + (middle >> _WORD)
    return product.astype(np.int64)


def permuted(hash_key: int, count: int, positions: Any) -> Array:
    """Where a random permutation of range(count) takes these positions: int64, of their shape.

    All positions together give every number once. Blocks of some thousand positions take about 0.1 us each; fewer cost
    about as much as a thousand. Nothing grows with `count` beyond 65,536 numbers.
    """
    places = np.asarray(positions, dtype=np.int64)
    if count < _SORTED_BELOW:
        return np.asarray(_sorted_order(hash_key, count)[places], dtype=np.int64)
    values = np.atleast_1d(places).astype(np.uint64).ravel()
    # A permutation of 2**bits numbers, which are less than twice as many: taken again and again, it leads from each
    # number that exists to another one that does.
    values = _feistel(hash_key, count, values)
    outside = np.flatnonzero(values >= np.uint64(count))
    while len(outside):
        values[outside] = _feistel(hash_key, count, values[outside])
        outside = outside[values[outside] >= np.uint64(count)]
    return values.astype(np.int64).reshape(places.shape)


@lru_cache(maxsize=8)
def _sorted_order(hash_key: int, count: int) -> Array:
    order = np.argsort(hashes(hash_key, np.arange(count)), kind="stable")
    order.setflags(write=False)
    return order


def _feistel(hash_key: int, count: int, values: Array) -> Array:
    """A permutation of the numbers of as many bits as count - 1 has.

    A Feistel network with the finaliser of MurmurHash3 (Appleby 2011) for its rounds. Where the number of bits is odd,
    the halves differ by one bit and change places with each round.
    """
    bits = (count - 1).bit_length()
    right_bits = (bits + 1) // 2
    left_bits = bits - right_bits
    left, right = values >> np.uint64(right_bits), values & np.uint64((1 << right_bits) - 1)
    for round_key in _round_keys(hash_key):
        mixed = (right.astype(np.uint32) ^ round_key).astype(np.uint32)
        mixed ^= mixed >> np.uint32(16)
        mixed *= np.uint32(0x85EBCA6B)
        mixed ^= mixed >> np.uint32(13)
        mixed *= np.uint32(0xC2B2AE35)
        mixed ^= mixed >> np.uint32(16)
        left, right = right, left ^ (mixed.astype(np.uint64) & np.uint64((1 << left_bits) - 1))
        left_bits, right_bits = right_bits, left_bits
    return (left << np.uint64(right_bits)) | right


@lru_cache(maxsize=64)
def _round_keys(hash_key: int) -> tuple[np.uint32, ...]:
    digest = hashlib.blake2b(hash_key.to_bytes(8, "little"), digest_size=4 * _ROUNDS, person=b"shortgop-order")
    return tuple(np.frombuffer(digest.digest(), dtype="<u4"))


def permuted_blocks(hash_key: int, size: int, positions: Any) -> Array:
    """The same within each block of `size` positions, each in an order of its own: int64, of the positions' shape.

    Position p is taken to one in the block p // size. A block takes 16 bytes a position while it is sorted.
    """
    places = np.asarray(positions, dtype=np.int64)
    blocks, which = np.unique(places // size, return_inverse=True)
    orders = np.argsort(hashes(hash_key, blocks[:, None] * size + np.arange(size)), axis=1, kind="stable")
    taken: Array = places - places % size + orders[which.reshape(places.shape), places % size]
    return taken
