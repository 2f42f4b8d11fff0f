//! What buyers read about a sale, and its picture. Records, not rules: the engine does not know them,
//! and they can be changed while the sale runs.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use qiang_core::{PoolId, Timestamp};
use qiang_store::{SaleImage, SalePage};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::sale::{find, sale_id};
use qiang_app::extract::{Admin, Json, Nothing, OptionalJson, Path, Shared, read_body};
use qiang_app::problem::{Code, Problem};
use qiang_app::{App, json_time, schema};

/// Characters of a description.
const MAX_DESCRIPTION: usize = 4_000;
/// Bytes of a picture.
const MAX_IMAGE_BYTES: usize = 512 << 10;
/// Pictures that are listed at once.
const MAX_LISTED: u32 = 1_000;
/// Pictures change seldom, and a minute's delay costs nobody anything.
const FOR_A_MINUTE: HeaderValue =
    HeaderValue::from_static("public, max-age=60, stale-while-revalidate=600");

/// What buyers read.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPage {
    /// Plain text with line breaks, at most 4000 characters.
    #[schema(
        max_length = 4000,
        pattern = r"^[^\u0000-\u0008\u000b-\u001f\u007f-\u009f]*$",
        example = "Black, 256 GB."
    )]
    description: String,
}

/// What buyers read about a sale.
#[derive(Debug, Serialize, ToSchema)]
pub struct PageView {
    /// The sale.
    #[schema(value_type = schema::SaleId)]
    pub sale_id: String,
    /// Plain text with line breaks; empty is none.
    #[schema(max_length = 4000, example = "Black, 256 GB.")]
    pub description: String,
    /// Where its picture is; null is none.
    #[schema(example = "/api/v1/sales/12/image")]
    pub image: Option<String>,
    /// When text or picture were last changed; null is never.
    #[serde(with = "json_time::option")]
    #[schema(value_type = Option<schema::Time>)]
    pub changed_at: Option<Timestamp>,
}

/// The sales that have a picture.
#[derive(Debug, Serialize, ToSchema)]
pub struct ImageList {
    /// Those changed last first, at most 1000.
    pub images: Vec<ImageView>,
}

/// The picture of a sale.
#[derive(Debug, Serialize, ToSchema)]
pub struct ImageView {
    /// The sale.
    #[schema(value_type = schema::SaleId)]
    pub sale_id: String,
    /// Where it is.
    #[schema(example = "/api/v1/sales/12/image")]
    pub image: String,
}

/// Show what buyers read about a sale
///
/// A sale that nobody has written about has an empty description.
#[utoipa::path(get, path = "/api/v1/sales/{sale_id}/page", operation_id = "show_sale_page", tag = "sales",
    params(("sale_id" = schema::SaleId, Path, description = "The sale")),
    responses((status = 200, description = "What buyers read", body = PageView)))]
pub async fn show(
    State(app): Shared,
    Path(id): Path<String>,
) -> Result<axum::Json<PageView>, Problem> {
    let id = find(&app, sale_id(&id)?).await?.id;
    view(&app, id).await
}

/// Write what buyers read about a sale
///
/// In place of what they read before; the rules of the sale stay as they are.
#[utoipa::path(put, path = "/api/v1/sales/{sale_id}/page", operation_id = "put_sale_page", tag = "sales", security(("token" = ["admin"])),
    params(("sale_id" = schema::SaleId, Path, description = "The sale")),
    request_body = NewPage,
    responses((status = 200, description = "What buyers read now", body = PageView)))]
pub async fn put(
    State(app): Shared,
    _: Admin,
    Path(id): Path<String>,
    Json(NewPage { description }): Json<NewPage>,
) -> Result<axum::Json<PageView>, Problem> {
    let strange = |c: char| c.is_control() && c != '\n' && c != '\t';
    if description.chars().count() > MAX_DESCRIPTION || description.contains(strange) {
        let rule = "must have at most 4000 characters, of which only line breaks and tabs may be \
                    control characters";
        return Err(Problem::invalid_field("description", rule));
    }
    let sale = find(&app, sale_id(&id)?).await?.id;
    app.store.put_sale_page(&SalePage { sale, description, changed_at: app.now() }).await?;
    view(&app, sale).await
}

/// Put a picture on a sale
///
/// PNG, JPEG or WebP, up to 512 KiB, in place of the one before.
#[utoipa::path(put, path = "/api/v1/sales/{sale_id}/image", operation_id = "put_sale_image", tag = "sales", security(("token" = ["admin"])),
    params(("sale_id" = schema::SaleId, Path, description = "The sale")),
    request_body(content(([u8] = "image/png"), ([u8] = "image/jpeg"), ([u8] = "image/webp"))),
    responses((status = 200, description = "What buyers read and see now", body = PageView)))]
pub async fn put_image(
    State(app): Shared,
    _: Admin,
    Path(id): Path<String>,
    request: Request,
) -> Result<axum::Json<PageView>, Problem> {
    let named = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = named.unwrap_or_default().to_ascii_lowercase();
    if !["image/png", "image/jpeg", "image/webp"].contains(&media_type.as_str()) {
        let detail = "send the picture itself, as image/png, image/jpeg or image/webp";
        return Err(Problem::new(Code::UnsupportedMediaType).detail(detail));
    }
    let content = read_body(request, MAX_IMAGE_BYTES, app.config.http.body_timeout).await?;
    if kind_of(&content) != Some(media_type.as_str()) {
        return Err(Problem::invalid_field("body", format_args!("is no {media_type}")));
    }
    let sale = find(&app, sale_id(&id)?).await?.id;
    let image = SaleImage { sale, media_type, content: content.to_vec(), changed_at: app.now() };
    app.store.put_sale_image(&image).await?;
    view(&app, sale).await
}

/// Show the picture of a sale
///
/// As it was put there.
#[utoipa::path(get, path = "/api/v1/sales/{sale_id}/image", operation_id = "show_sale_image", tag = "sales",
    params(("sale_id" = schema::SaleId, Path, description = "The sale")),
    responses((status = 200, description = "The picture", content(([u8] = "image/png"), ([u8] = "image/jpeg"), ([u8] = "image/webp"))),
        (status = 304, description = "The picture that you have")))]
pub async fn show_image(
    State(app): Shared,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let image = app.store.sale_image(sale_id(&id)?).await?;
    let image = image.ok_or_else(|| Problem::new(Code::NoSuchImage))?;
    let tag = HeaderValue::from_str(&format!("\"{}\"", image.changed_at.millis()))
        .map_err(|_| Problem::new(Code::Internal))?;
    if headers.get(IF_NONE_MATCH) == Some(&tag) {
        return Ok((StatusCode::NOT_MODIFIED, [(ETAG, tag)]).into_response());
    }
    let media_type =
        HeaderValue::from_str(&image.media_type).map_err(|_| Problem::new(Code::Internal))?;
    let mut response = Response::new(Body::from(image.content));
    let answer = response.headers_mut();
    answer.insert(CONTENT_TYPE, media_type);
    answer.insert(CACHE_CONTROL, FOR_A_MINUTE);
    answer.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer.insert(ETAG, tag);
    Ok(response)
}

/// Take the picture off a sale
///
/// A sale without one stays as it is.
#[utoipa::path(delete, path = "/api/v1/sales/{sale_id}/image", operation_id = "remove_sale_image", tag = "sales", security(("token" = ["admin"])),
    params(("sale_id" = schema::SaleId, Path, description = "The sale")),
    responses((status = 200, description = "What buyers read and see now", body = PageView)))]
pub async fn remove_image(
    State(app): Shared,
    _: Admin,
    Path(id): Path<String>,
    _: OptionalJson<Nothing>,
) -> Result<axum::Json<PageView>, Problem> {
    let sale = find(&app, sale_id(&id)?).await?.id;
    app.store.remove_sale_image(sale).await?;
    view(&app, sale).await
}

/// List pictures
///
/// Which sales have one.
#[utoipa::path(get, path = "/api/v1/sale-images", operation_id = "list_sale_images", tag = "sales",
    responses((status = 200, description = "The pictures", body = ImageList)))]
pub async fn list_images(State(app): Shared) -> Result<impl IntoResponse, Problem> {
    let sales = app.store.sales_with_image(MAX_LISTED).await?;
    let view = |(sale, _): (PoolId, Timestamp)| {
        let (sale_id, image) = (sale.to_string(), address(sale));
        ImageView { sale_id, image }
    };
    let images = sales.into_iter().map(view).collect();
    Ok(([(CACHE_CONTROL, "public, max-age=5")], axum::Json(ImageList { images })))
}

async fn view(app: &App, sale: PoolId) -> Result<axum::Json<PageView>, Problem> {
    let page = app.store.sale_page(sale).await?;
    let image = app.store.sale_image_changed(sale).await?;
    let written = page.as_ref().map(|page| page.changed_at);
    Ok(axum::Json(PageView {
        sale_id: sale.to_string(),
        description: page.map(|page| page.description).unwrap_or_default(),
        image: image.map(|_| address(sale)),
        changed_at: written.max(image),
    }))
}

fn address(sale: PoolId) -> String {
    format!("/api/v1/sales/{sale}/image")
}

/// What a picture is by its first bytes, whatever it is called.
fn kind_of(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}
