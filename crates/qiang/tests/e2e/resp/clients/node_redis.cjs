// node-redis against the RESP door: every command, both versions, pipelines and a pool.

const assert = require('node:assert');
const { createClient, createClientPool } = require('redis');

const { PORT, PASSWORD, TOKEN, SALE, POOL_SALE } = process.env;
const url = `redis://127.0.0.1:${PORT}`;

async function connect(options) {
  const client = createClient({ url, ...options });
  client.on('error', (error) => { throw error; });
  return client.connect();
}

async function main() {
  for (const [round, RESP] of [[0, 2], [1, 3]]) {
    const shop = await connect({ password: PASSWORD, RESP });
    const ask = (...words) => shop.sendCommand(words.map(String));
    const user = `node-${RESP}`;
    const claim = `${SALE}-${31 * round + 1}`;
    assert.strictEqual(await shop.ping(), 'PONG');
    assert.deepStrictEqual(await ask('CLAIM', SALE, user, 1, 'r-1'), [1, 31 * round + 1, claim]);
    assert.deepStrictEqual(await ask('CLAIM', SALE, user, 1, 'r-1'), [2, 31 * round + 1, claim]);
    assert.deepStrictEqual(await ask('CLAIM', 99, user), [0, 'no_such_sale']);
    assert.strictEqual((await ask('ORDER', claim, user))[0], 1);
    assert.deepStrictEqual(await ask('PAY', claim, `p-${RESP}`, 9900), [1, 'paid', claim]);
    assert.deepStrictEqual(await ask('RELEASE', claim), [0, 'already_paid']);
    let pool = await ask('POOL', SALE);
    if (RESP === 2) {
      pool = Object.fromEntries(pool.map((name, at) => [name, pool[at + 1]]).filter((_, at) => at % 2 === 0));
    }
    assert.strictEqual(pool.status, 'open');
    assert.strictEqual(pool.paid, round + 1);
    assert.strictEqual(await ask('POOL', 99), null);
    // What is asked in one tick goes out as one pipeline.
    const users = Array.from({ length: 15 }, (_, place) => `${user}-${place}`);
    const many = await Promise.all(users.map((one) => ask('CLAIM', SALE, one)));
    assert(many.every((answer) => answer[0] === 1), JSON.stringify(many));
    const pipeline = shop.multi();
    for (const one of users) pipeline.addCommand(['CLAIM', SALE, `${one}-b`]);
    assert((await pipeline.execAsPipeline()).every((answer) => answer[0] === 1));
    await assert.rejects(ask('CLAIM'), /wrong number of arguments/);
    // A transaction takes nothing.
    const transaction = shop.multi().addCommand(['CLAIM', SALE, 'nobody']);
    await assert.rejects(transaction.exec(), /no transactions/);
    await shop.close();
  }

  const lost = createClient({ url, password: 'open sesame', socket: { reconnectStrategy: false } });
  lost.on('error', () => {});
  await assert.rejects(lost.connect(), /WRONGPASS/);

  // A buyer with a token.
  const ann = await connect({ username: 'ann', password: TOKEN });
  assert.strictEqual((await ann.sendCommand(['CLAIM', SALE, 'ann']))[0], 1);
  await assert.rejects(ann.sendCommand(['CLAIM', SALE, 'ben']), /NOPERM/);
  await assert.rejects(ann.sendCommand(['PAY', `${SALE}-1`, 'p', '1']), /NOPERM/);
  await ann.close();

  const pool = createClientPool({ url, password: PASSWORD }, { minimum: 4, maximum: 8 });
  await pool.connect();
  const asked = Array.from({ length: 400 }, (_, n) => pool.sendCommand(['CLAIM', POOL_SALE, `u${n % 200}`]));
  const granted = (await Promise.all(asked)).filter((answer) => answer[0] === 1);
  assert.strictEqual(granted.length, 200);
  await pool.close();
  console.log('ok');
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
