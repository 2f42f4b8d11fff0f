// One sale: look, wait, claim once, and know what one has.
const sale = signal(null);
const mine = signal(null);
const claiming = signal('');
const quantity = signal(1);

// One key for each intent: made with the click, kept across reloads, gone with a definite answer.
const intentName = `qiang:intent:${facts.sale_id}`;
const intent = {
  read() { try { return JSON.parse(sessionStorage.getItem(intentName)); } catch { return null; } },
  write(value) { try { sessionStorage.setItem(intentName, JSON.stringify(value)); } catch { /* a private window */ } },
  drop() { try { sessionStorage.removeItem(intentName); } catch { /* a private window */ } },
};

async function loadSale() {
  const answer = await api('GET', `/sales/${facts.sale_id}`);
  if (answer.ok) { sale.value = answer.body; watch([sale.value.opens_at, sale.value.closes_at, mine.value?.hold_until, mine.value?.pay_by]); }
  else if (!sale.value) problem.value = answer.body;
}

async function loadMine() {
  const ids = remembered.all().filter((id) => id.startsWith(`${facts.sale_id}-`));
  if (!ids.length) return;
  const answer = await api('GET', `/claims/${ids[0]}`, { fresh: true });
  if (answer.ok) mine.value = answer.body;
}

function click() {
  if (claiming.value) return;
  if (!me.value.signed_in) { location.assign(signInPath()); return; }
  const wanted = { key: crypto.randomUUID?.() ?? anyKey(), quantity: quantity.value };
  intent.write(wanted);
  claim(wanted);
}

// Without TLS there is no randomUUID; random bytes there are.
const anyKey = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('');

// Asks until it is known what became of the intent.
async function claim(wanted) {
  claiming.value = 'asking';
  problem.value = null;
  for (let attempt = 0; ; attempt += 1) {
    const answer = await api('POST', `/sales/${facts.sale_id}/claims`, { body: { quantity: wanted.quantity }, key: wanted.key });
    if (answer.ok) { granted(answer.body.claim_id); return; }
    if (!isUnsure(answer)) { refused(answer.body); return; }
    claiming.value = 'checking';
    await pause(Math.min(8000, 400 * 2 ** attempt) * (0.75 + Math.random() / 2));
  }
}

function granted(id) {
  remembered.add(id);
  intent.drop();
  location.assign(`${path('pay')}?record_id=${id}`);
}

async function refused(why) {
  intent.drop();
  claiming.value = '';
  problem.value = why;
  if (why.claim_id) {
    const answer = await api('GET', `/claims/${why.claim_id}`, { fresh: true });
    if (answer.ok) { remembered.add(why.claim_id); mine.value = answer.body; problem.value = null; }
  }
  if (why.code === 'unauthenticated' || why.code === 'token_expired') location.assign(signInPath());
  loadSale();
}

function Steps({ of }) {
  if (!of.price_steps.length) return null;
  const taken = of.stock - of.available;
  return html`<table class="steps"><caption>${t('price_steps')}</caption><tbody>
    ${of.price_steps.map((step) => html`<tr key=${step.after_sold} class=${taken >= step.after_sold ? 'reached' : ''}>
      <th scope="row">${t('after_sold', { n: number(step.after_sold + 1) })}</th><td class="digits">${money(step.price_cents)}</td></tr>`)}</tbody></table>`;
}

const unitNames = [() => t('unit_days'), () => t('unit_hours'), () => t('unit_minutes'), () => t('unit_seconds')];

function Countdown({ until }) {
  const parts = partsOf(Date.parse(until) - now.value);
  return html`<div class="countdown" role="timer"><span class="muted">${t('until_opening')}</span><ol>${parts.map((part, place) => (place > 0 || part > 0) && html`<li key=${place}><b class="digits">${two(part)}</b><span>${unitNames[place]()}</span></li>`)}</ol></div>`;
}

function Own({ claim: own, state }) {
  const until = state === 'held' ? own.hold_until : own.pay_by;
  return html`<div class="note good own"><strong>${t('have_' + state)}</strong>
    ${state !== 'paid' && until && html`<${Deadline} until=${until} label=${t('until_' + state)} />`}
    <a class="button primary wide" href=${`${path('pay')}?record_id=${own.claim_id}`}>${t('go_' + state)}</a></div>`;
}

function Quantity({ most }) {
  const set = (count) => { quantity.value = Math.max(1, Math.min(most, count || 1)); };
  return html`<label class="count"><span>${t('quantity')}</span>
    <input type="number" inputmode="numeric" min="1" max=${most} value=${quantity.value} onInput=${(event) => set(event.target.valueAsNumber)} /></label>`;
}

function labelOf(of, status) {
  if (claiming.value) return claiming.value === 'checking' ? t('checking') : t('asking');
  if (status === 'scheduled') return t('opens_at', { time: moment(of.opens_at) });
  return { closed: () => t('is_over'), sold_out: () => t('try_again'), open: () => t('claim') }[status]();
}

// What became of the last click, and what can be hoped for.
function Said({ of, soldOut }) {
  return html`<div aria-live="polite">${claiming.value === 'checking' && html`<p class="note">${t('checking_text')}</p>`}
    ${soldOut && !problem.value && html`<p class="muted">${t(of.held + of.ordered > 0 ? 'may_come_back' : 'all_paid')}</p>`}
    <${Problem} of=${problem.value} /></div>`;
}

function Action({ of, status }) {
  const own = mine.value && stateNow(mine.value);
  const open = status === 'open' || status === 'sold_out';
  if (mine.value && own !== 'released') {
    const more = status === 'open' && of.limit_per_user > mine.value.quantity;
    return html`<${Own} claim=${mine.value} state=${own} />${more && html`<button class="plain wide" id="another" disabled=${claiming.value !== ''} onClick=${click}>${claiming.value ? labelOf(of, status) : t('another')}</button>`}<${Said} of=${of} />`;
  }
  return html`<div class="action">${of.limit_per_user > 1 && status === 'open' && html`<${Quantity} most=${Math.min(of.limit_per_user, 99)} />`}
      <button class="primary wide" id="claim" disabled=${!open || claiming.value !== ''} aria-busy=${claiming.value !== ''} onClick=${click}>${labelOf(of, status)}</button></div>
    <${Said} of=${of} soldOut=${status === 'sold_out'} />
    ${!me.value.signed_in && open && html`<p class="muted">${t('sign_in_first')}</p>`}`;
}

function Terms({ of, status }) {
  const term = (name, value) => html`<div><dt>${name}</dt><dd class="digits">${value}</dd></div>`;
  const time = (text) => html`<time datetime=${text}>${when(text)}</time>`;
  return html`<dl class="terms">${term(t('limit'), number(of.limit_per_user))}
    ${of.pay_secs && term(t('time_to_pay'), duration(of.pay_secs * 1000))}
    ${term(status === 'scheduled' ? t('opens') : t('opened'), time(of.opens_at))}
    ${of.closes_at && term(t('closes'), time(of.closes_at))}</dl>`;
}

function SalePage() {
  const of = sale.value;
  const toAll = html`<p><a href=${home}>${t('all_sales')}</a></p>`;
  if (!facts.sale_id) return html`<${Frame}><h1>${t('no_such_sale')}</h1>${toAll}<//>`;
  if (!of) return html`<${Waiting} title=${document.title.split(' · ')[0]}>${toAll}<//>`;
  const status = statusOf(of);
  return html`<${Frame}><article class="sale">
    <${Picture} src=${facts.image} title=${of.title} large=${true} />
    <div class="buy">
      <${Pill} status=${status} />
      <h1>${of.title}</h1>
      <p class="price digits">${money(of.price_cents)}</p>
      <${Steps} of=${of} />
      ${status === 'scheduled' ? html`<${Countdown} until=${of.opens_at} />`
        : html`<div class="left"><${Left} of=${of} /><p class="digits muted">${t('left_count', { n: number(of.available), total: number(of.stock) })}</p></div>`}
      <${Action} of=${of} status=${status} />
      <${Terms} of=${of} status=${status} />
    </div>
    ${facts.description && html`<div class="prose">${facts.description}</div>`}
  </article><//>`;
}

page('sale', {
  View: SalePage,
  async start() {
    if (!facts.sale_id) return;
    await loadSale();
    await loadMine();
    const wanted = intent.read();
    if (wanted && me.value.signed_in) claim(wanted);
    poll(() => (Date.parse(sale.value?.opens_at) > serverNow() ? 10_000 : 2000), loadSale);
  },
});
