// Which page this is.
const { View, start } = pages[facts.page];

async function begin() {
  await arrive();
  await start();
  keepTime();
}

draw(View);
begin();
