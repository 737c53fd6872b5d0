#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gyre/base/file.h"
#include "gyre/net/http/target.h"

// Requests and responses as values. Nothing here knows of sockets.
namespace gyre::net::http {

enum class Method : std::uint8_t { kGet, kHead, kPut, kPost, kPatch, kDelete, kOptions, kOther };

/// "GET"; kOther is "OTHER".
std::string_view method_name(Method method);
/// kOther for every word that is not one of the others; case matters.
Method parse_method(std::string_view word);

/// "Not Found"; "Unknown" for a status that has no standard phrase here.
std::string_view status_phrase(int status);

/// Letters compare without case, as in header names.
bool equal_without_case(std::string_view a, std::string_view b);

/// Header fields in their order. Names compare without case.
class Headers {
 public:
  using Field = std::pair<std::string, std::string>;

  Headers() = default;
  Headers(std::initializer_list<Field> fields);

  /// Error(kInvalidArgument) for a name that is not a token or a value with control characters: a line break in a value
  /// would begin another field.
  void add(std::string name, std::string value);
  /// Replaces all fields of that name.
  void set(std::string name, std::string value);
  /// The first field of that name.
  const std::string* find(std::string_view name) const;
  std::size_t count(std::string_view name) const;

  std::vector<Field>::const_iterator begin() const { return fields_.begin(); }
  std::vector<Field>::const_iterator end() const { return fields_.end(); }
  std::size_t size() const { return fields_.size(); }

 private:
  std::vector<Field> fields_;
};

/// Who sent a request, as the authenticator says.
struct Identity {
  std::string user{};  ///< Not empty.
  bool is_administrator = false;
};

struct Request {
  Method method = Method::kGet;  ///< kGet for HEAD too: the server leaves the body out.
  Target target;
  Headers headers{};
  std::string body{};
  /// The body of a route that asks for it as a file: without a name, at its beginning, gone when it is closed.
  UniqueFd body_file;
  std::uint64_t body_bytes = 0;  ///< Of `body` or `body_file`.
  std::string peer;              ///< "tcp:127.0.0.1:4711" or "process 4711 of user 1000": for the log.
  Identity sender{};             ///< Without a user on an open route.
  std::vector<std::pair<std::string, std::string>> parameters;  ///< Named segments of the route's pattern.
  /// What the handler runs for it: words for the server's audit, without secrets. Set by the handler.
  std::vector<std::string> command{};

  /// A named segment of the route's pattern; the segments of "{path...}" are joined by '/'. The name must be in the
  /// pattern.
  const std::string& parameter(std::string_view name) const;
  /// A parameter of the query.
  const std::string* query(std::string_view name) const;
};

/// A response's body that is made while it is sent. The server asks for the next piece when the last one has gone out,
/// so a slow reader slows the source down and costs no memory.
class BodySource {
 public:
  struct Piece {
    std::string bytes{};  ///< Empty: nothing yet; the server asks again after `wait`, or when woken.
    bool end = false;     ///< Nothing comes after `bytes`.
    std::chrono::milliseconds wait{1'000};
  };

  virtual ~BodySource() = default;

  /// About `most_bytes` (>= 1) at most. Runs on a thread of the server's pool, so it may read files, but it must not
  /// wait for something to happen. Never called twice at once. An exception ends the connection before the response is
  /// complete, which the client notices.
  virtual Piece read(std::size_t most_bytes) = 0;

  /// Asked before each read(), which is not called where this gives a piece. On the server's own thread: it must
  /// neither wait nor read files.
  virtual std::optional<Piece> read_at_hand(std::size_t most_bytes) {
    static_cast<void>(most_bytes);
    return std::nullopt;
  }

  /// Called once, before the first read(). `wake` makes the server ask again at once. It may be called by any thread,
  /// at any time, also after the source and the server are gone.
  virtual void set_wake(std::function<void()> wake) { static_cast<void>(wake); }  // NOLINT(performance-*)
};

/// Both ways over a connection that leaves HTTP: read() gives what goes to the client, whose connection ends behind it.
class Tunnel : public BodySource {
 public:
  /// What has come from the client, cut anywhere. On the server's own thread: it must not wait. An exception ends the
  /// connection. The tunnel is destroyed once it has ended.
  virtual void take(std::string_view bytes) = 0;
};

struct Response {
  int status = 200;
  Headers headers{};
  std::string body{};
  /// Sent instead of `body`: with a Content-Length where `source_bytes` says how many bytes it will give, else in
  /// chunks.
  std::shared_ptr<BodySource> source{};
  std::optional<std::uint64_t> source_bytes{};
  /// Of an answer 101, whose header Upgrade names what is spoken from there on.
  std::shared_ptr<Tunnel> tunnel{};
};

/// `json` is a JSON text.
Response json_response(int status, std::string json);

}  // namespace gyre::net::http
