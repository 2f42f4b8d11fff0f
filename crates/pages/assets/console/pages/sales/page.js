// #/sales, #/sales/new, #/sales/ID
const viewOf = ([id]) => (id === 'new' ? NewSalePage : id ? SalePage : SalesPage);

page('sales', {
  View: ({ rest }) => viewOf(rest)(),
  enter([id], question) {
    if (id === 'new') startForm(question);
    else if (id) enterSale(id);
    else loadSales();
  },
  every([id]) {
    if (id === 'new') return null;
    if (!id) return loadSales();
    return sale.value?.id === id && sale.value.status !== 'cleared' ? loadSale(id) : null;
  },
  menu: { group: 'sales', place: 10, name: () => t('sales') },
});
