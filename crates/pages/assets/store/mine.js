// What a buyer has, and the sign-in.
const orders = signal(null);
const holds = signal([]);

async function loadOrders() {
  const answer = await api('GET', '/orders?limit=50', { fresh: true });
  if (answer.ok) orders.value = answer.body.orders; else problem.value = answer.body;
  const known = new Set((orders.value || []).map((order) => order.claim_id));
  const ids = remembered.all().filter((id) => !known.has(id));
  const claims = await Promise.all(ids.map((id) => api('GET', `/claims/${id}`, { fresh: true })));
  holds.value = claims.filter((answer) => answer.ok && answer.body.state === 'held').map((answer) => answer.body);
  claims.forEach((answer, at) => { if (answer.status === 404 || (answer.ok && answer.body.state === 'released')) remembered.drop(ids[at]); });
  watch([...(orders.value || []).map((order) => order.pay_by), ...holds.value.map((hold) => hold.hold_until)]);
}

function Entry({ id, title, amount, status, until, label }) {
  return html`<li class="entry"><a href=${`${path('pay')}?record_id=${id}`}>
    <span class="what"><strong>${title}</strong><span class="muted digits">${id}</span></span>
    <span class="digits">${money(amount)}</span><${Pill} status=${status} />
    ${until && html`<${Deadline} until=${until} label=${label} />`}</a></li>`;
}

function MinePage() {
  if (!orders.value) return html`<${Frame}><h1>${t('mine')}</h1><${Problem} of=${problem.value} />${!problem.value && html`<p class="muted">${t('loading')}</p>`}<//>`;
  const pending = (order) => order.status === 'PENDING';
  return html`<${Frame}><h1>${t('mine')}</h1><${Problem} of=${problem.value} />
    ${!orders.value.length && !holds.value.length && html`<p>${t('nothing_yet')} <a href=${home}>${t('all_sales')}</a></p>`}
    <ul class="entries">
    ${holds.value.map((hold) => html`<${Entry} key=${hold.claim_id} id=${hold.claim_id} title=${t('held_one')} amount=${hold.unit_price_cents * hold.quantity}
      status="held" until=${hold.hold_until} label=${t('until_held')} />`)}
    ${orders.value.map((order) => html`<${Entry} key=${order.order_id} id=${order.order_id} title=${order.items.map((item) => item.title).join(', ')}
      amount=${order.amount_cents} status=${order.status.toLowerCase()} until=${pending(order) && order.pay_by} label=${t('until_ordered')} />`)}
    </ul><//>`;
}

async function startMine() {
  if (!me.value?.signed_in) { location.replace(signInPath()); return; }
  await loadOrders();
  poll(() => 8000, loadOrders);
}

const signing = signal(false);

// Only a path of this shop: anything else could send people elsewhere.
function nextPath() {
  const next = new URLSearchParams(location.search).get('next') || home;
  return /^\/(en|zh)\//.test(next) ? next : home;
}

async function signIn(event) {
  event.preventDefault();
  signing.value = true;
  problem.value = null;
  const given = Object.fromEntries(new FormData(event.target));
  const answer = await api('POST', '/session', { body: given });
  if (answer.ok) { location.assign(nextPath()); return; }
  problem.value = answer.body;
  signing.value = false;
}

function SignInPage() {
  return html`<${Frame}><div class="narrow"><h1>${t('sign_in')}</h1>
    ${facts.sandbox && html`<form class="stack" onSubmit=${signIn}>
      <label for="user">${t('your_name')}</label><input id="user" name="user_id" required maxlength="21" autocomplete="username" />
      <p class="muted">${t('sandbox_sign_in')}</p>
      <button class="primary" disabled=${signing.value}>${t('sign_in')}</button></form>`}
    <form class="stack" onSubmit=${signIn}>
      <label for="token">${t('your_token')}</label><input id="token" name="token" required type="password" autocomplete="off" />
      <p class="muted">${t('token_text')}</p>
      <button class=${facts.sandbox ? '' : 'primary'} disabled=${signing.value}>${t('sign_in_token')}</button></form>
    <div aria-live="polite"><${Problem} of=${problem.value} /></div></div><//>`;
}
