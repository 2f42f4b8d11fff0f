// The public API, as anybody can call it. The cookie goes along by itself.
const unsure = new Set(['outcome_unknown', 'overloaded', 'unavailable']);
const me = signal(null);

// Answers { ok, status, body } and never throws: a lost connection is an answer of its own kind.
async function api(method, where, { body, key, fresh } = {}) {
  const headers = { 'accept-language': facts.lang };
  if (body !== undefined) headers['content-type'] = 'application/json';
  if (key) headers['idempotency-key'] = key;
  try {
    const answer = await fetch(`/api/v1${where}`, {
      method, headers, credentials: 'same-origin',
      cache: fresh ? 'no-store' : 'default',
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await answer.text();
    const result = { ok: answer.ok, status: answer.status, body: text ? JSON.parse(text) : {} };
    // The cookie is short-lived. Asking who we are renews it.
    if (result.status === 401 && result.body.code === 'token_expired' && me.value?.signed_in) {
      await whoAmI();
      if (me.value.signed_in) return api(method, where, { body, key, fresh });
    }
    return result;
  } catch {
    return { ok: false, status: 0, body: { code: 'offline', title: t('offline'), detail: t('offline_detail') } };
  }
}

const isUnsure = (answer) => answer.status === 0 || unsure.has(answer.body.code);

async function whoAmI() {
  const began = performance.now();
  const answer = await api('GET', '/session', { fresh: true });
  if (!answer.ok) return answer;
  learnTime(answer.body.server_time, began, performance.now());
  me.value = answer.body;
  return answer;
}

async function signOut() {
  await api('DELETE', '/session');
  location.assign(home);
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
