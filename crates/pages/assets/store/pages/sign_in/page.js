// Who are you? By name on a machine of one's own, with the shop's token everywhere.
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

function ByName() {
  return html`<form class="stack" onSubmit=${signIn}><label for="user">${t('your_name')}</label>
    <input id="user" name="user_id" required maxlength="21" autocomplete="username" />
    <p class="muted">${t('sandbox_sign_in')}</p><button class="primary wide" disabled=${signing.value}>${t('sign_in')}</button></form>`;
}

function ByToken() {
  return html`<form class="stack" onSubmit=${signIn}><label for="token">${t('your_token')}</label>
    <input id="token" name="token" required type="password" autocomplete="off" />
    <p class="muted">${t('token_text')}</p><button class=${facts.sandbox ? 'wide' : 'primary wide'} disabled=${signing.value}>${t('sign_in_token')}</button></form>`;
}

function SignInPage() {
  return html`<${Frame}><div class="ticket"><h1>${t('sign_in')}</h1>
    <div aria-live="polite"><${Problem} of=${problem.value} /></div>
    ${facts.sandbox && html`<${ByName} />`}
    ${facts.sandbox ? html`<details class="more"><summary>${t('with_token')}</summary><${ByToken} /></details>` : html`<${ByToken} />`}</div><//>`;
}

page('sign_in', { View: SignInPage });
