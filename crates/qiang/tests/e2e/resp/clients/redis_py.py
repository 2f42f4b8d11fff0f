"""redis-py against the RESP door: every command, both versions, a pipeline and a pool."""

import os
from concurrent.futures import ThreadPoolExecutor

import redis

PORT, PASSWORD = int(os.environ["PORT"]), os.environ["PASSWORD"]
SALE, POOL_SALE = os.environ["SALE"], os.environ["POOL_SALE"]


def expect(answer, expected):
    assert answer == expected, f"{answer} is not {expected}"


def fails(error, *words):
    try:
        shop.execute_command(*words)
    except error as said:
        return str(said)
    raise AssertionError(f"{words} did not fail")


for number, protocol in enumerate((2, 3), start=1):
    shop = redis.Redis(port=PORT, password=PASSWORD, protocol=protocol, decode_responses=True)
    user, claim = f"py-{protocol}", f"{SALE}-{31 * number - 30}"
    expect(shop.ping(), True)
    expect(shop.execute_command("CLAIM", SALE, user, 1, "r-1")[::2], [1, claim])
    expect(shop.execute_command("CLAIM", SALE, user, 1, "r-1")[::2], [2, claim])
    expect(shop.execute_command("CLAIM", 99, user), [0, "no_such_sale"])
    expect(shop.execute_command("ORDER", claim, user)[0], 1)
    expect(shop.execute_command("PAY", claim, f"p-{protocol}", 9900), [1, "paid", claim])
    expect(shop.execute_command("RELEASE", claim), [0, "already_paid"])
    pool = shop.execute_command("POOL", SALE)
    if protocol == 2:
        pool = dict(zip(pool[::2], pool[1::2]))
    expect((pool["id"], pool["status"], pool["paid"]), (SALE, "open", number))
    expect(shop.execute_command("POOL", 99), None)
    pipeline = shop.pipeline(transaction=False)
    for place in range(30):
        pipeline.execute_command("CLAIM", SALE, f"{user}-{place}")
    expect([answer[0] for answer in pipeline.execute()], [1] * 30)
    assert "wrong number" in fails(redis.ResponseError, "CLAIM")
    # A transaction takes nothing.
    transaction = shop.pipeline()
    transaction.execute_command("CLAIM", SALE, "nobody")
    try:
        transaction.execute()
        raise AssertionError("there are no transactions")
    except redis.ResponseError as said:
        assert "transaction=False" in str(said), said
    expect(shop.info()["server_name"], "qiang")

for password in (None, "open sesame"):
    shop = redis.Redis(port=PORT, password=password)
    fails(redis.AuthenticationError, "PING")

# A buyer with a token.
shop = redis.Redis.from_url(f"redis://ann:{os.environ['TOKEN']}@127.0.0.1:{PORT}")
expect(shop.execute_command("CLAIM", SALE, "ann")[0], 1)
fails(redis.exceptions.NoPermissionError, "CLAIM", SALE, "ben")
fails(redis.exceptions.NoPermissionError, "PAY", f"{SALE}-1", "p", 1)

# Many threads share a pool of connections.
shop = redis.Redis(port=PORT, password=PASSWORD, max_connections=8)
with ThreadPoolExecutor(8) as threads:
    asked = threads.map(
        lambda n: shop.execute_command("CLAIM", POOL_SALE, f"u{n % 200}"), range(400)
    )
expect(sorted(answer[0] for answer in asked), [1] * 200 + [2] * 200)
print("ok")
