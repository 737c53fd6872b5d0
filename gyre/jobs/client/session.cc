#include "gyre/jobs/client/session.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/net/http/error.h"

namespace gyre::jobs::client {

namespace {

using net::http::ClientRequest;
using net::http::ClientResponse;
using net::http::HttpError;
using net::http::Method;
using std::chrono::milliseconds;

/// A server on this host that runs accepts at once.
constexpr milliseconds kConnect{1'000};
constexpr milliseconds kShortestPause{100};
constexpr milliseconds kLongestPause{1'000};
constexpr milliseconds kUnnoticed{2'000};
constexpr int kStatusPartial = 206;
constexpr int kStatusNotFound = 404;
constexpr int kStatusRangeNotSatisfiable = 416;
constexpr int kStatusTooMany = 429;
constexpr int kStatusUnavailable = 503;

void say_away(const SessionOptions& options, const Error& error) {
  const bool answers = dynamic_cast<const HttpError*>(&error) != nullptr;
  options.say_away(fmt::format("{} at {} ({}); asks again for up to {} s, Ctrl-C ends the waiting",
                               answers ? "not now, says the job server" : "no job server answers",
                               server_text(options.connection.place), error.what(),
                               std::chrono::duration_cast<std::chrono::seconds>(options.patience).count()));
}

net::http::ClientOptions client_options(const SessionOptions& options) {
  return {.endpoint = options.connection.place.endpoint,
          .token = options.connection.token,
          .fingerprint = options.connection.place.fingerprint,
          .server_account = options.connection.server_account,
          .connect = kConnect,
          .reconnect = options.patience,
          .meanwhile = options.meanwhile,
          .lost = [options](const Error& error) { say_away(options, error); }};
}

/// Whether the server may answer when it is asked again later.
bool passes(const Error& error) {
  if (const auto* answer = dynamic_cast<const HttpError*>(&error)) {
    return answer->status() == kStatusUnavailable || answer->status() == kStatusTooMany;
  }
  return error.code() == ErrorCode::kPeerLost || error.code() == ErrorCode::kTimeout;
}

bool may_repeat(Method method) { return method != Method::kPost && method != Method::kPatch; }

}  // namespace

Path path_of(const resources::JobName& job) {
  return {"workspaces", job.workspace, "experiments", job.experiment, "jobs", job.job};
}

bool is_not_found(const Error& error) {
  const auto* answer = dynamic_cast<const HttpError*>(&error);
  return answer != nullptr && answer->status() == kStatusNotFound;
}

Session::Session(SessionOptions options) : options_(std::move(options)), client_(client_options(options_)) {}

ClientResponse Session::send(const ClientRequest& request) {
  const Deadline deadline = Deadline::after(options_.patience);
  std::optional<Deadline> unnoticed = Deadline::after(kUnnoticed);
  for (milliseconds pause = kShortestPause;; pause = std::min(pause * 2, kLongestPause)) {
    try {
      return client_.send(request);
    } catch (const Error& error) {
      const bool may_help = passes(error) && may_repeat(request.method);
      if (may_help && !deadline.passed()) {
        if (unnoticed && unnoticed->passed()) {
          unnoticed.reset();
          say_away(options_, error);
        }
        options_.meanwhile();
        ::poll(nullptr, 0, static_cast<int>(pause.count()));
        continue;
      }
      if (!passes(error) || dynamic_cast<const HttpError*>(&error) != nullptr) throw;
      throw Error(
          ErrorCode::kPeerLost,
          fmt::format("no job server answers at {} ({}); start it there with `gyre server`, or name another one "
                      "with --server",
                      server_text(options_.connection.place), error.what()));
    }
  }
}

Json Session::json_of(const ClientResponse& response) const {
  if (response.body.empty()) return {};
  Json json = Json::parse(response.body, nullptr, false);
  if (!json.is_discarded()) return json;
  throw Error(ErrorCode::kProtocol, fmt::format("what answers at {} is not a job server: it sends no JSON",
                                                server_text(options_.connection.place)));
}

Json Session::get(const Path& path, const Query& query) {
  return json_of(send({.method = Method::kGet, .target = {path, query}}));
}

std::vector<Json> Session::list(const Path& path, Query query, std::size_t most, bool* more) {
  std::vector<Json> items;
  net::http::Target target{path, std::move(query)};
  for (;;) {
    const Json page = json_of(send({.method = Method::kGet, .target = target}));
    const Json value = page.value("value", Json::array());
    for (const Json& item : value) {
      if (items.size() == most) break;
      items.push_back(item);
    }
    const auto next = page.find("nextLink");
    const bool is_last = next == page.end() || !next->is_string();
    if (more != nullptr) *more = !is_last;
    if (is_last || items.size() >= most) return items;
    target = net::http::parse_target(next->get_ref<const std::string&>());
  }
}

Json Session::put(const Path& path, const Json& body, const Query& query) {
  return json_of(
      send({.method = Method::kPut, .target = {path, query}, .body = body.is_null() ? std::string() : body.dump()}));
}

void Session::put_bytes(const Path& path, std::string bytes) {
  send({.method = Method::kPut, .target = {path, {}}, .body = std::move(bytes)});
}

Json Session::patch(const Path& path, const Json& body) {
  return json_of(send({.method = Method::kPatch, .target = {path, {}}, .body = body.dump()}));
}

Json Session::post(const Path& path, const Query& query) {
  return json_of(send({.method = Method::kPost, .target = {path, query}}));
}

std::unique_ptr<net::http::ClientTunnel> Session::tunnel(const Path& path, const Query& query,
                                                         const std::string& protocol, const Json& body) {
  return client_.tunnel({.method = Method::kPost,
                         .target = {path, query},
                         .headers = {{"Connection", "Upgrade"}, {"Upgrade", protocol}},
                         .body = body.is_null() ? "" : body.dump()});
}

void Session::remove(const Path& path) { send({.method = Method::kDelete, .target = {path, {}}}); }

bool Session::exists(const Path& path) {
  try {
    get(path);
    return true;
  } catch (const Error& error) {
    if (is_not_found(error)) return false;
    throw;
  }
}

FilePart Session::read(const Path& file, std::uint64_t from, std::uint64_t most) {
  ClientRequest request{.method = Method::kGet, .target = {file, {}}};
  request.headers.set("Range", fmt::format("bytes={}-{}", from, from + most - 1));
  try {
    ClientResponse response = send(request);
    if (response.status != kStatusPartial) {
      throw Error(ErrorCode::kProtocol, "the server sends a whole file where a part was asked for");
    }
    const std::string* version = response.headers.find("ETag");
    return {std::move(response.body), version != nullptr ? *version : ""};
  } catch (const HttpError& error) {
    if (error.status() != kStatusRangeNotSatisfiable) throw;
    return {};
  }
}

void Session::events(const Path& path, const std::function<bool(const net::http::ServerEvent&)>& sink) {
  client_.events({path, {}}, "", sink);
}

}  // namespace gyre::jobs::client
