// What was granted: order it, pay it, or give it back, before its time is up.
const claimed = signal(null);
const saleOf = signal(null);
const doing = signal('');
const settled = signal(null);
const refunds = signal([]);
const asked = new URLSearchParams(location.search);
const recordId = asked.get('record_id');

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
  for (let attempt = 0; isUnsure(answer) && attempt < 8; attempt += 1) {
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
  const [payment, timestamp, signature] = ['payment', 'timestamp', 'signature'].map((name) => asked.get(name));
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
  return all.map((refund) => html`<div key=${refund.payment_id} class="note bad refund"><strong>${t(refund.status === 'settled' ? 'refund_sent' : 'refund_due')}</strong>
    <p>${t('refund_text', { amount: money(refund.amount_cents) })}</p></div>`);
}

function Buttons({ claim, state }) {
  const [id, busy] = [claim.claim_id, doing.value !== ''];
  const say = (name, word) => (doing.value === 'checking' ? t('checking') : doing.value === name ? t('one_moment') : word);
  if (state === 'held') {
    return html`<div class="row"><button class="primary" disabled=${busy} onClick=${() => act('order', 'POST', `/claims/${id}/order`)}>${say('order', t('order'))}</button>
      <button disabled=${busy} onClick=${() => act('give_up', 'DELETE', `/claims/${id}`)}>${say('give_up', t('give_up'))}</button></div>`;
  }
  if (state !== 'ordered') return null;
  return html`<div class="row">
    ${facts.payments && html`<button class="primary" disabled=${busy} onClick=${() => payNow(claim)}>${say('pay', t('pay', { amount: money(claim.unit_price_cents * claim.quantity) }))}</button>`}
    <button disabled=${busy} onClick=${() => act('cancel', 'POST', `/orders/${id}/cancel`)}>${say('cancel', t('cancel'))}</button></div>
    <p class="muted">${t(facts.payments === 'sandbox' ? 'sandbox_text' : facts.payments ? 'checkout_text' : 'provider_text')}</p>`;
}

function PayPage() {
  const claim = claimed.value;
  if (!claim) return html`<${Frame}><h1>${t('pay_title')}</h1><${Problem} of=${problem.value} />
    ${!problem.value && html`<p class="muted">${t('loading')}</p>`}<p><a href=${path('mine')}>${t('mine')}</a></p><//>`;
  const state = stateNow(claim);
  const why = claim.release_reason || (claim.state === 'held' ? 'hold_expired' : 'pay_expired');
  const deadline = state === 'held' ? claim.hold_until : claim.pay_by;
  return html`<${Frame}><div class="narrow">
    <h1>${t('pay_' + state)}</h1>
    ${state === 'released' && html`<p>${t('why_' + why)}</p>`}
    ${(state === 'held' || state === 'ordered') && deadline && html`<${Deadline} until=${deadline} label=${t('until_' + state)} />`}
    <dl class="bill">
      <div><dt>${t('item')}</dt><dd>${saleOf.value ? saleOf.value.title : claim.sale_id}</dd></div>
      <div><dt>${t('quantity')}</dt><dd class="digits">${number(claim.quantity)}</dd></div>
      <div><dt>${t('record')}</dt><dd class="digits">${claim.claim_id}</dd></div>
      <div class="total"><dt>${t('total')}</dt><dd class="digits">${money(claim.unit_price_cents * claim.quantity)}</dd></div>
    </dl>
    <${Refunds} />
    <${Buttons} claim=${claim} state=${state} />
    <div aria-live="polite"><${Problem} of=${problem.value} /></div>
    <p><a href=${path(`sales/${claim.sale_id}`)}>${t('to_sale')}</a> · <a href=${path('mine')}>${t('mine')}</a></p>
  </div><//>`;
}

async function startPay() {
  if (!me.value?.signed_in) { location.replace(signInPath()); return; }
  await bringCallback();
  await loadClaim();
  poll(() => 5000, async () => { if (!doing.value && claimed.value && !['paid', 'released'].includes(claimed.value.state)) await loadClaim(); });
}
