// Everything that changes something: said first, shown as the call that it is, then done once.
const dialog = signal(null);
const filled = signal({});
const copied = signal(false);
let element = null;

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function curlOf({ method, where, body, file }) {
  const lines = [`curl -X ${method} ${quoted(`${location.origin}/api/v1${where}`)}`, `-H "Authorization: Bearer $TOKEN"`];
  if (file) lines.push(`-H 'Content-Type: ${file.type}'`, `--data-binary ${quoted(`@${file.name}`)}`);
  else if (body !== undefined) lines.push(`-H 'Content-Type: application/json'`, `-d ${quoted(JSON.stringify(body))}`);
  return lines.join(' \\\n  ');
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    copied.value = true;
    setTimeout(() => { copied.value = false; }, 2000);
  } catch { /* not allowed here; it can be marked and copied by hand */ }
}

function Curl(call) {
  const text = curlOf(call);
  return html`<details class="curl"><summary>${t('as_curl')}</summary><pre tabindex="0">${text}</pre><button type="button" class="small" onClick=${() => copyText(text)}>${copied.value ? t('copied') : t('copy')}</button></details>`;
}

// Calls the API for a change, one at a time.
async function change({ method, where, body, file }) {
  if (changing.value) return null;
  changing.value = true;
  problem.value = null;
  done.value = '';
  const answer = file ? await sendFile(method, where, file) : await api(method, where, { body, fresh: true });
  if (answer.ok) done.value = t('done'); else problem.value = answer.body;
  changing.value = false;
  return answer;
}

async function sendFile(method, where, file) {
  try {
    const answer = await fetch(`/api/v1${where}`, { method, body: file, headers: { 'content-type': file.type, 'accept-language': facts.lang } });
    return { ok: answer.ok, status: answer.status, body: await answer.json() };
  } catch {
    return { ok: false, status: 0, body: { code: 'offline', title: t('offline'), detail: t('offline_detail') } };
  }
}

// An action: { title, text, label, method, where, body, fields, danger, after }. `where` and `body` may
// depend on what was filled in.
function ask(action) {
  problem.value = null;
  done.value = '';
  filled.value = Object.fromEntries((action.fields ?? []).map((field) => [field.name, field.value ?? '']));
  dialog.value = action;
}

function closeDialog() {
  element?.close();
  element = null;
  dialog.value = null;
}

const given = (part) => (typeof part === 'function' ? part(filled.value) : part);
const callOf = ({ method, where, body }) => ({ method, where: given(where), body: given(body) });

async function confirm(event) {
  event.preventDefault();
  const action = dialog.value;
  const answer = await change(callOf(action));
  if (!answer?.ok) return;
  closeDialog();
  await action.after?.(answer.body);
}

function Field({ name, label, hint, type = 'text', options, rows, values, full, ...more }) {
  const set = (event) => { values.value = { ...values.value, [name]: event.target.value }; };
  const [value, told] = [values.value[name], hint && `${name}-hint`];
  const input = options ? html`<select id=${name} value=${value} onChange=${set} aria-describedby=${told}>${options.map(([one, text]) => html`<option key=${one} value=${one} selected=${one === value}>${text}</option>`)}</select>`
    : rows ? html`<textarea id=${name} rows=${rows} value=${value} onInput=${set} aria-describedby=${told} ...${more}></textarea>`
      : html`<input id=${name} type=${type} value=${value} onInput=${set} aria-describedby=${told} ...${more} />`;
  return html`<div class=${full ? 'field full' : 'field'}><label for=${name}>${label}</label>${input}${hint && html`<p class="hint" id=${told}>${hint}</p>`}</div>`;
}

function show(next) {
  if (next && !next.open) next.showModal();
  element = next;
}

function Dialog() {
  const action = dialog.value;
  if (!action) return null;
  return html`<dialog ref=${show} aria-labelledby="dialog-title" onCancel=${(event) => { event.preventDefault(); closeDialog(); }}><form onSubmit=${confirm}>
    <h2 id="dialog-title">${action.title}</h2>${action.text && html`<p>${action.text}</p>`}
    ${(action.fields ?? []).map((field) => html`<${Field} key=${field.name} values=${filled} ...${field} />`)}
    <${Problem} of=${problem.value} />
    <div class="row end"><button type="button" onClick=${closeDialog}>${t('cancel')}</button><button class=${action.danger ? 'danger' : 'primary'} disabled=${changing.value}>${action.label ?? action.title}</button></div>
    <${Curl} ...${callOf(action)} /></form></dialog>`;
}

// A button that opens an action; viewers see none.
function Act({ action, kind = '', children }) {
  return may() && html`<button type="button" class=${kind} onClick=${() => ask(action)}>${children ?? action.title}</button>`;
}
