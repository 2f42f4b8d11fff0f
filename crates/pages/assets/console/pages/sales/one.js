// One sale: where it stands, second by second, and everything that can be done with it.
const sale = signal(null);
const about = signal(null);
const texts = signal({ description: '' });

async function loadSale(id) {
  if (await load(sale, `/sales/${encodeURIComponent(id)}`)) watchSale(sale.value);
}

async function enterSale(id) {
  if (sale.value?.id !== id) sale.value = null;
  about.value = null;
  loadCurrent();
  await loadSale(id);
  if (sale.value && await load(about, `/sales/${sale.value.id}/page`)) texts.value = { description: about.value.description };
}

const took = (body) => { sale.value = body; };

function Actions({ of }) {
  const where = `/sales/${of.id}`;
  const open = of.status !== 'closed' && of.status !== 'cleared';
  const restock = {
    title: t('restock'), text: t('restock_text'), method: 'POST', where: `${where}/restock`, body: ({ units }) => ({ units: whole(units) }), after: took,
    fields: [{ name: 'units', label: t('restock_units'), type: 'number', min: 1, required: true, value: '100' }],
  };
  const current = { title: t('make_current'), text: t('make_current_text'), method: 'PUT', where: '/current-sale', body: { sale_id: of.id }, after: loadCurrent };
  const close = { title: t('close'), text: t('close_text'), method: 'POST', where: `${where}/close`, body: {}, danger: true, after: took };
  const clear = { title: t('clear'), text: t('clear_text'), method: 'DELETE', where, body: {}, danger: true, after: took };
  return html`${open && html`<${Act} action=${restock} kind="primary restock" />`}
    ${open && currentId.value !== of.id && html`<${Act} action=${current} kind="make-current" />`}
    ${may() && html`<a class="button clone" href=${`#/sales/new?from=${of.id}`}>${t('clone')}</a>`}
    ${open && html`<${Act} action=${close} kind="close" />`}
    ${of.status === 'closed' && html`<${Act} action=${clear} kind="clear" />`}`;
}

const flows = { order: () => t('flow_order'), hold: () => t('flow_hold'), instant: () => t('flow_instant') };

function Terms({ of }) {
  const term = (name, value) => value != null && value !== '' && html`<div><dt>${name}</dt><dd>${value}</dd></div>`;
  const secs = (count) => count && duration(count * 1000);
  return html`<section class="panel"><h2>${t('terms')}</h2><dl class="pairs">${term(t('id'), of.id)}${term(t('sku'), of.sku)}${term(t('price'), money(of.price_cents))}
    ${of.price_steps.map((step) => term(`${t('step_after')}: ${number(step.after_sold)}`, money(step.price_cents)))}
    ${term(t('limit'), `${number(of.limit_per_user)} · ${of.limit_by === 'user' ? t('limit_by_user') : t('limit_by_identity')}`)}${term(t('opens'), when(of.opens_at))}${term(t('closes'), of.closes_at && when(of.closes_at))}
    ${term(t('closed_at'), of.closed_at && when(of.closed_at))}${term(t('flow'), flows[of.flow]())}${term(t('time_held'), secs(of.hold_secs))}${term(t('time_to_pay'), secs(of.pay_secs))}
    ${term(t('reclaim'), of.reclaim === 'allowed' ? t('reclaim_allowed') : t('reclaim_never'))}</dl></section>`;
}

// A file is sent as it is; the page shows what the server kept.
async function savePicture(id, file) {
  const answer = file && await change({ method: 'PUT', where: `/sales/${id}/image`, file });
  if (answer?.ok) about.value = answer.body;
}

function Texts({ id }) {
  if (!about.value) return null;
  const where = `/sales/${id}/page`;
  const save = async (event) => {
    event.preventDefault();
    const answer = await change({ method: 'PUT', where, body: texts.value });
    if (answer?.ok) about.value = answer.body;
  };
  const image = about.value.image && `${about.value.image}?${Date.parse(about.value.changed_at)}`;
  return html`<section class="panel"><h2>${t('buyers_read')}</h2>
    ${image && html`<img class="thumb" src=${image} alt=${t('image')} />`}
    ${!may() ? html`<p class="prose">${about.value.description}</p>` : html`<form class="stack" id="texts" onSubmit=${save}>
      <${Field} name="description" label=${t('description')} rows=${5} maxlength=${4000} values=${texts} />
      <div><button disabled=${changing.value}>${t('save')}</button></div><${Curl} method="PUT" where=${where} body=${texts.value} /></form>
      <div class="field"><label for="image">${t('image')}</label><input id="image" type="file" accept="image/png,image/jpeg,image/webp" onChange=${(event) => savePicture(id, event.target.files[0])} /><p class="hint">${t('image_hint')}</p></div>
      ${image && html`<p><${Act} kind="small" action=${{ title: t('image_remove'), method: 'DELETE', where: `/sales/${id}/image`, body: {}, after: (body) => { about.value = body; } }} /></p>`}`}
  </section>`;
}

// Where all units are, as one bar.
function Split({ of }) {
  const parts = [['paid', of.paid], ['ordered', of.ordered], ['held', of.held]].filter(([, count]) => count > 0);
  return html`<div class="split" aria-hidden="true">${parts.map(([name, count]) => html`<span key=${name} class=${name} style=${{ width: `${(100 * count) / of.stock}%` }}></span>`)}</div>`;
}

function SalePage() {
  const of = sale.value;
  if (!of) return html`<${Frame}><${Heading} title=${t('sales')} />${!problem.value && html`<${Loading} />`}<//>`;
  const title = html`<span class="name">${of.title}</span> <${Pill} status=${of.status} />${currentId.value === of.id && html` <span class="pill">${t('current_mark')}</span>`}`;
  return html`<${Frame}><p class="crumbs"><a href="#/sales">${t('sales')}</a></p><${Heading} title=${title}><${Actions} of=${of} /><//>
    <${Figures}><${Figure} name=${t('left')} value=${number(of.available)} unit=${t('of', { n: number(of.stock) })} /><${Figure} name=${t('held')} value=${number(of.held)} />
      <${Figure} name=${t('ordered')} value=${number(of.ordered)} /><${Figure} name=${t('paid')} value=${number(of.paid)} /><${Figure} name=${t('price')} value=${money(of.price_cents)} /><//>
    <${Split} of=${of} />
    <p class="links"><a href=${path(`sales/${of.id}`)}>${t('see')}</a><a class="to-report" href=${`#/report/${of.id}`}>${t('to_report')}</a><a href=${`#/orders?sale=${of.id}`}>${t('buyers_orders')}</a></p>
    <${SalePlots} of=${of} />
    <div class="halves"><${Texts} id=${of.id} /><${Terms} of=${of} /></div><//>`;
}
