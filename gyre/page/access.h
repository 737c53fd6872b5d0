#pragma once

#include <deque>
#include <string>
#include <string_view>

#include "gyre/base/thread_annotations.h"
#include "gyre/net/http/router.h"

namespace gyre::page {

/// Lets a browser in that has followed a link which this program has printed, and nobody else: the link works once,
/// leaves a cookie behind, and leads to an address with a secret of its own, without which the cookie opens nothing and
/// to which alone browsers send it. (They send cookies to all ports of a host, where others may listen: ADR 144.)
/// Requests that other sites have caused are refused, and those for names that are not this machine's (DNS rebinding).
/// Thread-safe.
class Access {
 public:
  /// What the patterns of guarded() routes begin with.
  static constexpr std::string_view kPlace = "/{place}";

  /// `cookie`: its name.
  explicit Access(std::string cookie);

  /// "/open/SECRET". Of links that nobody has used, the newest kMostLinks work.
  std::string new_link() GYRE_EXCLUDES(mutex_);
  static constexpr std::size_t kMostLinks = 16;

  /// The routes behind such links, and "/", which leads a browser that has been let in back to the page.
  void add_entry_routes(net::http::Router& router);
  /// POST kPlace + `pattern`, for those who may: {"path": new_link()}.
  net::http::Route new_link_route(std::string_view pattern);
  /// The handler for those who may: HttpError(401, 403) for others.
  net::http::Handler guarded(net::http::Handler handler) const;

 private:
  void check(const net::http::Request& request) const;
  net::http::Response open(const net::http::Request& request) GYRE_EXCLUDES(mutex_);

  std::string cookie_;
  std::string secret_;  ///< The cookie's value.
  std::string place_;   ///< The first segment of the page's address.
  Mutex mutex_;
  std::deque<std::string> links_ GYRE_GUARDED_BY(mutex_);
};

/// A response with what every answer of the page carries: nothing is cached, framed, sniffed, or run that is not ours.
net::http::Response protect(net::http::Response response);

}  // namespace gyre::page
