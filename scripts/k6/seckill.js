// A flash sale with k6: every user of a token file asks once for one unit, under the address that
// voucher shops know, spread evenly over a window. Arrivals do not wait for answers.
//
//   qiang tokens --count 10000 --out tokens.csv
//   k6 run -e SALE_ID=1 -e TOKENS_FILE=tokens.csv -e RAMP_WINDOW=10s scripts/k6/seckill.js
//
// Passes only if every answer was one that a sale may give, and, with ADMIN_TOKEN, if all books of
// the server agree afterwards.

import { check, fail } from 'k6';
import exec from 'k6/execution';
import { SharedArray } from 'k6/data';
import http from 'k6/http';
import { Counter } from 'k6/metrics';

const env = (name, otherwise) => (__ENV[name] === undefined || __ENV[name] === '' ? otherwise : __ENV[name]);

// Where the server is.
const BASE_URL = env('BASE_URL', 'http://127.0.0.1:8080').replace(/\/+$/, '');
// Which sale; VOUCHER_ID is the same under the name that voucher shops use.
const SALE_ID = env('SALE_ID', env('VOUCHER_ID'));
// What `qiang tokens --count N --out FILE` wrote: user_id,token. Relative to where k6 was started.
const TOKENS_FILE = env('TOKENS_FILE', 'tokens.csv');
// The whole crowd comes in this time; 0s is all at once.
const RAMP_WINDOW = env('RAMP_WINDOW', '10s');
// Users that k6 plays at the same time, at most.
const MAX_VUS = Number(env('MAX_VUS', '500'));
// With an admin's token the books are compared at the end.
const ADMIN_TOKEN = env('ADMIN_TOKEN');

if (SALE_ID === undefined) {
  throw new Error('which sale? -e SALE_ID=…');
}
if (!/^\d+(ms|s|m|h)$/.test(RAMP_WINDOW)) {
  throw new Error(`RAMP_WINDOW=${RAMP_WINDOW} is not a time like 10s`);
}

const crowd = new SharedArray('crowd', () => {
  const path = TOKENS_FILE.startsWith('/') ? TOKENS_FILE : `${__ENV.PWD || '.'}/${TOKENS_FILE}`;
  const lines = open(path).split(/\r?\n/).filter((line) => line !== '');
  if (lines.shift() !== 'user_id,token') {
    throw new Error(`${TOKENS_FILE} does not begin with user_id,token`);
  }
  return lines.map((line) => {
    const comma = line.lastIndexOf(',');
    return { user: line.slice(0, comma), token: line.slice(comma + 1) };
  });
});

if (crowd.length === 0) {
  throw new Error(`${TOKENS_FILE} has no tokens`);
}

const vus = Math.max(1, Math.min(MAX_VUS, crowd.length));
const atOnce = /^0+(ms|s|m|h)$/.test(RAMP_WINDOW);

export const options = {
  scenarios: {
    seckill: atOnce
      ? { executor: 'shared-iterations', vus, iterations: crowd.length, maxDuration: '10m' }
      : {
          executor: 'constant-arrival-rate',
          rate: crowd.length,
          timeUnit: RAMP_WINDOW,
          duration: RAMP_WINDOW,
          preAllocatedVUs: vus,
        },
  },
  thresholds: { checks: ['rate==1'], http_req_failed: ['rate==0'] },
  summaryTrendStats: ['min', 'med', 'p(90)', 'p(99)', 'p(99.9)', 'max'],
};

// "No" is an answer, too: these are no failures.
http.setResponseCallback(http.expectedStatuses(200, 201, 409, 410));

const granted = new Counter('granted');
const grantedBefore = new Counter('granted_before');
const refused = {
  sold_out: new Counter('sold_out'),
  already_claimed: new Counter('already_claimed'),
};
const other = new Counter('other_answers');

function sale() {
  return http.get(`${BASE_URL}/api/v1/sales/${SALE_ID}`, { tags: { name: 'sale' } });
}

export function setup() {
  const before = sale();
  if (before.status !== 200) {
    fail(`no sale ${SALE_ID} at ${BASE_URL}: ${before.status} ${before.error || before.body}`);
  }
  return { available: before.json('available') };
}

export default function () {
  const place = exec.scenario.iterationInTest;
  if (place >= crowd.length) {
    return;
  }
  const buyer = crowd[place];
  const url = `${BASE_URL}/voucher-order/seckill/${SALE_ID}`;
  const headers = { Authorization: buyer.token, 'Idempotency-Key': `k6-${SALE_ID}-${buyer.user}` };
  const answer = http.post(url, null, { headers, tags: { name: 'seckill' } });
  if (answer.status === 201 || answer.status === 200) {
    (answer.status === 201 ? granted : grantedBefore).add(1);
    check(answer, { 'the claim is the buyer’s own': (r) => r.json('user_id') === buyer.user });
    return;
  }
  const code = answer.status === 0 ? undefined : answer.json('code');
  (refused[code] || other).add(1);
  check(code, { 'granted, sold out or claimed before': (c) => refused[c] !== undefined });
}

export function teardown(before) {
  const after = sale();
  check(after, {
    'no more left than before': (r) => r.json('available') <= before.available,
    'the counts add up': (r) => {
      const { stock, available, held, ordered, paid } = r.json();
      return available >= 0 && available + held + ordered + paid === stock;
    },
  });
  if (ADMIN_TOKEN !== undefined) {
    const headers = { Authorization: ADMIN_TOKEN };
    const audit = http.get(`${BASE_URL}/api/v1/admin/audit`, { headers, timeout: '10m', tags: { name: 'audit' } });
    check(audit, { 'all books agree': (r) => r.status === 200 && r.json('ok') === true });
  }
}
