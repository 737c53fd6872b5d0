#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/jobs/client/connection.h"
#include "gyre/jobs/resources/resources.h"
#include "gyre/net/http/client.h"

namespace gyre::jobs::client {

using Json = nlohmann::json;
/// {"workspaces", "w", "clusters"}: encoded where it is sent.
using Path = std::vector<std::string>;
using Query = std::vector<std::pair<std::string, std::string>>;

Path path_of(const resources::JobName& job);
/// {path…, more…}.
template <typename... Segments>
Path below(Path path, const Segments&... more) {
  (path.emplace_back(more), ...);
  return path;
}

struct FilePart {
  std::string bytes{};
  std::string version{};  ///< Its ETag: another one where the file has changed. Empty where `bytes` is.
};

struct SessionOptions {
  Connection connection{};
  /// For how long a stream, or a request that may be repeated, is tried again while the server is away.
  std::chrono::milliseconds patience{0};
  std::function<void()> meanwhile = [] {};  ///< As ClientOptions::meanwhile.
  /// Called once where the server has been away for two seconds and is asked further, with a sentence for the user.
  std::function<void(const std::string&)> say_away = [](const std::string&) {};
};

/// Requests to one job server, whose answers are the JSON that `http::make_router` describes. Not thread-safe. Errors
/// as of net::http::Client; where no server answers, Error(kPeerLost) says so in one sentence with the remedy.
class Session {
 public:
  explicit Session(SessionOptions options);

  Json get(const Path& path, const Query& query = {});
  /// All of a list, at most `most` items; `more`: whether there are others.
  std::vector<Json> list(const Path& path, Query query = {}, std::size_t most = SIZE_MAX, bool* more = nullptr);
  Json put(const Path& path, const Json& body = {}, const Query& query = {});
  /// Bytes that are not JSON.
  void put_bytes(const Path& path, std::string bytes);
  Json patch(const Path& path, const Json& body);
  Json post(const Path& path, const Query& query = {});
  void remove(const Path& path);
  /// False for a resource that does not exist (any more).
  bool exists(const Path& path);

  /// Bytes [from, from + most) of a file; fewer at its end, none behind it.
  FilePart read(const Path& file, std::uint64_t from, std::uint64_t most);
  /// As net::http::Client::events.
  void events(const Path& path, const std::function<bool(const net::http::ServerEvent&)>& sink);

  /// A connection of its own, on which `protocol` is spoken. Not repeated.
  std::unique_ptr<net::http::ClientTunnel> tunnel(const Path& path, const Query& query, const std::string& protocol,
                                                  const Json& body = {});

  const SessionOptions& options() const { return options_; }

 private:
  net::http::ClientResponse send(const net::http::ClientRequest& request);
  Json json_of(const net::http::ClientResponse& response) const;

  SessionOptions options_;
  net::http::Client client_;
};

/// Whether the server said 404.
bool is_not_found(const Error& error);

}  // namespace gyre::jobs::client
