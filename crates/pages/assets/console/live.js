// The last ten minutes, second by second: what there was from the list, what comes from the stream.
// All tabs of a browser share one stream, because HTTP/1 allows six connections to a server: of the
// tabs that can be seen one holds the lock, reads, and passes every message on to the others.
const SHOWN = 600, STALE_MS = 5000, LIVE = 'qiang:live';
const samples = signal([]);
const heardAt = signal(performance.now());
const others = 'BroadcastChannel' in window ? new BroadcastChannel(LIVE) : null;
let watching = null;

const timeOf = (sample) => Date.parse(sample.at);

function takeSamples(list) {
  const last = samples.value.length ? timeOf(samples.value.at(-1)) : 0;
  const fresh = list.filter((one) => timeOf(one) > last);
  if (!fresh.length) return;
  heardAt.value = performance.now();
  samples.value = [...samples.value, ...fresh].slice(-SHOWN);
}

let loading = null;
// Whoever wants the list while it is under way gets the same one.
const loadSamples = () => { loading ??= askSamples().finally(() => { loading = null; }); return loading; };

async function askSamples() {
  const last = samples.value.at(-1);
  const answer = await api('GET', `/admin/samples${last ? `?after=${timeOf(last)}` : ''}`, { fresh: true });
  if (answer.ok) takeSamples(answer.body.samples);
  return answer.ok;
}

// A message that does not follow the one before: seconds were missed, and the list has them.
function takeNext(sample) {
  const last = samples.value.at(-1);
  if (!last || timeOf(sample) - timeOf(last) > 2500) loadSamples().then(() => takeSamples([sample]));
  else takeSamples([sample]);
}

function readStream(stop) {
  return new Promise((ended) => {
    const source = new EventSource('/api/v1/admin/live');
    const end = () => { source.close(); ended(); };
    source.onmessage = ({ data }) => {
      const sample = JSON.parse(data);
      takeNext(sample);
      others?.postMessage(sample);
    };
    source.onerror = end;
    stop.addEventListener('abort', end, { once: true });
  });
}

// A stream ends after a minute, or with its server. Asking who we are renews the cookie.
async function readStreams(stop) {
  for (let failures = 0; !stop.aborted && inside();) {
    failures = (await loadSamples()) ? 0 : failures + 1;
    if (!failures && !stop.aborted) await readStream(stop);
    if (stop.aborted) return;
    await pause(Math.min(8000, 250 * 2 ** failures));
    if (!stop.aborted) await whoAmI();
  }
}

async function watchLive() {
  if (watching || document.hidden || !inside()) return;
  const stop = new AbortController();
  watching = stop;
  loadSamples();
  const read = () => readStreams(stop.signal);
  try {
    // Without a secure context there are no locks; then each tab has a stream of its own.
    await (navigator.locks ? navigator.locks.request(LIVE, { signal: stop.signal }, read) : read());
  } catch { /* hidden before it was this tab's turn */ }
  if (watching === stop) watching = null;
}

if (others) others.onmessage = ({ data }) => { if (watching && !document.hidden) takeNext(data); };

document.addEventListener('visibilitychange', () => {
  if (!document.hidden) { watchLive(); return; }
  watching?.abort();
  watching = null;
});

// How long nothing has come; 0 while it does.
function staleFor() {
  const silent = (now.value, performance.now() - heardAt.value);
  return silent > STALE_MS ? Math.floor(silent / 1000) : 0;
}

function Stale() {
  const seconds = staleFor();
  return seconds > 0 && html`<div class="note bad stale" role="status">${t('stale', { n: number(seconds) })}</div>`;
}
