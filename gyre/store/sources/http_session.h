#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/store/sources/source.h"

namespace gyre::store {

struct HttpRequest {
  std::string method = "GET";
  std::string url;                                   ///< May hold a secret: never shown.
  std::vector<std::string> headers{};                ///< "name: value".
  std::optional<std::span<const std::byte>> body{};  ///< Of a PUT or a POST; not owned.
};

struct HttpReply {
  int status = 0;
  std::map<std::string, std::string, std::less<>> headers{};  ///< Names in small letters, values trimmed.

  /// Empty where there is none.
  std::string_view header(std::string_view name) const;
  /// "Content-Length" of a HEAD, or of a reply with its body; nothing where it is not a number.
  std::optional<std::uint64_t> length() const;
};

/// Requests over one connection that is kept open between them (libcurl, which is loaded here). Never decodes a body:
/// lengths and checksums are those of stored bytes. Certificates are checked. Not thread-safe.
class HttpSession {
 public:
  /// Gets the body piece by piece, with what came before it; returns how many bytes of the piece it takes: fewer end
  /// the transfer.
  using Body = std::function<std::size_t(const HttpReply&, std::span<const std::byte>)>;

  /// What came of a request: a reply (which may be a refusal), or none that is whole.
  struct Result {
    HttpReply reply{};
    std::optional<Setback> setback{};  ///< The connection failed, or stalled.
    bool cut = false;                  ///< `body` took fewer bytes than came.
  };

  /// `source` is named in errors.
  HttpSession(std::string source, const ReadLimits& limits);
  ~HttpSession();
  HttpSession(const HttpSession&) = delete;
  HttpSession& operator=(const HttpSession&) = delete;

  /// Error: kInvalidArgument (a URL that libcurl cannot read), kAuthentication (a certificate), kAborted.
  Result perform(const HttpRequest& request, const Body& body);

 private:
  struct Handle;
  struct Transfer;

  std::string source_;
  ReadLimits limits_;
  std::unique_ptr<Handle> handle_;
};

/// What a reply with an error's status means: a Setback, or Error thrown with `what`, the status and `detail` (what the
/// server says of it): kNotFound for 404 and 410, kAuthentication for 401 and 403, kUnsupported for 405 and 501,
/// kCorruptData for 412 (it has changed), kInvalidArgument for the rest.
Setback setback_of(const HttpReply& reply, const std::string& what, const std::string& detail);

/// A whole reply, tried again for as long as `patience` with growing waits. Error as perform() and setback_of(), and
/// kResourceExhausted for more than `limit_bytes`.
struct WholeReply {
  HttpReply reply;
  Bytes body;
};
WholeReply fetch_whole(HttpSession& session, const std::function<HttpRequest()>& request, const std::string& what,
                       const std::function<std::string(const WholeReply&)>& detail, std::uint64_t limit_bytes,
                       const ReadLimits& limits, std::chrono::milliseconds patience);

/// The reading of a range that all servers of HTTP answer alike: checks that it is the range that was asked for, and of
/// the object that was listed. `request` is complete but for the range. `detail` as for fetch_whole().
ReadOutcome read_range(HttpSession& session, HttpRequest request, const std::string& what, const Object& object,
                       std::uint64_t offset_bytes, std::span<std::byte> into,
                       const std::function<std::string(const WholeReply&)>& detail);

}  // namespace gyre::store
