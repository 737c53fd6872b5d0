#include "gyre/page/access.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "gyre/base/random.h"
#include "gyre/net/http/error.h"

namespace gyre::page {

namespace {

using net::http::Handler;
using net::http::HttpError;
using net::http::Request;
using net::http::Response;

constexpr std::string_view kHead =
    "<!doctype html><html lang=\"en\"><title>Gyre</title><link rel=\"icon\" href=\"/icon.svg\">";
/// Of the page itself, below its place.
constexpr std::string_view kPage = "page";
/// The page (main.tsx) notes its place where only scripts of its own origin can read it, which no other port is.
constexpr std::string_view kBack = R"(const place = localStorage.getItem("gyre-page") ?? "";
if (/^\/[0-9a-f]{48}\/page$/.test(place)) location.replace(place + location.hash);
)";
constexpr std::string_view kNotHere = "this browser has not been let in; open the link that `gyre` has printed";
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

std::string random_secret() {
  std::array<std::byte, 24> bytes{};
  fill_with_secure_random(bytes);
  std::string text;
  for (const std::byte each : bytes) text += fmt::format("{:02x}", std::to_integer<unsigned>(each));
  return text;
}

/// Takes the same time whatever differs.
bool is_same(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

/// The host of "localhost:8000" and "[::1]:8000"; empty where something else stands behind it.
std::string_view host_of(std::string_view authority) {
  const std::size_t end = authority.starts_with('[') ? authority.find(']') + 1 : authority.find(':');
  const std::string_view host = authority.substr(0, end);
  const std::string_view port = authority.substr(host.size());
  const bool is_port = port.empty() || (port.starts_with(':') && port.find_first_not_of("0123456789", 1) == port.npos);
  return is_port ? host : std::string_view();
}

/// A browser that fetches what its user may open next.
bool is_ahead(const Request& request) {
  const std::string* purpose = request.headers.find("Sec-Purpose");
  return purpose != nullptr && purpose->starts_with("prefetch");
}

/// The ports are not compared: ssh may forward another one of this machine to ours.
void check_host(const Request& request) {
  const std::string* host = request.headers.find("Host");
  const std::string_view name = host == nullptr ? std::string_view() : host_of(*host);
  if (name == "127.0.0.1" || name == "localhost" || name == "[::1]") return;
  throw HttpError(403, "ForeignHost", "this page is at 127.0.0.1 and localhost only");
}

void check_site(const Request& request) {
  const std::string* site = request.headers.find("Sec-Fetch-Site");
  const std::string* origin = request.headers.find("Origin");
  const std::string* host = request.headers.find("Host");
  const bool is_ours = (site == nullptr || *site == "same-origin" || *site == "none") &&
                       (origin == nullptr || (host != nullptr && *origin == "http://" + *host));
  if (!is_ours) throw HttpError(403, "CrossSiteRequest", "another site has caused this request");
}

std::optional<std::string_view> cookie_in(const Request& request, std::string_view name) {
  const std::string* header = request.headers.find("Cookie");
  std::string_view rest = header == nullptr ? std::string_view() : *header;
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find(';'));
    rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
    while (rest.starts_with(' ')) rest.remove_prefix(1);
    const std::size_t equals = pair.find('=');
    if (equals != std::string_view::npos && pair.substr(0, equals) == name) return pair.substr(equals + 1);
  }
  return std::nullopt;
}

}  // namespace

Access::Access(std::string cookie) : cookie_(std::move(cookie)), secret_(random_secret()), place_(random_secret()) {}

std::string Access::new_link() {
  std::string secret = random_secret();
  const MutexLock lock(mutex_);
  if (links_.size() == kMostLinks) links_.pop_front();
  links_.push_back(secret);
  return "/open/" + secret;
}

void Access::check(const Request& request) const {
  check_host(request);
  check_site(request);
  const auto cookie = cookie_in(request, cookie_);
  const bool is_here = is_same(request.parameter("place"), place_);
  if (is_here && cookie && is_same(*cookie, secret_)) return;
  throw HttpError(401, "NoCookie", std::string(kNotHere));
}

Handler Access::guarded(Handler handler) const {
  return [this, handler = std::move(handler)](Request& request) {
    check(request);
    return protect(handler(request));
  };
}

Response Access::open(const Request& request) {
  check_host(request);
  if (is_ahead(request)) throw HttpError(503, "NotAhead", "a link works once: it is for the one who opens it");
  // A HEAD request comes from a program that looks whether a link is one.
  const bool is_used = request.method != net::http::Method::kHead;
  bool is_known = false;
  {
    const MutexLock lock(mutex_);
    const auto found = std::ranges::find_if(
        links_, [&](const std::string& link) { return is_same(link, request.parameter("secret")); });
    is_known = found != links_.end();
    if (is_known && is_used) links_.erase(found);
  }
  Response response;
  response.headers.add("Content-Type", "text/html; charset=utf-8");
  if (is_known && is_used) {
    response.headers.add("Set-Cookie",
                         fmt::format("{}={}; Path=/{}; HttpOnly; SameSite=Strict", cookie_, secret_, place_));
    // The page asks for itself: after a redirect from another site's link the browser would keep the cookie back.
    response.body =
        fmt::format("{0}<meta http-equiv=\"refresh\" content=\"0;url=/{1}/{2}\"><p><a href=\"/{1}/{2}\">The page</a>",
                    kHead, place_, kPage);
  } else if (!is_known) {
    response.status = 403;
    response.body = fmt::format(
        "{}<h1>This link has been used, or is not whole</h1><p>Each link works once. If that was in this browser, <a "
        "href=\"/\">the "
        "page</a> is open to it. For another browser, ask the page for a new link.",
        kHead);
  }
  return protect(std::move(response));
}

void Access::add_entry_routes(net::http::Router& router) {
  const auto add = [&router](const char* pattern, Handler handler) {
    router.add({.method = net::http::Method::kGet, .pattern = pattern, .handler = std::move(handler), .open = true});
  };
  const auto answer = [](int status, std::string_view type, std::string body) {
    Response response{.status = status};
    response.headers.add("Content-Type", fmt::format("{}; charset=utf-8", type));
    response.body = std::move(body);
    return protect(std::move(response));
  };
  add("/open/{secret}", [this](Request& request) { return open(request); });
  add("/", [answer](Request& request) {
    check_host(request);
    return answer(401, "text/html",
                  fmt::format("{}<h1>Not this way</h1><p>{}.<script src=\"/back.js\"></script>", kHead, kNotHere));
  });
  add("/back.js", [answer](Request&) { return answer(200, "text/javascript", std::string(kBack)); });
}

net::http::Route Access::new_link_route(std::string_view pattern) {
  return {.method = net::http::Method::kPost,
          .pattern = fmt::format("{}{}", kPlace, pattern),
          .handler = guarded([this](Request&) {
            return net::http::json_response(200, fmt::format("{{\"path\": \"{}\"}}", new_link()));
          }),
          .open = true};
}

Response protect(Response response) {
  response.headers.set("Content-Security-Policy", std::string(kPolicy));
  response.headers.set("Cache-Control", "no-store");
  response.headers.set("Referrer-Policy", "no-referrer");
  response.headers.set("Cross-Origin-Opener-Policy", "same-origin");
  response.headers.set("Cross-Origin-Resource-Policy", "same-origin");
  return response;
}

}  // namespace gyre::page
