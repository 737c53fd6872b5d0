#include <limits>
#include <memory>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/jobs/http/internal/requests.h"
#include "gyre/jobs/hub/node_stream.h"
#include "gyre/jobs/orders/byte_stream.h"
#include "gyre/net/http/message.h"

namespace gyre::jobs::http::internal {
namespace {

/// What is spoken from there on: the messages of orders/byte_stream.h.
constexpr const char* kProtocol = "gyre-stream";
/// A tunnel says when there is something to send.
constexpr std::chrono::minutes kLongestPause{1};
/// In JSON, where a byte of a word may take six.
constexpr std::uint64_t kMostCommandBytes = std::uint64_t{1} << 20;

class StreamTunnel final : public net::http::Tunnel {
 public:
  explicit StreamTunnel(std::shared_ptr<hub::NodeStream> stream) : stream_(std::move(stream)) {}

  Piece read(std::size_t most_bytes) override {
    hub::NodeStream::Piece piece = stream_->read(most_bytes);
    return {.bytes = std::move(piece.bytes), .end = piece.end, .wait = kLongestPause};
  }
  void set_wake(std::function<void()> wake) override { stream_->set_wake(std::move(wake)); }
  void take(std::string_view bytes) override { stream_->take(bytes); }

 private:
  const std::shared_ptr<hub::NodeStream> stream_;
};

Response forward(service::JobService& service, const Request& request, const resources::User& sender) {
  const service::StreamTarget target{
      .rank = static_cast<int>(number_in(request, "rank", 0, std::numeric_limits<int>::max(), 0)),
      .port = static_cast<std::uint16_t>(number_in(request, "port", 1, std::numeric_limits<std::uint16_t>::max(), 0))};
  if (target.port == 0) throw HttpError(400, "InvalidParameter", "'port' is needed", "port");
  const std::string* upgrade = request.headers.find("Upgrade");
  if (upgrade == nullptr) {
    service.check_stream(sender, job_in(request), target);
    return Response{.status = 204};
  }
  if (*upgrade != kProtocol) throw HttpError(400, "UnknownProtocol", "what is spoken here is gyre-stream", "Upgrade");
  Response response{.status = 101, .headers = {{"Upgrade", kProtocol}}};
  response.tunnel = std::make_shared<StreamTunnel>(service.open_stream(sender, job_in(request), target));
  return response;
}

/// A field of the body that is at fault. HttpError.
orders::CommandRequest command_in(const nlohmann::json& body) {
  try {
    return orders::command_request_from_json(body.at("command"));
  } catch (const nlohmann::json::exception&) {
    throw HttpError(400, "InvalidBody", "'command' is needed", "command");
  } catch (const Error& error) {
    throw HttpError(400, "InvalidBody", error.what(), "command");
  }
}

/// For people: the beginning of a long one.
std::vector<std::string> shown(service::JobService& service, const resources::JobName& job,
                               const std::vector<std::string>& words) {
  constexpr std::size_t kMostShownBytes = 4096;
  if (words.empty()) return {"(a shell)"};
  std::vector<std::string> result;
  std::size_t bytes = 0;
  for (std::string& word : service.without_secrets(job, words)) {
    bytes += word.size() + 1;
    if (bytes > kMostShownBytes) {
      result.emplace_back("…");
      break;
    }
    result.push_back(std::move(word));
  }
  return result;
}

Response shell(service::JobService& service, Request& request, const resources::User& sender) {
  const nlohmann::json body = object_in(request);
  service::StreamTarget target{
      .rank = static_cast<int>(number_in(request, "rank", 0, std::numeric_limits<int>::max(), 0)),
      .command = command_in(body)};
  if (const std::string* node = request.query("node")) {
    if (node->empty()) throw HttpError(400, "InvalidParameter", "'node' is empty", "node");
    target.node = *node;
  }
  const std::string* upgrade = request.headers.find("Upgrade");
  if (upgrade == nullptr || *upgrade != kProtocol) {
    throw HttpError(400, "UnknownProtocol", "what is spoken here is gyre-stream", "Upgrade");
  }
  const resources::JobName job = job_in(request);
  Response response{.status = 101, .headers = {{"Upgrade", kProtocol}}};
  response.tunnel = std::make_shared<StreamTunnel>(service.open_stream(sender, job, target));
  request.command = shown(service, job, target.command->words);
  return response;
}

}  // namespace

void add_stream_routes(Router& router, const Interface& interface) {
  const auto service = interface.service;
  add_in_workspace(
      router, interface, Method::kPost, "/workspaces/{workspace}/experiments/{experiment}/jobs/{job}/forward",
      [service](Request& request, const resources::User& sender) { return forward(*service, request, sender); },
      [](Route& route) { route.query = {"port", "rank"}; });
  add_in_workspace(
      router, interface, Method::kPost, "/workspaces/{workspace}/experiments/{experiment}/jobs/{job}/shell",
      [service](Request& request, const resources::User& sender) { return shell(*service, request, sender); },
      [](Route& route) {
        route.query = {"node", "rank"};
        route.body_bytes = kMostCommandBytes;
      });
}

}  // namespace gyre::jobs::http::internal
