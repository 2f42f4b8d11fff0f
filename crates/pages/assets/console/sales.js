// Sales: opened, watched, restocked, closed, cleared.
const sales = signal(null);
const sale = signal(null);
const about = signal(null);
const draft = signal({ title: '', sku: '', stock: '100', price: '99.00', limit_per_user: '1', opens_at: '', closes_at: '', flow: 'order', hold_secs: '300', pay_secs: '1800' });
const restockUnits = signal('100');
const asked = signal('');

async function loadSales() {
  const answer = await api('GET', '/sales?limit=100', { fresh: true });
  if (answer.ok) sales.value = answer.body.sales; else problem.value = answer.body;
}

async function loadSale(id) {
  const answer = await api('GET', `/sales/${id}`, { fresh: true });
  if (answer.ok) { sale.value = answer.body; watchSale(answer.body); } else { sale.value = null; problem.value = answer.body; }
}

async function enterSale(id) {
  sale.value = null; about.value = null; asked.value = '';
  await loadSale(id);
  const page = await api('GET', `/sales/${id}/page`, { fresh: true });
  if (page.ok) about.value = page.body;
}

function SaleRows({ of }) {
  return html`<${Rows} head=${[t('c_title'), t('c_state'), t('c_price'), t('c_left'), t('c_held'), t('c_ordered'), t('c_paid')]} of=${of.map((one) => html`<tr key=${one.id}>
    <td><a href=${`#/sales/${one.id}`}>${one.title}</a></td><td><${Pill} status=${one.status} /></td><td class="digits">${money(one.price_cents)}</td>
    <td class="digits">${number(one.available)} ${t('c_of', { n: number(one.stock) })}</td><td class="digits">${number(one.held)}</td><td class="digits">${number(one.ordered)}</td><td class="digits">${number(one.paid)}</td></tr>`)} />`;
}

function SalesPage() {
  return html`<${Frame}><h1>${t('c_sales')}</h1>
    ${may() && html`<p><a class="button" href="#/sales/new">${t('c_new')}</a></p>`}
    <section class="panel"><${SaleRows} of=${sales.value || []} /></section><//>`;
}

const asInstant = (local) => (local ? new Date(local).toISOString() : undefined);

// The terms as the API takes them; whatever is left empty is left out.
function termsOf(form) {
  const whole = (text) => Number.parseInt(text, 10);
  const terms = { title: form.title.trim(), sku: form.sku.trim(), stock: whole(form.stock), price_cents: Math.round(Number(form.price) * 100), limit_per_user: whole(form.limit_per_user), flow: form.flow, opens_at: asInstant(form.opens_at), closes_at: asInstant(form.closes_at) };
  if (form.flow === 'hold') terms.hold_secs = whole(form.hold_secs);
  if (form.flow !== 'instant') terms.pay_secs = whole(form.pay_secs);
  return terms;
}

function Field({ name, label, type = 'text', ...more }) {
  const set = (event) => { draft.value = { ...draft.value, [name]: event.target.value }; };
  return html`<div class="field"><label for=${name}>${label}</label><input id=${name} type=${type} value=${draft.value[name]} onInput=${set} ...${more} /></div>`;
}

async function createSale(event) {
  event.preventDefault();
  const answer = await act('create', 'POST', '/sales', termsOf(draft.value));
  if (answer?.ok) location.hash = `#/sales/${answer.body.id}`;
}

function NewSalePage() {
  const form = draft.value;
  const terms = termsOf(form);
  const flowSet = (event) => { draft.value = { ...draft.value, flow: event.target.value }; };
  return html`<${Frame}><h1>${t('c_new')}</h1><form class="panel" onSubmit=${createSale}>
    <div class="fields">
      <${Field} name="title" label=${t('c_title')} required maxlength="200" />
      <${Field} name="sku" label=${t('c_sku')} required maxlength="64" />
      <${Field} name="stock" label=${t('c_stock')} type="number" min="1" required />
      <${Field} name="price" label=${`${t('c_price')} (${facts.currency})`} type="number" min="0" step="0.01" required />
      <${Field} name="limit_per_user" label=${t('c_limit')} type="number" min="1" required />
      <${Field} name="opens_at" label=${t('c_opens')} type="datetime-local" step="1" />
      <${Field} name="closes_at" label=${t('c_closes')} type="datetime-local" step="1" />
      <div class="field"><label for="flow">${t('c_flow')}</label><select id="flow" value=${form.flow} onChange=${flowSet}>
        <option value="order">${t('c_flow_order')}</option><option value="hold">${t('c_flow_hold')}</option><option value="instant">${t('c_flow_instant')}</option></select></div>
      ${form.flow === 'hold' && html`<${Field} name="hold_secs" label=${t('c_hold_secs')} type="number" min="1" />`}
      ${form.flow !== 'instant' && html`<${Field} name="pay_secs" label=${t('c_pay_secs')} type="number" min="1" />`}
    </div>
    <h2>${t('c_preview')}</h2><p>${t('c_preview_text', { stock: number(terms.stock || 0), price: money(terms.price_cents || 0), limit: number(terms.limit_per_user || 0), when: terms.opens_at ? t('c_opens_at', { time: when(terms.opens_at) }) : t('c_at_once') })}</p>
    <button class="primary" disabled=${changing.value}>${t('c_create')}</button>
    <${Curl} method="POST" where="/sales" body=${terms} /></form><//>`;
}

// An action that cannot be taken back is asked for twice.
function Careful({ name, label, text, method, where }) {
  return html`<div class="act">${asked.value === name
    ? html`<p>${text}</p><div class="row"><button class="primary" disabled=${changing.value} onClick=${async () => { const answer = await act(name, method, where, {}); asked.value = ''; if (answer?.ok) sale.value = answer.body; }}>${t('c_sure')}</button><button onClick=${() => { asked.value = ''; }}>${t('c_back')}</button></div>`
    : html`<button onClick=${() => { asked.value = name; }}>${label}</button>`}
    <${Curl} method=${method} where=${where} body=${{}} /></div>`;
}

async function savePicture(id, file) {
  if (!file || changing.value) return;
  changing.value = 'image';
  problem.value = null;
  const answer = await fetch(`/api/v1/sales/${id}/image`, { method: 'PUT', body: file, headers: { 'content-type': file.type, 'accept-language': facts.lang } });
  const body = await answer.json();
  if (answer.ok) { about.value = body; done.value = 'image'; } else problem.value = body;
  changing.value = '';
}

function PageForm({ id }) {
  const of = about.value;
  if (!of) return null;
  const where = `/sales/${id}/page`;
  return html`<section class="panel"><h2>${t('c_page')}</h2><form class="stack" onSubmit=${async (event) => { event.preventDefault(); const answer = await act('page', 'PUT', where, { description: about.value.description }); if (answer?.ok) about.value = answer.body; }}>
    <label for="description">${t('c_description')}</label>
    <textarea id="description" rows="5" maxlength="4000" value=${of.description} onInput=${(event) => { about.value = { ...about.value, description: event.target.value }; }}></textarea>
    <button disabled=${changing.value}>${t('c_save')}</button></form>
    <${Curl} method="PUT" where=${where} body=${{ description: of.description }} />
    <div class="field"><label for="image">${t('c_image')}</label><input id="image" type="file" accept="image/png,image/jpeg,image/webp" onChange=${(event) => savePicture(id, event.target.files[0])} /></div>
    ${of.image && html`<p><button onClick=${async () => { const answer = await act('image', 'DELETE', `/sales/${id}/image`, {}); if (answer?.ok) about.value = answer.body; }}>${t('c_image_remove')}</button></p>`}
  </section>`;
}

function SalePage() {
  const of = sale.value;
  if (!of) return html`<${Frame}><h1>${t('c_sales')}</h1><//>`;
  const where = `/sales/${of.id}`;
  const figure = (name, value) => html`<div><dt>${name}</dt><dd class="digits">${number(value)}</dd></div>`;
  return html`<${Frame}><h1>${of.title} <${Pill} status=${of.status} /></h1>
    <dl class="figures">${figure(t('c_left'), of.available)}${figure(t('c_held'), of.held)}${figure(t('c_ordered'), of.ordered)}${figure(t('c_paid'), of.paid)}${figure(t('c_stock'), of.stock)}</dl>
    <meter class="bar" aria-label=${t('left_of')} min="0" max="1" value=${of.available / of.stock}></meter>
    <p class="muted">${of.id} · ${of.sku} · ${money(of.price_cents)} · ${when(of.opens_at)} · <a href=${path(`sales/${of.id}`)}>${t('c_see')}</a></p>
    <${SalePlots} of=${of} />
    ${may() && html`<section class="panel"><h2>${t('c_actions')}</h2>
      ${of.status !== 'closed' && of.status !== 'cleared' && html`<form class="act" onSubmit=${async (event) => { event.preventDefault(); const answer = await act('restock', 'POST', `${where}/restock`, { units: Number.parseInt(restockUnits.value, 10) }); if (answer?.ok) sale.value = answer.body; }}>
        <div class="fields"><div class="field"><label for="units">${t('c_units')}</label><input id="units" type="number" min="1" required value=${restockUnits.value} onInput=${(event) => { restockUnits.value = event.target.value; }} /></div></div>
        <button disabled=${changing.value}>${t('c_restock')}</button><${Curl} method="POST" where=${`${where}/restock`} body=${{ units: Number.parseInt(restockUnits.value, 10) }} /></form>
      <div class="act"><button disabled=${changing.value} onClick=${() => act('current', 'PUT', '/current-sale', { sale_id: of.id })}>${t('c_make_current')}</button><${Curl} method="PUT" where="/current-sale" body=${{ sale_id: of.id }} /></div>
      <${Careful} name="close" label=${t('c_close')} text=${t('c_close_sure')} method="POST" where=${`${where}/close`} />`}
      ${of.status === 'closed' && html`<${Careful} name="clear" label=${t('c_clear')} text=${t('c_clear_sure')} method="DELETE" where=${where} />`}
    </section><${PageForm} id=${of.id} />`}<//>`;
}
