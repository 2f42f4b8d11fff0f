// Who may come in, and which page is shown.
document.body.classList.add('console');

async function signIn(event) {
  event.preventDefault();
  await begin({ token: new FormData(event.target).get('token').trim() });
}

async function begin(how) {
  const answer = await api('POST', '/session', { body: how });
  if (!answer.ok) { problem.value = answer.body; return; }
  me.value = answer.body;
  enter();
}

function SignInPage() {
  return html`<${Frame}><div class="narrow"><h1>${t('sign_in')}</h1>
    ${me.value.signed_in && html`<p>${t('c_no_access', { user: me.value.user_id, role: me.value.role })}</p>`}
    <p>${t('c_sign_in_text')}</p><form class="stack" onSubmit=${signIn}><label for="token">${t('your_token')}</label>
    <input id="token" name="token" type="password" required autocomplete="off" /><button class="primary">${t('sign_in')}</button></form></div><//>`;
}

const inside = () => me.value?.role === 'viewer' || me.value?.role === 'admin';

function here() {
  const [page, id] = route.value.replace(/^#\/?/, '').split('/');
  if (page === 'sales') return id === 'new' ? [NewSalePage, () => {}] : id ? [SalePage, () => enterSale(id)] : [SalesPage, loadSales];
  return { refunds: [RefundsPage, loadRefunds], audit: [AuditPage, () => {}], nodes: [NodesPage, loadNodes], sessions: [SessionsPage, loadSessions], settings: [SettingsPage, loadSettings] }[page]
    || [OverviewPage, () => { loadSales(); }];
}

function enter() { if (inside()) { here()[1](); watchLive(); } }

const root = document.getElementById('app');
let drawn = false;
effect(() => {
  if (!me.value) return;
  if (!drawn) { root.replaceChildren(); drawn = true; }
  render((inside() ? here()[0] : SignInPage)(), root);
});

// One sale, and the list, second by second while somebody looks.
async function follow() {
  for (;;) {
    await pause(1000);
    if (document.hidden || !inside() || changing.value) continue;
    const [page, id] = route.value.replace(/^#\/?/, '').split('/');
    if (page === 'sales' && id && id !== 'new' && sale.value?.id === id && sale.value.status !== 'cleared') await loadSale(id);
    else if (page === '' || (page === 'sales' && !id)) await loadSales();
  }
}

async function open() {
  for (let attempt = 0; !(await whoAmI()).ok; attempt += 1) await pause(Math.min(8000, 500 * 2 ** attempt));
  tick();
  // The secret of the link stays in the fragment, which no server sees, and goes with its first use.
  const link = new URLSearchParams(location.hash.slice(1)).get('link');
  if (link) {
    history.replaceState(null, '', location.pathname);
    route.value = '';
    if (!inside()) await begin({ link });
  }
  enter();
  follow();
  keepTime();
}
open();
