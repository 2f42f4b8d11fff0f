"""Verifies red packets, written from docs/PACKETS.md alone.

Reads one packet as JSON from each line of standard input and prints for each `true`, or what is wrong.
"""

import hashlib
import hmac
import json
import sys


def part(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def numbers(seed: bytes, nonce: bytes):
    counter = 0
    while True:
        message = part(b"qiang packet cut v1") + part(nonce) + counter.to_bytes(8, "big")
        block = hmac.new(seed, message, hashlib.sha256).digest()
        for at in range(0, 32, 8):
            yield int.from_bytes(block[at : at + 8], "big")
        counter += 1


def below(bound: int, stream) -> int:
    usable = 2**64 - 2**64 % bound
    while True:
        number = next(stream)
        if number < usable:
            return number % bound


def lucky(total: int, shares: int, seed: bytes, nonce: bytes) -> list:
    stream = numbers(seed, nonce)
    spare = total - shares
    portions = []
    for left in range(shares, 1, -1):
        extra = below(2 * spare // left + 1, stream)
        portions.append(1 + extra)
        spare -= extra
    portions.append(1 + spare)
    for last in range(shares - 1, 0, -1):
        other = below(last + 1, stream)
        portions[last], portions[other] = portions[other], portions[last]
    return portions


def fixed(total: int, shares: int) -> list:
    each, rest = divmod(total, shares)
    return [each + 1] * rest + [each] * (shares - rest)


def verify(packet: dict):
    nonce, seed = bytes.fromhex(packet["nonce"]), bytes.fromhex(packet["seed"])
    total, shares, kind = packet["total_cents"], packet["shares"], packet["kind"]
    parts = [
        b"qiang packet v1",
        packet["id"].encode(),
        str(total).encode(),
        str(shares).encode(),
        kind.encode(),
        nonce,
        seed,
    ]
    if hashlib.sha256(b"".join(map(part, parts))).hexdigest() != packet["commitment"]:
        return "the commitment is another one"
    portions = lucky(total, shares, seed, nonce) if kind == "lucky" else fixed(total, shares)
    for grab in packet["grabs"]:
        if not 0 <= grab["portion"] < shares:
            return f"there is no portion {grab['portion']}"
        if portions[grab["portion"]] != grab["amount_cents"]:
            return f"portion {grab['portion']} is {portions[grab['portion']]}"
    return True


for line in sys.stdin:
    print(json.dumps(verify(json.loads(line))))
