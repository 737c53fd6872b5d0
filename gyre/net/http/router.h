#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/net/http/message.h"

namespace gyre::net::http {

/// Answers a request or throws (as_http_error() says what becomes of it). Runs on a thread of the server's pool,
/// several at once.
using Handler = std::function<Response(Request&)>;

struct Route {
  Method method = Method::kGet;
  /// "/workspaces/{workspace}/files/{path...}": literal segments, named ones, and as the last one perhaps the name of
  /// all that remains (at least one segment).
  std::string pattern;
  Handler handler;
  /// Names that the query may have; any other is refused.
  std::vector<std::string> query{};
  /// The longest body; 0: none is taken.
  std::uint64_t body_bytes = 0;
  /// The body comes as Request::body_file instead of Request::body.
  bool body_to_file = false;
  /// Asked before a body is read, with the most bytes that it may have: an HttpError refuses the request. The answer is
  /// destroyed when the request has been handled. Runs like the handler. Empty: every body is welcome.
  std::function<std::shared_ptr<void>(const Request& head, std::uint64_t most_bytes)> admit{};
  /// Served without a token.
  bool open = false;
};

/// A table of routes. Immutable once the server has it.
class Router {
 public:
  /// The first route that matches wins. A pattern that is not well formed is a bug (GYRE_CHECK).
  void add(Route route);

  struct Match {
    const Route* route = nullptr;  ///< Null: no such path, or not with this method.
    std::vector<std::pair<std::string, std::string>> parameters;
    std::vector<Method> allowed;  ///< When the path exists, but not with this method.
  };
  /// kHead finds the routes of kGet.
  Match find(Method method, const Target& target) const;

  /// Every route, in order: for tables of tests and documentation.
  const std::vector<Route>& routes() const { return routes_; }

 private:
  std::vector<Route> routes_;
  std::vector<std::vector<std::string>> patterns_;
};

}  // namespace gyre::net::http
