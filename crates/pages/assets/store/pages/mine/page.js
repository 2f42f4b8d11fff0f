// What a buyer has: first what has a deadline, then the rest.
const orders = signal(null);
const holds = signal([]);

async function loadOrders() {
  const answer = await api('GET', '/orders?limit=50', { fresh: true });
  if (answer.ok) { orders.value = answer.body.orders; problem.value = null; } else problem.value = answer.body;
  const known = new Set((orders.value || []).map((order) => order.claim_id));
  const ids = remembered.all().filter((id) => !known.has(id));
  const claims = await Promise.all(ids.map((id) => api('GET', `/claims/${id}`, { fresh: true })));
  holds.value = claims.filter((answer) => answer.ok && answer.body.state === 'held').map((answer) => answer.body);
  claims.forEach((answer, at) => { if (answer.status === 404 || (answer.ok && answer.body.state === 'released')) remembered.drop(ids[at]); });
  watch([...(orders.value || []).map((order) => order.pay_by), ...holds.value.map((hold) => hold.hold_until)]);
}

function Entry({ id, title, amount, status, until, label, at }) {
  return html`<li class="entry"><a href=${`${path('pay')}?record_id=${id}`}>
    <span class="what"><strong>${title}</strong><span class="muted digits">${moment(at)}</span><span class="muted digits">${id}</span></span>
    <span class="amount digits">${money(amount)}</span><${Pill} status=${status} />
    ${until && html`<${Deadline} until=${until} label=${label} />`}</a></li>`;
}

const ofHold = (hold) => html`<${Entry} key=${hold.claim_id} id=${hold.claim_id} title=${t('held_one')} amount=${hold.unit_price_cents * hold.quantity}
  status="held" until=${hold.hold_until} label=${t('until_held')} at=${hold.created_at} />`;

// An order whose time is up is cancelled, whether or not the records say so yet.
const isPending = (order) => order.status === 'PENDING' && (!order.pay_by || Date.parse(order.pay_by) > now.value);

function ofOrder(order) {
  const status = order.status === 'PENDING' && !isPending(order) ? 'cancelled' : order.status.toLowerCase();
  return html`<${Entry} key=${order.order_id} id=${order.order_id} title=${order.items.map((item) => item.title).join(', ')}
    amount=${order.amount_cents} status=${status} until=${isPending(order) && order.pay_by} label=${t('until_ordered')} at=${order.created_at} />`;
}

function Group({ name, children }) {
  return children.length > 0 && html`<section><h2>${name}</h2><ul class="entries">${children}</ul></section>`;
}

function MinePage() {
  const all = orders.value;
  if (!all) return html`<${Waiting} title=${t('mine')} />`;
  return html`<${Frame}><h1>${t('mine')}</h1><${Problem} of=${problem.value} />
    ${!all.length && !holds.value.length && html`<p class="lead">${t('nothing_yet')} <a href=${home}>${t('all_sales')}</a></p>`}
    <${Group} name=${t('waiting')}>${[...holds.value.map(ofHold), ...all.filter(isPending).map(ofOrder)]}<//>
    <${Group} name=${t('before')}>${all.filter((order) => !isPending(order)).map(ofOrder)}<//><//>`;
}

page('mine', {
  View: MinePage,
  menu: { at: 'mine', place: 2, name: () => t('mine') },
  async start() {
    if (!me.value.signed_in) { location.replace(signInPath()); return; }
    await loadOrders();
    poll(() => 8000, loadOrders);
  },
});
