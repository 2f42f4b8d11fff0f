// What every page of the console has: its place in the menu, its frame, its tables, its actions.
const route = signal(location.hash);
const done = signal('');
const changing = signal(false);
const may = () => me.value?.role === 'admin';
const inside = () => me.value?.role === 'viewer' || may();

const roles = { buyer: () => t('role_buyer'), viewer: () => t('role_viewer'), admin: () => t('role_admin') };
const groups = { sales: () => t('group_sales'), books: () => t('group_books'), machine: () => t('group_machine') };

const pages = {};

// A page says what it shows, what it does when one comes to it, what it does each second, and where it
// stands in the menu: { group, place, name }. One that is in no menu has a title.
function page(name, { View, enter = () => {}, every, menu, title = menu?.name }) {
  pages[name] = { View, enter, every, menu, title };
}

// What somebody typed need not be well-formed.
const decoded = (text) => { try { return decodeURIComponent(text); } catch { return text; } };

// `#/sales/12?x=1` is the page `sales` with the rest `['12']` and the question `x=1`.
function here() {
  const [where, question = ''] = route.value.replace(/^#\/?/, '').split('?');
  const [name, ...rest] = where.split('/').map(decoded);
  return { name: pages[name] ? name : 'overview', rest: pages[name] ? rest : [], question: new URLSearchParams(question) };
}

const go = (where) => { location.hash = `#/${where}`; };

addEventListener('hashchange', () => {
  problem.value = null;
  done.value = '';
  closeDialog();
  route.value = location.hash;
  enter();
  scrollTo(0, 0);
});

// Loads something into a signal; what went wrong is shown instead.
async function load(into, where, read = (body) => body) {
  const answer = await api('GET', where, { fresh: true });
  if (!answer.ok) { problem.value = answer.body; return false; }
  into.value = read(answer.body);
  if (problem.value?.code === 'offline') problem.value = null;
  return true;
}

function Places({ name }) {
  const all = Object.entries(pages).filter(([, { menu }]) => menu).sort(([, a], [, b]) => a.menu.place - b.menu.place);
  const entry = ([where, { menu }]) => html`<li key=${where}><a href=${`#/${where}`} aria-current=${name === where ? 'page' : undefined}><${Icon} name=${where} />${menu.name()}</a></li>`;
  const within = (group) => all.filter(([, { menu }]) => menu.group === group);
  return html`<ul>${within(undefined).map(entry)}</ul>
    ${Object.keys(groups).map((group) => within(group).length > 0 && html`<p key=${group}>${groups[group]()}</p><ul>${within(group).map(entry)}</ul>`)}`;
}

function Header({ name }) {
  return html`<header class="top"><div class="wrap">
    <a class="brand" href=${`${path('console')}#/`}><${Mark} /><span class="shop">${facts.shop}</span></a>
    ${inside() && html`<details class="places"><summary>${pages[name].title()}</summary><nav aria-label=${t('menu')}><${Places} name=${name} /><p><a href=${home}>${t('to_store')}</a></p></nav></details>`}
    <span class="grow"></span>
    <a class="quiet to-store" href=${home}>${t('to_store')}</a>
    <${LanguageLink} to=${`/${other.lang}/console${route.value}`} />
    ${me.value.signed_in && html`<${Account} />`}</div></header>`;
}

function Frame({ children }) {
  const { name } = here();
  return html`<${Header} name=${name} /><div class="frame">
    ${inside() && html`<nav class="side" aria-label=${t('menu')}><${Places} name=${name} /></nav>`}
    <main id="main">${me.value.role === 'viewer' && html`<p class="viewer muted">${t('viewer_text')}</p>`}
      <div aria-live="polite">${!dialog.value && html`<${Problem} of=${problem.value} />`}${done.value && html`<p class="note good" role="status">${done.value}</p>`}</div>
      ${children}</main></div><${Dialog} />`;
}

function Heading({ title, children }) {
  return html`<div class="heading"><h1>${title}</h1><div class="tools">${children}</div></div>`;
}

// A table whose rows become small cards where there is no room for columns. A column is a name, or
// { name, num, minor }, where the minor ones are left out on a card; a row is { key, cells }.
function Rows({ head, of, label, empty = t('none') }) {
  if (!of.length) return html`<p class="muted nothing">${empty}</p>`;
  const columns = head.map((one) => (typeof one === 'string' ? { name: one } : one));
  const kind = ({ num, minor }) => `${num ? 'num' : ''} ${minor ? 'minor' : ''}`;
  return html`<div class="table"><table class="rows" role="table" aria-label=${label}><thead role="rowgroup"><tr role="row">${columns.map((one) => html`<th key=${one.name} role="columnheader" scope="col" class=${kind(one)}>${one.name}</th>`)}</tr></thead>
    <tbody role="rowgroup">${of.map(({ key, cells }) => html`<tr key=${key} role="row">${cells.map((cell, at) => html`<td key=${at} role="cell" class=${kind(columns[at])} data-name=${columns[at].name}>${cell}</td>`)}</tr>`)}</tbody></table></div>`;
}

// One of a few views of a page.
function Choice({ label, of, chosen, choose }) {
  return html`<div class="choice" role="group" aria-label=${label}>${of.map(([value, name]) => html`<button key=${value} type="button" aria-pressed=${chosen === value} onClick=${() => choose(value)}>${name}</button>`)}</div>`;
}

function Figure({ name, value, unit }) {
  return html`<div><dt>${name}</dt><dd class="digits">${value}${unit && html` <small>${unit}</small>`}</dd></div>`;
}

const Figures = ({ children }) => html`<dl class="figures">${children}</dl>`;

function SaleRows({ of, label, empty }) {
  const num = (name, minor) => ({ name, num: true, minor });
  return html`<${Rows} label=${label} empty=${empty} head=${[t('title'), t('state'), num(t('price')), num(t('left')), num(t('held'), true), num(t('ordered')), num(t('paid')), { name: t('opens'), minor: true }]}
    of=${of.map((one) => ({ key: one.id, cells: [
      html`<a class="main" href=${`#/sales/${one.id}`}>${one.title}</a>`, html`<${Pill} status=${one.status} />`, money(one.price_cents),
      html`<span class="share">${number(one.available)} <span class="muted">${t('of', { n: number(one.stock) })}</span><${Left} of=${one} /></span>`,
      number(one.held), number(one.ordered), number(one.paid), moment(one.opens_at)] }))} />`;
}
