//! What buyers read about a sale, and its picture, are replaced as a whole.

use qiang_core::{PoolId, Timestamp};
use qiang_sql::{Dialect, on_every_database};
use qiang_store::{SaleImage, SalePage};

use crate::fixtures::Db;

on_every_database!(a_page_is_replaced, an_image_is_replaced_and_removed);

fn sale(id: u64) -> PoolId {
    PoolId::new(id).expect("positive")
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

async fn a_page_is_replaced(on: Dialect) {
    let db = Db::new(on).await;
    assert_eq!(db.store.sale_page(sale(7)).await.expect("readable"), None);
    for (text, ms) in [("A phone\nand more", 1), ("一部手机 📱", 2)] {
        let page = SalePage { sale: sale(7), description: text.to_owned(), changed_at: at(ms) };
        db.store.put_sale_page(&page).await.expect("written");
        assert_eq!(db.store.sale_page(sale(7)).await.expect("readable"), Some(page));
    }
}

async fn an_image_is_replaced_and_removed(on: Dialect) {
    let db = Db::new(on).await;
    let image = |id, byte, ms| SaleImage {
        sale: sale(id),
        media_type: "image/png".to_owned(),
        content: vec![byte, 0, 255, b'\''],
        changed_at: at(ms),
    };
    for image in [image(7, 1, 1), image(7, 2, 3), image(8, 3, 2)] {
        db.store.put_sale_image(&image).await.expect("written");
        assert_eq!(db.store.sale_image(image.sale).await.expect("readable"), Some(image));
    }
    let listed = db.store.sales_with_image(10).await.expect("readable");
    assert_eq!(listed, [(sale(7), at(3)), (sale(8), at(2))]);
    assert_eq!(db.store.sale_image_changed(sale(8)).await.expect("readable"), Some(at(2)));
    assert!(db.store.remove_sale_image(sale(7)).await.expect("removed"));
    assert!(!db.store.remove_sale_image(sale(7)).await.expect("looked at"));
    assert_eq!(db.store.sale_image(sale(7)).await.expect("readable"), None);
}
