#include "gyre/page/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "gyre/net/http/error.h"

namespace gyre::page {

namespace {

using net::http::Client;
using net::http::ClientOptions;
using net::http::ClientRequest;
using net::http::ClientResponse;
using net::http::HttpError;
using net::http::Method;
using net::http::Request;
using net::http::Response;

constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kMostBodyBytes = std::uint64_t{4} << 20;
constexpr std::string_view kEventStream = "text/event-stream";

std::string range_of(std::uint64_t from, std::uint64_t bytes) {
  return fmt::format("bytes={}-{}", from, from + bytes - 1);
}

/// The size in "bytes 0-9/100".
std::optional<std::uint64_t> size_in(const ClientResponse& response) {
  const std::string* range = response.headers.find("Content-Range");
  if (response.status != 206 || range == nullptr) return std::nullopt;
  const std::size_t slash = range->find('/');
  if (slash == std::string::npos) return std::nullopt;
  std::uint64_t size = 0;
  const char* const end = range->data() + range->size();
  const auto parsed = std::from_chars(range->data() + slash + 1, end, size);
  return parsed.ec == std::errc() && parsed.ptr == end ? std::optional(size) : std::nullopt;
}

ClientResponse ask(Client& client, const ClientRequest& request) {
  try {
    return client.send(request);
  } catch (const HttpError&) {
    throw;
  } catch (const Error& error) {
    throw HttpError(502, "ServerAway", fmt::format("the job server does not answer: {}", error.what()));
  }
}

/// The rest of a file of which the first piece has come. As long as it does not change: another size or version ends
/// the answer before it is complete.
class FileRest : public net::http::BodySource {
 public:
  FileRest(ClientOptions server, ClientRequest request, std::string first, std::uint64_t size)
      : client_(std::move(server)), request_(std::move(request)), piece_(std::move(first)), size_(size) {}

  Piece read(std::size_t) override {
    if (piece_.empty()) {
      request_.headers.set("Range", range_of(sent_, std::min(kPieceBytes, size_ - sent_)));
      ClientResponse response = client_.send(request_);
      if (size_in(response) != size_) throw Error(ErrorCode::kCorruptData, "a file has changed while it was sent");
      piece_ = std::move(response.body);
    }
    sent_ += piece_.size();
    return {.bytes = std::exchange(piece_, {}), .end = sent_ >= size_};
  }

 private:
  Client client_;
  ClientRequest request_;
  std::string piece_;
  std::uint64_t size_;
  std::uint64_t sent_ = 0;
};

ClientRequest request_for(const Request& request, std::size_t prefix_segments) {
  ClientRequest forwarded{.method = request.method, .target = request.target, .body = request.body};
  auto& segments = forwarded.target.segments;
  segments.erase(segments.begin(), segments.begin() + static_cast<std::ptrdiff_t>(prefix_segments));
  for (const char* name : {"Content-Type", "Range", "If-None-Match", "If-Range"}) {
    if (const std::string* value = request.headers.find(name)) forwarded.headers.add(name, *value);
  }
  return forwarded;
}

Response forward(const ClientOptions& server, Request& request, std::size_t prefix_segments) {
  const std::string* accept = request.headers.find("Accept");
  if (request.query("follow") != nullptr || (accept != nullptr && accept->find(kEventStream) != std::string::npos)) {
    throw HttpError(400, "NoStreams", "this door passes no streams on; ask again instead");
  }
  ClientRequest forwarded = request_for(request, prefix_segments);
  const bool is_whole = request.method == Method::kGet && request.headers.find("Range") == nullptr;
  if (is_whole) forwarded.headers.add("Range", range_of(0, kPieceBytes));  // Only files have ranges.
  Client client(server);
  ClientResponse answered = ask(client, forwarded);
  Response response{.status = answered.status};
  for (const char* name : {"Content-Type", "ETag", "Retry-After", "Accept-Ranges"}) {
    if (const std::string* value = answered.headers.find(name)) response.headers.add(name, *value);
  }
  const auto size = size_in(answered);
  if (is_whole && size) {
    response.status = 200;
    response.source = std::make_shared<FileRest>(server, std::move(forwarded), std::move(answered.body), *size);
    response.source_bytes = size;
    return response;
  }
  if (const std::string* range = answered.headers.find("Content-Range")) response.headers.add("Content-Range", *range);
  response.body = std::move(answered.body);
  return response;
}

}  // namespace

void add_forwarding(net::http::Router& router, const std::string& prefix, const ClientOptions& server,
                    const Guard& guard) {
  const auto prefix_segments = static_cast<std::size_t>(std::ranges::count(prefix, '/'));
  const net::http::Handler handler =
      guard([server, prefix_segments](Request& request) { return forward(server, request, prefix_segments); });
  for (const Method method : {Method::kGet, Method::kPut, Method::kPost, Method::kDelete}) {
    for (const std::string& pattern : {prefix, prefix + "/{path...}"}) {
      router.add({.method = method,
                  .pattern = pattern,
                  .handler = handler,
                  .query = {"after", "axis", "cluster", "code", "directory", "experiment", "force", "from", "hours",
                            "maxresults", "name", "names", "order", "outputdirectoryid", "state", "strict", "to"},
                  .body_bytes = method == Method::kPut || method == Method::kPost ? kMostBodyBytes : 0,
                  .open = true});
    }
  }
}

}  // namespace gyre::page
