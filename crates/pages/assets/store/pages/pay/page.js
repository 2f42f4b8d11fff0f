// What was granted: order it, pay it, or give it back, before its time is up.
const claimed = signal(null);
const saleOf = signal(null);
const doing = signal('');
const settled = signal(null);
const refunds = signal([]);
const query = new URLSearchParams(location.search);
const recordId = query.get('record_id') ?? '';
const MOST_ATTEMPTS = 8;

async function loadClaim() {
  const answer = await api('GET', `/claims/${encodeURIComponent(recordId)}`, { fresh: true });
  if (!answer.ok) { problem.value = answer.body; return; }
  claimed.value = answer.body;
  problem.value = null;
  watch([answer.body.hold_until, answer.body.pay_by]);
  if (answer.body.pay_by && ['paid', 'released'].includes(answer.body.state)) loadRefunds();
  if (!saleOf.value) {
    const its = await api('GET', `/sales/${answer.body.sale_id}`);
    if (its.ok) saleOf.value = its.body;
  }
}

async function loadRefunds() {
  const answer = await api('GET', `/orders/${encodeURIComponent(recordId)}/refunds`, { fresh: true });
  if (answer.ok) refunds.value = answer.body.refunds;
}

// Asks until the answer is a definite one; each of these may be asked again without harm.
async function act(name, method, where) {
  if (doing.value) return null;
  doing.value = name;
  problem.value = null;
  let answer = await api(method, where, { body: {} });
  for (let attempt = 0; isUnsure(answer) && attempt < MOST_ATTEMPTS; attempt += 1) {
    doing.value = 'checking';
    await pause(Math.min(8000, 400 * 2 ** attempt));
    answer = await api(method, where, { body: {} });
  }
  await loadClaim();
  if (!answer.ok) problem.value = answer.body;
  doing.value = '';
  return answer;
}

async function payNow(claim) {
  if (facts.payments === 'checkout') {
    const answer = await act('pay', 'POST', `/orders/${claim.claim_id}/checkout`);
    if (answer?.ok) { doing.value = 'pay'; location.assign(answer.body.url); }
    return;
  }
  const answer = await act('pay', 'POST', `/orders/${claim.claim_id}/pay`);
  if (answer?.ok) became(answer.body);
}

// Back from the provider, with its callback in the address: handed on as it is. Whoever was faster, it
// counts once. An address that says nothing new is no problem: the provider tells the shop, too.
async function bringCallback() {
  const [payment, timestamp, signature] = ['payment', 'timestamp', 'signature'].map((name) => query.get(name));
  if (!payment || !timestamp || !signature) return;
  history.replaceState(null, '', `${location.pathname}?record_id=${encodeURIComponent(recordId)}`);
  doing.value = 'checking';
  try {
    const body = atob(payment.replaceAll('-', '+').replaceAll('_', '/'));
    const headers = { 'content-type': 'application/json', 'accept-language': facts.lang, 'x-qiang-timestamp': timestamp, 'x-qiang-signature': signature };
    const answer = await fetch('/api/v1/payments/callback', { method: 'POST', headers, body });
    if (answer.ok) became(await answer.json());
  } catch { /* not ours, or no connection */ }
  doing.value = '';
}

// What became of a payment; a late one may have bought the unit anew, under another number.
function became(settlement) {
  settled.value = settlement;
  const bought = settlement.order?.order_id;
  if (bought && bought !== recordId) { remembered.add(bought); location.assign(`${path('pay')}?record_id=${bought}`); }
}

function Refunds() {
  const own = settled.value?.refund;
  const all = refunds.value.length || !own ? refunds.value : [own];
  return all.map((refund) => html`<div key=${refund.payment_id} class="note refund"><strong>${t(refund.status === 'settled' ? 'refund_sent' : 'refund_due')}</strong>
    <p>${t(refund.reason === 'revoked' ? 'refund_revoked' : 'refund_text', { amount: money(refund.amount_cents) })}</p></div>`);
}

function Buttons({ claim, state }) {
  const [id, busy] = [claim.claim_id, doing.value !== ''];
  const say = (name, word) => (doing.value === 'checking' ? t('checking') : doing.value === name ? t('one_moment') : word);
  const primary = (name, word, run) => html`<button class="primary wide" disabled=${busy} onClick=${run}>${say(name, word)}</button>`;
  const quiet = (name, word, run) => html`<button class="plain wide" disabled=${busy} onClick=${run}>${say(name, word)}</button>`;
  if (state === 'held') {
    return html`<div class="buttons">${primary('order', t('order'), () => act('order', 'POST', `/claims/${id}/order`))}
      ${quiet('give_up', t('give_up'), () => act('give_up', 'DELETE', `/claims/${id}`))}</div>`;
  }
  if (state !== 'ordered') return null;
  const amount = money(claim.unit_price_cents * claim.quantity);
  return html`<p class="muted">${t(facts.payments === 'sandbox' ? 'sandbox_text' : facts.payments ? 'checkout_text' : 'provider_text')}</p>
    <div class="buttons">${facts.payments && primary('pay', t('pay', { amount }), () => payNow(claim))}
      ${quiet('cancel', t('cancel'), () => act('cancel', 'POST', `/orders/${id}/cancel`))}</div>`;
}

const drawings = { held: 'M12 7v5l3 2', ordered: 'M12 7v5l3 2', paid: 'm8 12 3 3 5-6', released: 'M9 9l6 6m0-6-6 6' };
const Sign = ({ state }) => html`<svg class=${`sign ${state}`} viewBox="0 0 24 24" aria-hidden="true"><circle cx="12" cy="12" r="10" /><path d=${drawings[state]} /></svg>`;

// How much of its time is left, as a bar that empties.
function TimeLeft({ claim, state }) {
  const until = state === 'held' ? claim.hold_until : claim.pay_by;
  const seconds = saleOf.value?.[state === 'held' ? 'hold_secs' : 'pay_secs'];
  if (!until) return null;
  const share = seconds ? Math.max(0, Date.parse(until) - now.value) / (seconds * 1000) : 0;
  return html`<div class="time-left"><${Deadline} until=${until} label=${t('until_' + state)} />
    ${seconds && html`<meter class="bar" aria-label=${t('until_' + state)} min="0" max="1" value=${share}></meter>`}</div>`;
}

function Bill({ claim }) {
  const line = (name, value, kind) => html`<div class=${kind}><dt>${name}</dt><dd class="digits">${value}</dd></div>`;
  return html`<dl class="bill">${line(t('item'), saleOf.value ? saleOf.value.title : claim.sale_id)}${line(t('quantity'), number(claim.quantity))}
    ${line(t('record'), claim.claim_id)}${line(t('total'), money(claim.unit_price_cents * claim.quantity), 'total')}</dl>`;
}

function PayPage() {
  const claim = claimed.value;
  if (!claim) return html`<${Waiting} title=${t('pay_title')}><p><a href=${path('mine')}>${t('mine')}</a></p><//>`;
  const state = stateNow(claim);
  const why = claim.release_reason || (claim.state === 'held' ? 'hold_expired' : 'pay_expired');
  return html`<${Frame}><article class=${`ticket ${state}`}>
    <header><${Sign} state=${state} /><h1>${t('pay_' + state)}</h1>${state === 'released' && html`<p>${t('why_' + why)}</p>`}</header>
    ${(state === 'held' || state === 'ordered') && html`<${TimeLeft} claim=${claim} state=${state} />`}
    <${Bill} claim=${claim} />
    <${Refunds} />
    <${Buttons} claim=${claim} state=${state} />
    <div aria-live="polite">${doing.value === 'checking' && html`<p class="note">${t('checking_text')}</p>`}<${Problem} of=${problem.value} /></div>
    <footer><a href=${path(`sales/${claim.sale_id}`)}>${t('to_sale')}</a><a href=${path('mine')}>${t('mine')}</a></footer>
  </article><//>`;
}

page('pay', {
  View: PayPage,
  async start() {
    if (!me.value.signed_in) { location.replace(signInPath()); return; }
    await bringCallback();
    await loadClaim();
    const isOpen = () => !doing.value && claimed.value && !['paid', 'released'].includes(claimed.value.state);
    poll(() => 5000, async () => { if (isOpen()) await loadClaim(); });
  },
});
