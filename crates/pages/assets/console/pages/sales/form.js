// A new sale: its terms, what buyers will see of it, and what is worth a second look.
const EMPTY = {
  title: '', sku: '', stock: '100', price: '99.00', limit_per_user: '1', limit_by: 'user', opens_at: '', closes_at: '', flow: 'order', hold_secs: '300', pay_secs: '1800', reclaim: 'allowed',
};
const draft = signal(EMPTY);
const steps = signal([]);

const whole = (text) => Number.parseInt(text, 10);
const cents = (text) => Math.round(Number(text) * 100);
const asInstant = (local) => (local ? new Date(local).toISOString() : undefined);
const asLocal = (text) => {
  const at = new Date(text);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}T${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
};

// The terms as the API takes them; whatever is left empty is left out.
function termsOf(form) {
  const terms = {
    title: form.title.trim(), sku: form.sku.trim(), stock: whole(form.stock), price_cents: cents(form.price), limit_per_user: whole(form.limit_per_user),
    flow: form.flow, opens_at: asInstant(form.opens_at), closes_at: asInstant(form.closes_at),
  };
  if (form.limit_by !== 'user') terms.limit_by = form.limit_by;
  if (form.reclaim !== 'allowed') terms.reclaim = form.reclaim;
  if (form.flow === 'hold') terms.hold_secs = whole(form.hold_secs);
  if (form.flow !== 'instant') terms.pay_secs = whole(form.pay_secs);
  if (steps.value.length) terms.price_steps = steps.value.map((step) => ({ after_sold: whole(step.after), price_cents: cents(step.price) }));
  return terms;
}

// What is worth saying before it opens: [fine or not, words].
function checksOf(terms) {
  const all = [[Boolean(terms.title && terms.sku), t('check_title')]];
  if (terms.stock > 0 && terms.limit_per_user > 0) {
    all.push(terms.limit_per_user > terms.stock ? [false, t('check_limit')]
      : [true, t('check_stock', { n: number(terms.stock), limit: number(terms.limit_per_user), buyers: number(Math.ceil(terms.stock / terms.limit_per_user)) })]);
  }
  if (terms.price_cents >= 0) all.push(terms.price_cents === 0 ? [true, t('check_free')] : [true, t('check_price', { total: money(revenueOf(terms)) })]);
  if (terms.price_steps) all.push([stepsRise(terms), t('check_steps')]);
  const opens = terms.opens_at ? Date.parse(terms.opens_at) - now.value : 0;
  all.push(!terms.opens_at ? [true, t('check_now')] : opens > 0 ? [true, t('check_opens', { time: duration(opens) })] : [false, t('check_past')]);
  if (terms.closes_at) {
    const open = Date.parse(terms.closes_at) - (opens > 0 ? Date.parse(terms.opens_at) : now.value);
    all.push(open > 0 ? [true, t('check_closes', { time: duration(open) })] : [false, t('check_closes_wrong')]);
  }
  if (terms.pay_secs > 0) all.push([true, t('check_pay', { time: duration(terms.pay_secs * 1000) })]);
  return all;
}

// What all units bring, each at the price of its step.
function revenueOf({ stock, price_cents: price, price_steps: rises = [] }) {
  const marks = [{ after_sold: 0, price_cents: price }, ...rises];
  return marks.reduce((sum, mark, at) => {
    const until = Math.min(stock, marks[at + 1]?.after_sold ?? stock);
    return sum + Math.max(0, until - mark.after_sold) * mark.price_cents;
  }, 0) || 0;
}

const stepsRise = ({ price_cents: price, price_steps: rises }) => rises.every((step, at) => {
  const before = rises[at - 1] ?? { after_sold: 0, price_cents: price };
  return step.after_sold > before.after_sold && step.price_cents > before.price_cents;
});

function startForm(question) {
  draft.value = EMPTY;
  steps.value = [];
  const from = question.get('from');
  if (from) cloneFrom(from);
}

async function cloneFrom(id) {
  const answer = await api('GET', `/sales/${encodeURIComponent(id)}`, { fresh: true });
  if (!answer.ok) { problem.value = answer.body; return; }
  const of = answer.body;
  draft.value = {
    ...EMPTY, title: of.title, sku: of.sku, stock: String(of.stock), price: (of.price_cents / 100).toFixed(2), limit_per_user: String(of.limit_per_user), limit_by: of.limit_by,
    flow: of.flow, hold_secs: String(of.hold_secs ?? EMPTY.hold_secs), pay_secs: String(of.pay_secs ?? EMPTY.pay_secs), reclaim: of.reclaim,
    opens_at: Date.parse(of.opens_at) > now.value ? asLocal(of.opens_at) : '',
  };
  steps.value = of.price_steps.map((step) => ({ after: String(step.after_sold), price: (step.price_cents / 100).toFixed(2) }));
}

async function createSale(event) {
  event.preventDefault();
  const answer = await change({ method: 'POST', where: '/sales', body: termsOf(draft.value) });
  if (answer?.ok) go(`sales/${answer.body.id}`);
}

function Steps() {
  const put = (at, part) => { steps.value = steps.value.map((step, place) => (place === at ? { ...step, ...part } : step)); };
  const input = (at, name, label, value, more) => html`<div class="field"><label for=${`${name}-${at}`}>${label}</label>
    <input id=${`${name}-${at}`} type="number" required value=${value} ...${more} onInput=${(event) => put(at, { [name]: event.target.value })} /></div>`;
  return html`<fieldset class="steps-form"><legend>${t('steps')}</legend><p class="hint">${t('steps_hint')}</p>
    ${steps.value.map((step, at) => html`<div class="step" key=${at}>${input(at, 'after', t('step_after'), step.after, { min: 1 })}${input(at, 'price', `${t('step_price')} (${facts.currency})`, step.price, { min: 0.01, step: 0.01 })}
      <button type="button" class="small" aria-label=${t('step_remove')} onClick=${() => { steps.value = steps.value.filter((_, place) => place !== at); }}>×</button></div>`)}
    <button type="button" class="small" onClick=${() => { steps.value = [...steps.value, { after: '', price: '' }]; }}>${t('step_add')}</button></fieldset>`;
}

function Preview({ terms }) {
  const opens = terms.opens_at && Date.parse(terms.opens_at) > now.value;
  return html`<aside class="preview"><h2>${t('preview')}</h2><div class="card"><div class="face"><${Picture} title=${terms.title || '?'} />
      <div class="about"><h3>${terms.title || t('title')}</h3><p class="line"><span class="price digits">${money(terms.price_cents || 0)}</span><${Pill} status=${opens ? 'scheduled' : 'open'} /></p>
      <p class="stand digits">${opens ? duration(Date.parse(terms.opens_at) - now.value) : `${t('left')} ${number(terms.stock || 0)}`}</p></div></div></div>
    <h2>${t('checks')}</h2><ul class="checks">${checksOf(terms).map(([fine, words]) => html`<li key=${words} class=${fine ? 'fine' : 'doubt'}>${words}</li>`)}</ul>
    <${Curl} method="POST" where="/sales" body=${terms} /></aside>`;
}

function NewSalePage() {
  const form = draft.value;
  const field = (name, label, more = {}) => html`<${Field} name=${name} label=${label} values=${draft} ...${more} />`;
  return html`<${Frame}><${Heading} title=${t('new_sale')} /><div class="two"><form class="panel sections" id="new-sale" onSubmit=${createSale}>
    <section><h2>${t('goods')}</h2><div class="fields">${field('title', t('title'), { required: true, maxlength: 200 })}${field('sku', t('sku'), { required: true, maxlength: 64, hint: t('sku_hint') })}
      ${field('stock', t('stock'), { type: 'number', min: 1, required: true })}</div></section>
    <section><h2>${t('rules')}</h2><div class="fields">${field('price', `${t('price')} (${facts.currency})`, { type: 'number', min: 0, step: 0.01, required: true })}
      ${field('limit_per_user', t('limit'), { type: 'number', min: 1, required: true })}
      ${field('limit_by', t('limit_by'), { options: [['user', t('limit_by_user')], ['identity', t('limit_by_identity')]] })}</div><${Steps} /></section>
    <section><h2>${t('times')}</h2><div class="fields">${field('opens_at', t('opens'), { type: 'datetime-local', step: 1, hint: t('opens_hint') })}${field('closes_at', t('closes'), { type: 'datetime-local', step: 1, hint: t('closes_hint') })}</div></section>
    <section><h2>${t('after_claim')}</h2><div class="fields">${field('flow', t('flow'), { full: true, options: [['order', t('flow_order')], ['hold', t('flow_hold')], ['instant', t('flow_instant')]] })}
      ${form.flow === 'hold' && field('hold_secs', t('hold_secs'), { type: 'number', min: 1, required: true })}
      ${form.flow !== 'instant' && field('pay_secs', t('pay_secs'), { type: 'number', min: 1, required: true })}
      ${field('reclaim', t('reclaim'), { options: [['allowed', t('reclaim_allowed')], ['never', t('reclaim_never')]] })}</div></section>
    <div class="row end"><a class="button" href="#/sales">${t('cancel')}</a><button class="primary" disabled=${changing.value || !may()}>${t('create')}</button></div></form>
    <${Preview} terms=${termsOf(form)} /></div><//>`;
}
