// What storefront and console both draw.
const problem = signal(null);

const Mark = () => html`<span class="mark" aria-hidden="true">抢</span>`;

const Pill = ({ status }) => html`<span class=${`pill ${status}`}>${t('status_' + status)}</span>`;

// A refusal in the words for buyers where there are such, and otherwise as the API explains it.
function Problem({ of }) {
  return of && html`<div class="note bad" role="alert"><strong>${of.title}</strong><p>${words[`refusal_${of.code}`] ?? of.detail}</p></div>`;
}

const Loading = () => html`<p class="muted loading">${t('loading')}</p>`;

function LanguageLink({ to }) {
  return html`<a class="quiet" href=${to} lang=${other.tag} hreflang=${other.tag}>${other.name}</a>`;
}

// Who is signed in, and the way out.
function Account() {
  const name = me.value.user_id;
  return html`<details class="who"><summary aria-label=${t('account', { user: name })}><span class="avatar" aria-hidden="true">${[...name][0].toUpperCase()}</span></summary>
    <div class="sheet"><p class="name">${name}</p><button onClick=${signOut}>${t('sign_out')}</button></div></details>`;
}

// A menu closes when something else is chosen, and with Escape.
const openMenus = () => document.querySelectorAll('details.who[open], details.places[open]');
document.addEventListener('click', ({ target }) => openMenus().forEach((menu) => { if (!menu.contains(target) || target.closest('.places a')) menu.open = false; }));
document.addEventListener('keydown', ({ key }) => {
  if (key !== 'Escape') return;
  openMenus().forEach((menu) => { menu.open = false; menu.querySelector('summary').focus(); });
});

const tintOf = (text) => [...text].reduce((sum, letter) => (sum * 31 + letter.codePointAt(0)) % 6, 0);

// The picture of a sale, or the first letter of its title on a colour of its own.
function Picture({ src, title, large }) {
  const kind = large ? 'picture large' : 'picture';
  return src ? html`<img class=${kind} src=${src} alt="" />` : html`<div class=${`${kind} tint${tintOf(title)}`} aria-hidden="true">${[...title][0]}</div>`;
}

const Left = ({ of }) => html`<meter class="bar" aria-label=${t('left_of')} min="0" max="1" value=${of.stock ? of.available / of.stock : 0}></meter>`;

// A page that the way back brings out of the memory of the browser is as old as it was left.
addEventListener('pageshow', ({ persisted }) => { if (persisted) location.reload(); });

// Draws the page again whenever something it shows has changed, once it is known who looks.
function draw(page) {
  const root = document.getElementById('app');
  let drawn = false;
  effect(() => {
    if (!me.value) return;
    if (!drawn) { root.replaceChildren(); drawn = true; }
    render(page(), root);
  });
}

// A server that does not answer now may answer later.
async function arrive() {
  for (let attempt = 0; !(await whoAmI()).ok; attempt += 1) await pause(Math.min(8000, 500 * 2 ** attempt));
  tick();
}
