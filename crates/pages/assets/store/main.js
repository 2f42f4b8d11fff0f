// Which page this is, drawn again whenever something it shows has changed.
const pages = {
  list: [ListPage, startList],
  sale: [SalePage, startSale],
  pay: [PayPage, startPay],
  mine: [MinePage, startMine],
  sign_in: [SignInPage, () => {}],
};
const [ThisPage, start] = pages[facts.page];
const root = document.getElementById('app');
let drawn = false;

effect(() => {
  if (!me.value) return;
  if (!drawn) { root.replaceChildren(); drawn = true; }
  render(ThisPage(), root);
});

async function begin() {
  // A server that does not answer now may answer later.
  for (let attempt = 0; !(await whoAmI()).ok; attempt += 1) await pause(Math.min(8000, 500 * 2 ** attempt));
  tick();
  await start();
  keepTime();
}
begin();
