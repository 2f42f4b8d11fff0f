// What every page of the console has. Everything it does is a call of the public API, and each action
// can show itself as curl.
const problem = signal(null);
const route = signal(location.hash);
const changing = signal('');
const done = signal('');
const may = () => me.value?.role === 'admin';

addEventListener('hashchange', () => { problem.value = null; done.value = ''; route.value = location.hash; enter(); });

// Calls the API for an action, once at a time.
async function act(name, method, where, body) {
  if (changing.value) return null;
  changing.value = name;
  problem.value = null;
  done.value = '';
  const answer = await api(method, where, { body, fresh: true });
  if (answer.ok) done.value = name; else problem.value = answer.body;
  changing.value = '';
  return answer;
}

function curlOf(method, where, body) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const lines = [`curl -X ${method} ${quoted(`${location.origin}/api/v1${where}`)}`, `-H "Authorization: Bearer $TOKEN"`];
  if (body !== undefined) lines.push(`-H 'Content-Type: application/json'`, `-d ${quoted(JSON.stringify(body))}`);
  return lines.join(' \\\n  ');
}

function Curl({ method, where, body }) {
  return html`<details><summary>${t('c_curl')}</summary><pre tabindex="0">${curlOf(method, where, body)}</pre></details>`;
}

function Problem({ of }) {
  return of && html`<div class="note bad" role="alert"><strong>${of.title}</strong><p>${of.detail}</p></div>`;
}

function Pill({ status }) {
  return html`<span class=${`pill ${status}`}>${t('status_' + status)}</span>`;
}

const tabs = [['', 'c_overview'], ['sales', 'c_sales'], ['refunds', 'c_refunds'], ['audit', 'c_audit'], ['nodes', 'c_nodes'], ['sessions', 'c_sessions'], ['settings', 'c_settings']];
const tabNames = { c_overview: () => t('c_overview'), c_sales: () => t('c_sales'), c_refunds: () => t('c_refunds'), c_audit: () => t('c_audit'), c_nodes: () => t('c_nodes'), c_sessions: () => t('c_sessions'), c_settings: () => t('c_settings') };

function Frame({ children }) {
  const here = route.value.replace(/^#\/?/, '').split('/')[0];
  const other = facts.lang === 'zh' ? 'en' : 'zh';
  return html`<header class="top"><div class="wrap">
    <a class="brand" href=${path('console')}><span class="mark" aria-hidden="true">抢</span>${t('console')}</a>
    ${me.value?.signed_in && html`<nav aria-label=${t('menu')}>${tabs.map(([where, word]) => html`<a key=${where} href=${`#/${where}`} aria-current=${here === where ? 'page' : undefined}>${tabNames[word]()}</a>`)}</nav>`}
    <span class="grow"></span>
    <a class="quiet" href=${home}>${t('c_shop')}</a>
    <a class="quiet" href=${`/${other}/console${route.value}`} lang=${other === 'zh' ? 'zh-CN' : 'en'}>${other === 'zh' ? '中文' : 'English'}</a>
    ${me.value?.signed_in && html`<span class="who"><span class="name">${me.value.user_id}</span><button class="link" onClick=${signOut}>${t('sign_out')}</button></span>`}
  </div></header><main id="main" class="wrap">
    ${me.value?.role === 'viewer' && html`<p class="muted">${t('c_viewer_text')}</p>`}
    ${children}<div aria-live="polite"><${Problem} of=${problem.value} />${done.value && html`<p class="ok" role="status">${t('c_done')}</p>`}</div></main>`;
}

function Rows({ head, of }) {
  if (!of.length) return html`<p class="muted">${t('c_none')}</p>`;
  return html`<div class="table" tabindex="0" role="region" aria-label=${head[0]}><table class="rows"><thead><tr>${head.map((name) => html`<th key=${name} scope="col">${name}</th>`)}</tr></thead><tbody>${of}</tbody></table></div>`;
}
