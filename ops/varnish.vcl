# Varnish 7 in front of qiang. Pages and scripts come from the cache, also for a while when qiang does
# not answer; of many who want the same page at once one asks qiang. Claims, orders, payments and
# everything else about one buyer go through untouched.
vcl 4.1;

import std;

backend default {
    .host = "127.0.0.1";
    .port = "8080";
    # Longer than http.request_timeout_ms: qiang says itself when it does not know an outcome.
    .first_byte_timeout = 20s;
    .between_bytes_timeout = 20s;
    .probe = {
        .url = "/healthz";
        .interval = 1s;
        .timeout = 1s;
        .window = 4;
        .threshold = 2;
        .initial = 2;
    }
}

sub vcl_recv {
    # For operators, at http.health_listen.
    if (req.url ~ "^/(metrics|healthz|readyz)(\?|$)") {
        return (synth(404));
    }
    if (req.method != "GET" && req.method != "HEAD") {
        return (pass);
    }
    # While qiang answers, a page is at most a minute older than it says.
    if (std.healthy(req.backend_hint)) {
        set req.grace = 60s;
    }
    if (req.url ~ "^/api/") {
        # The same for everybody, and qiang says for how long.
        if (req.url ~ "^/api/v1/(sales|sales/[0-9]+|sales/[0-9]+/(page|image)|sale-images)(\?|$)") {
            return (hash);
        }
        return (pass);
    }
    # Pages and scripts do not look at cookies.
    unset req.http.Cookie;
    return (hash);
}

sub vcl_backend_response {
    # A page that could not be made anew does not take the place of the old one.
    if (beresp.status >= 500 && bereq.is_bgfetch) {
        return (abandon);
    }
    # Nothing is kept that qiang does not say to keep.
    if (beresp.http.Set-Cookie || beresp.http.Cache-Control !~ "(?i)max-age") {
        set beresp.uncacheable = true;
        set beresp.ttl = 0s;
        return (deliver);
    }
    if (bereq.url ~ "^/api/") {
        # What is left is of this second.
        set beresp.grace = 1s;
    } else {
        # stale-if-error, for when qiang does not answer; vcl_recv bounds it while it does.
        set beresp.grace = 24h;
    }
}

sub vcl_deliver {
    if (obj.hits > 0) {
        set resp.http.X-Cache = "HIT";
    } else {
        set resp.http.X-Cache = "MISS";
    }
    unset resp.http.Via;
    unset resp.http.X-Varnish;
}
