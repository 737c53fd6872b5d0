#include <limits>
#include <memory>
#include <utility>

#include "gyre/jobs/http/internal/requests.h"
#include "gyre/jobs/hub/node_stream.h"
#include "gyre/net/http/message.h"

namespace gyre::jobs::http::internal {
namespace {

/// What is spoken from there on: the messages of orders/byte_stream.h.
constexpr const char* kProtocol = "gyre-stream";
/// A tunnel says when there is something to send.
constexpr std::chrono::minutes kLongestPause{1};

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

}  // namespace

void add_stream_routes(Router& router, const Interface& interface) {
  const auto service = interface.service;
  add_in_workspace(
      router, interface, Method::kPost, "/workspaces/{workspace}/experiments/{experiment}/jobs/{job}/forward",
      [service](Request& request, const resources::User& sender) { return forward(*service, request, sender); },
      [](Route& route) { route.query = {"port", "rank"}; });
}

}  // namespace gyre::jobs::http::internal
