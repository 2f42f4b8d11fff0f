// All sales: running, soon, over. An empty shop offers to try one out.
const sales = signal(null);
const images = signal(new Set());
const opening = signal(false);

async function loadSales() {
  const answer = await api('GET', '/sales?limit=100');
  if (answer.ok) { sales.value = answer.body.sales; problem.value = null; } else if (!sales.value) problem.value = answer.body;
  watch((sales.value || []).flatMap((sale) => [sale.opens_at, sale.closes_at]));
}

async function loadImages() {
  const answer = await api('GET', '/sale-images');
  if (answer.ok) images.value = new Set(answer.body.images.map((image) => image.sale_id));
}

function Stand({ sale, status }) {
  if (status === 'scheduled') {
    const left = Date.parse(sale.opens_at) - now.value;
    return html`<p class="stand digits">${left < 86_400_000 ? t('opens_in', { time: duration(left) }) : t('opens_on', { time: moment(sale.opens_at) })}</p>`;
  }
  return status === 'open' && html`<div class="stand"><${Left} of=${sale} /><span class="digits">${t('left', { n: number(sale.available) })}</span></div>`;
}

function Card({ sale }) {
  const status = statusOf(sale);
  return html`<li class=${`card ${status}`}><a href=${path(`sales/${sale.id}`)}>
    <${Picture} src=${images.value.has(sale.id) && `/api/v1/sales/${sale.id}/image`} title=${sale.title} />
    <div class="about"><h3>${sale.title}</h3>
      <p class="line"><span class="price digits">${money(sale.price_cents)}</span><${Pill} status=${status} /></p>
      <${Stand} sale=${sale} status=${status} /></div></a></li>`;
}

function Group({ name, of }) {
  return of.length > 0 && html`<section><h2>${name}</h2><ul class="cards">${of.map((sale) => html`<${Card} key=${sale.id} sale=${sale} />`)}</ul></section>`;
}

function ListPage() {
  const all = sales.value;
  if (!all) return html`<${Waiting} title=${t('sales')} />`;
  if (!all.length) return html`<${Empty} />`;
  const onSale = all.filter((sale) => !isOver(sale) && !isSoon(sale));
  const soonest = all.filter(isSoon).sort((a, b) => a.opens_at.localeCompare(b.opens_at));
  return html`<${Frame}><h1>${t('sales')}</h1><${Problem} of=${problem.value} />
    <${Group} name=${t('running')} of=${[...onSale.filter((sale) => sale.available > 0), ...onSale.filter((sale) => sale.available === 0)]} />
    <${Group} name=${t('soon')} of=${soonest} />
    <${Group} name=${t('over')} of=${all.filter(isOver)} /><//>`;
}

async function openDemo() {
  opening.value = true;
  const answer = await api('POST', '/admin/demo', { body: {} });
  if (answer.ok) { location.assign(path(`sales/${answer.body.sale_id}`)); return; }
  problem.value = answer.body;
  opening.value = false;
}

function Empty() {
  return html`<${Frame}><div class="empty"><${Mark} /><h1>${t('empty_title')}</h1><p class="lead">${t('empty_text')}</p>
    <${Problem} of=${problem.value} />
    ${facts.sandbox && html`<div class="try"><button class="primary wide" id="demo" disabled=${opening.value} onClick=${openDemo}>${t(opening.value ? 'demo_busy' : 'demo')}</button>
      <p class="muted">${t('demo_text')}</p></div>`}
    <ul class="ways"><li><a href=${path('console')}><strong>${t('empty_console')}</strong><span>${t('empty_console_text')}</span></a></li>
      <li><a href="/docs/"><strong>${t('empty_docs')}</strong><span>${t('empty_docs_text')}</span></a></li></ul></div><//>`;
}

page('list', {
  View: ListPage,
  menu: { at: '', place: 1, name: () => t('sales') },
  start() {
    loadSales();
    loadImages();
    poll(() => 4000, loadSales);
  },
});
