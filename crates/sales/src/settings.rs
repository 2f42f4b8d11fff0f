//! `[payments]`: how money is announced.

use std::time::Duration;

use qiang_app::Config;
use qiang_app::config::Layers;
use qiang_app::secrets::{KEY_BYTES, Secret};

use crate::checkout::Template;

/// What the operator decided about payments.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Whether orders can be paid without money. Unless told, only on a machine of one's own.
    pub sandbox: bool,
    /// The key of callbacks, shared with the provider; otherwise from the secrets file.
    pub callback_secret: Option<Secret>,
    /// How far a callback's timestamp may be from our clock.
    pub callback_window: Duration,
    /// The payment provider's page, if buyers are sent to one.
    pub checkout_url: Option<Template>,
}

impl Settings {
    /// Takes this domain's part of the configuration.
    pub fn take(layers: &mut Layers, config: &Config) -> Self {
        let checkout_url = layers.text("payments.checkout_url", "", Template::read);
        let own_machine = config.http.is_of_own_machine() && checkout_url.is_none();
        let taken = Self {
            sandbox: layers.switch("payments.sandbox", own_machine),
            callback_secret: layers.secret("payments.callback_secret", KEY_BYTES),
            callback_window: layers.seconds("payments.callback_window_secs", 300, 1..=86_400),
            checkout_url,
        };
        if taken.sandbox && taken.checkout_url.is_some() {
            layers.fault(
                "payments.sandbox",
                "is on beside `payments.checkout_url`: buyers could pay without money",
                "leave out one of the two",
            );
        }
        // Whoever sends callbacks must not be able to issue tokens.
        let jwt_secret = &config.auth.jwt_secret;
        if jwt_secret.is_some() && *jwt_secret == taken.callback_secret {
            layers.fault(
                "payments.callback_secret",
                "is the same as `auth.jwt_secret`, so the payment provider could issue tokens",
                "use another",
            );
        }
        if taken.checkout_url.is_some() && config.http.public_origin.is_none() {
            layers.fault(
                "payments.checkout_url",
                "needs `http.public_origin`, so that the provider knows where to send buyers back to",
                "write where browsers find the pages, like https://shop.example",
            );
        }
        taken
    }
}
