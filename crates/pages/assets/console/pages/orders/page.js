// Who claimed and ordered what. The question stands in the address, so that it can be sent to others.
const FIELDS = ['id', 'user', 'sale', 'state', 'from', 'to'];
const found = signal(null);
const asked = signal(Object.fromEntries(FIELDS.map((name) => [name, ''])));
const kind = signal('orders');
const states = { orders: ['PENDING', 'PAID', 'CANCELLED', 'REFUNDED'], claims: ['held', 'ordered', 'paid', 'released'] };

const asInstant = (local) => new Date(local).toISOString();

function questionOf(before) {
  const question = new URLSearchParams({ limit: '50' });
  for (const [name, value] of Object.entries(asked.value)) {
    if (value === '') continue;
    const called = name === 'state' && kind.value === 'orders' ? 'status' : name;
    question.set(called, name === 'from' || name === 'to' ? asInstant(value) : value.trim());
  }
  if (before) question.set('before', before);
  return question;
}

async function find(before) {
  const answer = await api('GET', `/admin/${kind.value}?${questionOf(before)}`, { fresh: true });
  if (!answer.ok) { problem.value = answer.body; found.value ??= { of: [] }; return; }
  problem.value = null;
  const { next_before: next, up_to_date: whole } = answer.body;
  found.value = { of: [...(before ? found.value.of : []), ...answer.body[kind.value]], next, whole };
}

function enterSearch(rest, question) {
  kind.value = question.get('kind') === 'claims' ? 'claims' : 'orders';
  asked.value = Object.fromEntries(FIELDS.map((name) => [name, question.get(name) ?? '']));
  found.value = null;
  find();
}

function search(changes = {}) {
  const all = Object.entries({ kind: kind.value, ...asked.value, ...changes }).filter(([, value]) => value !== '');
  const where = `orders?${new URLSearchParams(all)}`;
  if (location.hash === `#/${where}`) enterSearch([], new URLSearchParams(all)); else go(where);
}

function Search() {
  const field = (name, label, more = {}) => html`<${Field} name=${name} label=${label} values=${asked} ...${more} />`;
  const options = [['', t('any')], ...states[kind.value].map((state) => [state, t('status_' + state.toLowerCase())])];
  return html`<form class="panel search" onSubmit=${(event) => { event.preventDefault(); search(); }}><div class="fields">
    ${field('id', t('search_id'))}${field('user', t('user'))}${field('sale', t('search_sale'))}${field('state', t('state'), { options })}
    ${field('from', t('from_time'), { type: 'datetime-local' })}${field('to', t('to_time'), { type: 'datetime-local' })}</div>
    <div class="row end"><button class="primary">${t('search')}</button></div></form>`;
}

const refundOf = (order) => ({
  title: t('refund'), text: t('refund_text', { order: order.order_id, amount: money(order.amount_cents) }), method: 'POST', where: `/admin/orders/${order.order_id}/refund`, danger: true,
  fields: [{ name: 'reason', label: t('refund_reason'), maxlength: 200 }], body: ({ reason }) => (reason.trim() ? { reason: reason.trim() } : {}), after: () => find(),
});

function Orders({ of }) {
  const head = [t('order'), t('user'), t('state'), { name: t('amount'), num: true }, t('since'), t('deadline'), t('actions')];
  return html`<${Rows} label=${t('show_orders')} empty=${t('nothing_found')} head=${may() ? head : head.slice(0, -1)} of=${of.map((order) => ({ key: order.order_id, cells: [
    html`<span class="main digits">${order.order_id}</span>`, order.user_id, html`<${Pill} status=${order.status.toLowerCase()} />`, money(order.amount_cents), moment(order.created_at),
    order.status === 'PENDING' && order.pay_by ? moment(order.pay_by) : '–', order.status === 'PAID' && html`<${Act} action=${refundOf(order)} kind="small refund" />`].slice(0, may() ? 7 : 6) }))} />`;
}

function Claims({ of }) {
  const end = (claim) => (claim.state === 'held' ? claim.hold_until : claim.state === 'ordered' ? claim.pay_by : null);
  return html`<${Rows} label=${t('show_claims')} empty=${t('nothing_found')} head=${[t('search_id'), t('user'), t('state'), { name: t('units'), num: true }, { name: t('price'), num: true }, t('since'), t('deadline')]}
    of=${of.map((claim) => ({ key: claim.claim_id, cells: [html`<span class="main digits">${claim.claim_id}</span>`, claim.user_id, html`<${Pill} status=${claim.state} />`,
      number(claim.quantity), money(claim.unit_price_cents), moment(claim.created_at), end(claim) ? moment(end(claim)) : '–'] }))} />`;
}

function OrdersPage() {
  const all = found.value;
  return html`<${Frame}><${Heading} title=${t('orders')}><${Choice} label=${t('orders')} of=${[['orders', t('show_orders')], ['claims', t('show_claims')]]} chosen=${kind.value} choose=${(one) => search({ kind: one, state: '' })} /><//>
    <${Search} />${all?.whole === false && html`<p class="note">${t('some_missing')}</p>`}
    <section class="panel">${!all ? html`<${Loading} />` : kind.value === 'orders' ? html`<${Orders} of=${all.of} />` : html`<${Claims} of=${all.of} />`}
      ${all?.next && html`<p><button type="button" class="small" onClick=${() => find(all.next)}>${t('more')}</button></p>`}</section><//>`;
}

page('orders', { View: OrdersPage, enter: enterSearch, menu: { group: 'sales', place: 20, name: () => t('orders') } });
