//! What buyers read about a sale, and its picture. No rule of the sale: both can be changed while it
//! runs, and the engine does not know them.

use qiang_core::{PoolId, Timestamp};
use qiang_sql::{Existing, Insert, Row, Table, sql};

use crate::error::{Result, While};
use crate::fields::Fields;
use crate::{Store, page, patiently};

static PAGES: Table =
    Table { name: "sale_pages", key: "sale_id", fixed: "", changing: "description, changed_at" };

static IMAGES: Table = Table {
    name: "sale_images",
    key: "sale_id",
    fixed: "",
    changing: "media_type, content, changed_at",
};

static PUT_PAGE: Insert = Insert::new(&PAGES, Existing::IsReplaced);
static PUT_IMAGE: Insert = Insert::new(&IMAGES, Existing::IsReplaced);

/// What buyers read about a sale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SalePage {
    /// Which sale.
    pub sale: PoolId,
    /// Plain text.
    pub description: String,
    /// When it was last changed.
    pub changed_at: Timestamp,
}

/// The picture of a sale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaleImage {
    /// Which sale.
    pub sale: PoolId,
    /// What it is, as `image/png`.
    pub media_type: String,
    /// Its bytes.
    pub content: Vec<u8>,
    /// When it was last changed.
    pub changed_at: Timestamp,
}

impl Store {
    /// Sets what buyers read about a sale.
    pub async fn put_sale_page(&self, page: &SalePage) -> Result<()> {
        let values = [
            sale_key(page.sale).into(),
            page.description.as_str().into(),
            page.changed_at.millis().into(),
        ];
        let put = PUT_PAGE.one(self.database.dialect());
        let put = patiently!(self.database.execute(put, &values).await);
        put.when("writing a sale's page").map(drop)
    }

    /// What buyers read about a sale, if anything.
    pub async fn sale_page(&self, sale: PoolId) -> Result<Option<SalePage>> {
        let select = sql!([PAGES] "SELECT {sale_pages} FROM sale_pages WHERE sale_id = ?");
        let row = self.database.fetch_optional(select, &[sale_key(sale).into()]).await;
        row.when("reading a sale's page")?.as_ref().map(read).transpose()
    }

    /// Sets the picture of a sale.
    pub async fn put_sale_image(&self, image: &SaleImage) -> Result<()> {
        let values = [
            sale_key(image.sale).into(),
            image.media_type.as_str().into(),
            image.content.as_slice().into(),
            image.changed_at.millis().into(),
        ];
        let put = PUT_IMAGE.one(self.database.dialect());
        let put = patiently!(self.database.execute(put, &values).await);
        put.when("writing a sale's image").map(drop)
    }

    /// The picture of a sale, if it has one.
    pub async fn sale_image(&self, sale: PoolId) -> Result<Option<SaleImage>> {
        let select = sql!([IMAGES] "SELECT {sale_images} FROM sale_images WHERE sale_id = ?");
        let row = self.database.fetch_optional(select, &[sale_key(sale).into()]).await;
        row.when("reading a sale's image")?.as_ref().map(read_image).transpose()
    }

    /// Takes the picture of a sale away; says whether there was one.
    pub async fn remove_sale_image(&self, sale: PoolId) -> Result<bool> {
        let remove = sql!("DELETE FROM sale_images WHERE sale_id = ?");
        let removed = patiently!(self.database.execute(remove, &[sale_key(sale).into()]).await);
        removed.when("removing a sale's image").map(|found| found == 1)
    }

    /// Which sales have a picture, those changed last first, and when it was changed.
    pub async fn sales_with_image(&self, max: u32) -> Result<Vec<(PoolId, Timestamp)>> {
        let select = sql!(
            "SELECT sale_id, changed_at FROM sale_images ORDER BY changed_at DESC, sale_id LIMIT ?"
        );
        let rows = self.database.fetch_all(select, &[page(max).into()]).await;
        let read = |row: &Row| {
            let mut fields = Fields::new(row, &IMAGES);
            Ok((fields.pool()?, fields.time()?))
        };
        rows.when("listing sales with an image")?.iter().map(read).collect()
    }

    /// When the picture of a sale was changed, if it has one.
    pub async fn sale_image_changed(&self, sale: PoolId) -> Result<Option<Timestamp>> {
        let select = sql!("SELECT sale_id, changed_at FROM sale_images WHERE sale_id = ?");
        let row = self.database.fetch_optional(select, &[sale_key(sale).into()]).await;
        let read = |row: &Row| {
            let mut fields = Fields::new(row, &IMAGES);
            fields.pool()?;
            fields.time()
        };
        row.when("reading a sale's image")?.as_ref().map(read).transpose()
    }
}

fn sale_key(sale: PoolId) -> i64 {
    i64::try_from(sale.get()).expect("a pool's id has 63 bits")
}

fn read(row: &Row) -> Result<SalePage> {
    let mut fields = Fields::new(row, &PAGES);
    Ok(SalePage {
        sale: fields.pool()?,
        description: fields.text()?.to_owned(),
        changed_at: fields.time()?,
    })
}

fn read_image(row: &Row) -> Result<SaleImage> {
    let mut fields = Fields::new(row, &IMAGES);
    Ok(SaleImage {
        sale: fields.pool()?,
        media_type: fields.text()?.to_owned(),
        content: fields.bytes()?.to_vec(),
        changed_at: fields.time()?,
    })
}
