// Who may come in, and which page is shown.
document.body.classList.add('console');

async function signIn(event) {
  event.preventDefault();
  await begin({ token: new FormData(event.target).get('token').trim() });
}

async function begin(how) {
  const answer = await api('POST', '/session', { body: how });
  if (!answer.ok) { problem.value = answer.body; return; }
  problem.value = null;
  me.value = answer.body;
  enter();
}

function SignInPage() {
  const { signed_in: known, user_id: user, role } = me.value;
  return html`<${Frame}><div class="ticket"><h1>${t('sign_in')}</h1>
    ${known && html`<p class="note">${t('no_access', { user, role: roles[role]() })}</p>`}
    <p>${t('sign_in_text')}</p><pre tabindex="0">${t('sign_in_command')}</pre>
    <form class="stack" onSubmit=${signIn}><label for="token">${t('your_token')}</label>
      <input id="token" name="token" type="password" required autocomplete="off" /><button class="primary wide">${t('sign_in')}</button></form></div><//>`;
}

function enter() {
  if (!inside()) return;
  const { name, rest, question } = here();
  pages[name].enter(rest, question);
  watchLive();
}

function View() {
  if (!inside()) return html`<${SignInPage} />`;
  const { name, rest, question } = here();
  return pages[name].View({ rest, question });
}

// What a page does each second while somebody looks.
async function follow() {
  for (;;) {
    await pause(1000);
    if (document.hidden || !inside() || changing.value) continue;
    const { name, rest, question } = here();
    await pages[name].every?.(rest, question);
  }
}

async function open() {
  await arrive();
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

draw(View);
open();
