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
  if (!me.value?.signed_in) { location.assign(signInPath()); return; }
  intent.write({ key: crypto.randomUUID(), quantity: quantity.value });
  claim();
}

// Asks until it is known what became of the intent.
async function claim() {
  const wanted = intent.read();
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
  return html`<table class="steps"><caption>${t('price_steps')}</caption><tbody>
    ${of.price_steps.map((step) => html`<tr key=${step.after_sold}><th scope="row">${t('after_sold', { n: number(step.after_sold) })}</th>
      <td class="digits">${money(step.price_cents)}</td></tr>`)}</tbody></table>`;
}

function Left({ of }) {
  const share = of.stock ? of.available / of.stock : 0;
  return html`<div class="left"><meter class="bar" aria-label=${t('left_of')} min="0" max="1" value=${share}></meter>
    <p class="digits muted">${t('left_count', { n: number(of.available), total: number(of.stock) })}</p></div>`;
}

function Action({ of, status }) {
  const own = mine.value && stateNow(mine.value);
  if (mine.value && own !== 'released') {
    return html`<div class="note good"><strong>${t('have_' + own)}</strong>
      ${own !== 'paid' && html`<${Deadline} until=${mine.value.hold_until && own === 'held' ? mine.value.hold_until : mine.value.pay_by} label=${t('until_' + own)} />`}
      <a class="button" href=${`${path('pay')}?record_id=${mine.value.claim_id}`}>${t('go_' + own)}</a></div>`;
  }
  const open = status === 'open' || status === 'sold_out';
  const label = claiming.value === 'checking' ? t('checking') : claiming.value ? t('asking')
    : status === 'scheduled' ? t('opens_in', { time: duration(Date.parse(of.opens_at) - now.value) })
    : status === 'closed' ? t('status_closed') : status === 'sold_out' ? t('try_again') : t('claim');
  return html`<div class="action">
    ${of.limit_per_user > 1 && status === 'open' && html`<label class="count">${t('quantity')}
      <input type="number" inputmode="numeric" min="1" max=${Math.min(of.limit_per_user, 99)} value=${quantity.value}
        onInput=${(event) => { quantity.value = Math.max(1, Math.min(of.limit_per_user, event.target.valueAsNumber || 1)); }} /></label>`}
    <button class="primary wide" id="claim" disabled=${!open || claiming.value !== ''} onClick=${click}>${label}</button>
    ${status === 'sold_out' && html`<p class="muted">${t(of.held + of.ordered > 0 ? 'may_come_back' : 'all_paid')}</p>`}
    ${!me.value?.signed_in && open && html`<p class="muted">${t('sign_in_first')}</p>`}
  </div>`;
}

function SalePage() {
  const of = sale.value;
  if (!of) return html`<${Frame}><h1>${facts.sale_id ? document.title.split(' · ')[0] : t('no_such_sale')}</h1>
    <${Problem} of=${problem.value} />${facts.sale_id && !problem.value && html`<p class="muted">${t('loading')}</p>`}
    <p><a href=${home}>${t('all_sales')}</a></p><//>`;
  const status = statusOf(of);
  return html`<${Frame}><article class="sale">
    <${Picture} src=${facts.image} title=${of.title} large=${true} />
    <div class="buy">
      <${Pill} status=${status} />
      <h1>${of.title}</h1>
      <p class="price digits">${money(of.price_cents)}</p>
      <${Steps} of=${of} />
      <${Left} of=${of} />
      <dl class="terms">
        <div><dt>${t('limit')}</dt><dd class="digits">${number(of.limit_per_user)}</dd></div>
        <div><dt>${t(status === 'scheduled' ? 'opens' : 'opened')}</dt><dd><time datetime=${of.opens_at}>${when(of.opens_at)}</time></dd></div>
        ${of.closes_at && html`<div><dt>${t('closes')}</dt><dd><time datetime=${of.closes_at}>${when(of.closes_at)}</time></dd></div>`}
      </dl>
      <${Action} of=${of} status=${status} />
      <div aria-live="polite"><${Problem} of=${problem.value} /></div>
    </div>
    ${facts.description && html`<div class="prose">${facts.description}</div>`}
  </article><//>`;
}

async function startSale() {
  if (!facts.sale_id) return;
  await loadSale();
  await loadMine();
  if (intent.read() && me.value?.signed_in) claim();
  const pace = () => (Date.parse(sale.value?.opens_at) > serverNow() ? 10_000 : 2000);
  poll(pace, loadSale);
}
