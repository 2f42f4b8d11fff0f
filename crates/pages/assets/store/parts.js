// What every page of the storefront has.
const problem = signal(null);

const other = facts.lang === 'zh' ? 'en' : 'zh';
const otherPath = () => location.pathname.replace(/^\/\w+/, `/${other}`) + location.search;

function Header() {
  const user = me.value;
  const here = (page) => (facts.page === page ? 'page' : undefined);
  return html`<header class="top"><div class="wrap">
    <a class="brand" href=${home}><span class="mark" aria-hidden="true">抢</span>${facts.shop}</a>
    <nav aria-label=${t('menu')}>
      <a href=${home} aria-current=${here('list')}>${t('sales')}</a>
      <a href=${path('mine')} aria-current=${here('mine')}>${t('mine')}</a>
    </nav>
    <span class="grow"></span>
    <a class="quiet" href=${otherPath()} lang=${other === 'zh' ? 'zh-CN' : 'en'} hreflang=${other}>${other === 'zh' ? '中文' : 'English'}</a>
    ${user?.signed_in
      ? html`<span class="who"><span class="name">${user.user_id}</span><button class="link" onClick=${signOut}>${t('sign_out')}</button></span>`
      : user && facts.page !== 'sign_in' && html`<a class="quiet" href=${signInPath()}>${t('sign_in')}</a>`}
  </div></header>`;
}

const signInPath = () => `${path('sign-in')}?next=${encodeURIComponent(location.pathname + location.search)}`;

function Frame({ children }) {
  return html`<${Header}/><main id="main" class="wrap">${children}</main>
    <footer class="wrap"><p><a href=${path('console')}>${t('console')}</a> · <a href="/docs/">API</a></p></footer>`;
}

function Problem({ of }) {
  return of && html`<div class="note bad" role="alert"><strong>${of.title}</strong><p>${of.detail}</p></div>`;
}

function Pill({ status }) {
  return html`<span class=${`pill ${status}`}>${t('status_' + status)}</span>`;
}

function Picture({ src, title, large }) {
  const kind = large ? 'picture large' : 'picture';
  return src
    ? html`<img class=${kind} src=${src} alt="" />`
    : html`<div class=${kind} aria-hidden="true">${[...title][0]}</div>`;
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

const stateNow = (claim) => {
  const end = claim.state === 'held' ? claim.hold_until : claim.state === 'ordered' ? claim.pay_by : null;
  return end && Date.parse(end) <= now.value ? 'released' : claim.state;
};

// Asks again every few seconds, never all at once, and not while nobody looks.
function poll(every, ask) {
  const again = async () => {
    if (!document.hidden) await ask();
    setTimeout(again, every() * (0.75 + Math.random() / 2));
  };
  setTimeout(again, every() * (0.75 + Math.random() / 2));
}
