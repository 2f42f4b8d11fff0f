// The server's clock. Each answer tells the time with an error of at most half its way; the shortest way
// wins. The device's own clock is never asked, only how much time has passed.
const RESYNC_MS = 30_000, LAST_MINUTE_MS = 60_000, LAST_RESYNC_MS = 5_000, TRUSTED_MS = 600_000, FIRST_ASKS = 3;
let best = null;
const now = signal(0);

function learnTime(text, began, ended) {
  const way = ended - began;
  if (best && way > best.way && began - best.at < TRUSTED_MS) return;
  best = { way, at: began, offset: Date.parse(text) - (began + ended) / 2 };
}

const serverNow = () => best.offset + performance.now();

async function askTime() {
  const began = performance.now();
  const answer = await api('GET', '/time', { fresh: true });
  if (answer.ok) learnTime(answer.body.server_time, began, performance.now());
}

// Ticks at each whole second of the server, and exactly at the moments that matter.
let moments = [];
let ticking = 0;
function tick() {
  clearTimeout(ticking);
  now.value = serverNow();
  const left = moments.map((at) => at - now.value).filter((ms) => ms > 0);
  const wait = Math.min(1000 - (now.value % 1000), ...left);
  ticking = setTimeout(tick, Math.max(4, Math.ceil(wait)));
}
function watch(times) {
  moments = times.filter(Boolean).map((text) => Date.parse(text));
  if (best) tick();
}

async function keepTime() {
  // Before an opening a few answers in a row; otherwise the first one will do for a while.
  const ahead = () => moments.some((at) => at > serverNow());
  let [nextAsk, asked] = [ahead() ? 0 : performance.now() + RESYNC_MS, 0];
  for (;;) {
    await pause(250);
    if (document.hidden || performance.now() < nextAsk) continue;
    const soon = moments.some((at) => at > serverNow() && at - serverNow() < LAST_MINUTE_MS);
    await askTime();
    asked += 1;
    if (asked >= FIRST_ASKS) nextAsk = performance.now() + (soon ? LAST_RESYNC_MS : RESYNC_MS);
  }
}

// A device that slept has lost count.
document.addEventListener('visibilitychange', () => {
  if (!document.hidden && best) {
    best.at = -TRUSTED_MS;
    askTime().then(tick);
  }
});
