"""What Schemathesis is told beyond the OpenAPI file.

A refusal of good data (422) is right only where a rule joins several fields, which a schema does
not say. And the callbacks of the payment provider are signed, so that their bodies are read.
"""

import hashlib
import hmac
import os
import time

import requests
import schemathesis
from schemathesis.core.parameters import ParameterLocation

RULES = [
    "`closes_at` must be after opens_at",
    "`price_steps` must rise",
    "`hold_secs` goes only with the hold flow",
    "`pay_secs` does not go with the instant flow",
    "`buckets` do not go with price_steps",
    "`buckets` must not be more than there are units",
    "`token` must be given, or `link`, or `user_id`",
    # What the bytes of a picture say.
    "`body` is no image/",
    # The bounds of ids, which a pattern does not show.
    "`id` must be a number from 1 to",
    "`before` must be a `next_before`",
    "`after` must be a `next_after`",
    "bytes long; at most 128 are allowed",
    # Money and packets.
    "`expires_at` must be within the next 366 days",
    "`payment_id` is for the sandbox",
    "`share_cents` does not go with total_cents",
    "`share_cents` goes with the kind fixed only",
    "`total_cents` is missing",
    "`total_cents` must be",
    "`nonce` is needed with seed_id",
    "`seed_id` is needed with nonce",
    "`nonce` must be 1 to 64 bytes in hex",
    # What a pattern cannot say in every dialect.
    "and no control characters",
]

# Codes of their own for what only the shop's data can tell.
CODES = ["idempotency_key_reused", "same_account", "above_hold"]


@schemathesis.check
def refused_by_a_known_rule(ctx, response, case):
    if response.status_code != 422 or not case.meta or case.meta.generation.mode.is_negative:
        return
    problem = response.json()
    if problem["code"] not in CODES:
        assert any(rule in problem["detail"] for rule in RULES), problem["detail"]


class Provider(requests.auth.AuthBase):
    """Signs a request as the payment provider does."""

    def __call__(self, request):
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else body
        at = str(int(time.time()))
        key = os.environ["CALLBACK_SECRET"].encode()
        digest = hmac.new(key, at.encode() + b"." + body, hashlib.sha256).hexdigest()
        request.headers["X-Qiang-Timestamp"] = at
        request.headers["X-Qiang-Signature"] = "sha256=" + digest
        return request


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.operation.path != "/api/v1/payments/callback" or not case.meta:
        return
    # Where the headers are wrong and nothing else is, they stay as they are.
    bad = case.meta.is_negative_at
    if bad(ParameterLocation.BODY) or not bad(ParameterLocation.HEADER):
        kwargs["auth"] = Provider()
