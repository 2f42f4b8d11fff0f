// What every page of the storefront has.
const pages = {};

// A page says what it shows, what it does first, and, if it stands in the menu, under which name.
function page(name, { View, start = () => {}, menu }) {
  pages[name] = { View, start, menu };
}

const otherPath = () => location.pathname.replace(/^\/\w+/, `/${other.lang}`) + location.search;
const signInPath = () => `${path('sign-in')}?next=${encodeURIComponent(location.pathname + location.search)}`;

function Header() {
  const entries = Object.entries(pages).filter(([, { menu }]) => menu).sort(([, a], [, b]) => a.menu.place - b.menu.place);
  return html`<header class="top"><div class="wrap">
    <a class="brand" href=${home}><${Mark} /><span class="shop">${facts.shop}</span></a>
    <nav aria-label=${t('menu')}>${entries.map(([name, { menu }]) => html`<a key=${name} class=${name} href=${path(menu.at)} aria-current=${facts.page === name ? 'page' : undefined}>${menu.name()}</a>`)}</nav>
    <${LanguageLink} to=${otherPath()} />
    ${me.value.signed_in ? html`<${Account} />` : facts.page !== 'sign_in' && html`<a class="quiet" href=${signInPath()}>${t('sign_in')}</a>`}
  </div></header>`;
}

function Frame({ children }) {
  return html`<${Header}/><main id="main" class="wrap">${children}</main>
    <footer class="wrap"><a href=${path('console')}>${t('console')}</a><a href="/docs/">API</a></footer>`;
}

// A page that has nothing to show yet: it loads, or it says why not.
function Waiting({ title, children }) {
  return html`<${Frame}><h1>${title}</h1>${problem.value ? html`<${Problem} of=${problem.value} />` : html`<${Loading} />`}${children}<//>`;
}

function Deadline({ until, label }) {
  const left = Date.parse(until) - now.value;
  return html`<p class=${`deadline ${left < 60_000 ? 'hot' : ''}`}>
    <span>${label}</span> <time class="digits" datetime=${until}>${duration(left)}</time></p>`;
}

// What this browser holds and has not ordered, which no list of orders shows.
const remembered = {
  name: () => `qiang:claims:${me.value?.user_id}`,
  all() { try { return JSON.parse(localStorage.getItem(this.name())) || []; } catch { return []; } },
  add(id) { this.put([id, ...this.all().filter((one) => one !== id)].slice(0, 20)); },
  drop(id) { this.put(this.all().filter((one) => one !== id)); },
  put(ids) { try { localStorage.setItem(this.name(), JSON.stringify(ids)); } catch { /* a private window */ } },
};

// A claim whose time is up is released, whether or not the server has said so yet.
const stateNow = (claim) => {
  const end = claim.state === 'held' ? claim.hold_until : claim.state === 'ordered' ? claim.pay_by : null;
  return end && Date.parse(end) <= now.value ? 'released' : claim.state;
};

const isOver = (sale) => sale.status === 'closed' || sale.status === 'cleared' || (sale.closes_at && Date.parse(sale.closes_at) <= now.value);
const isSoon = (sale) => !isOver(sale) && Date.parse(sale.opens_at) > now.value;
const statusOf = (sale) => (isOver(sale) ? 'closed' : isSoon(sale) ? 'scheduled' : sale.available > 0 ? 'open' : 'sold_out');

// Asks again every few seconds, never all at once, and not while nobody looks.
function poll(every, ask) {
  const again = async () => {
    if (!document.hidden) await ask();
    setTimeout(again, every() * (0.75 + Math.random() / 2));
  };
  setTimeout(again, every() * (0.75 + Math.random() / 2));
}
