#include "gyre/net/http/client.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/net/http/error.h"
#include "gyre/net/http/internal/client_connection.h"
#include "gyre/net/http/internal/response_parser.h"
#include "gyre/net/http/utf8.h"

namespace gyre::net::http {
namespace {

using internal::ClientConnection;
using internal::ResponseParser;

constexpr std::chrono::milliseconds kShortestPause{100};
constexpr std::chrono::milliseconds kLongestPause{2'000};
constexpr std::chrono::milliseconds kUnnoticed{2'000};
constexpr std::uint64_t kMostErrorBytes = 1 << 20;
constexpr std::size_t kSentAtOnce = 262'144;

/// The receiver of events wants no more.
struct StreamEnough {};

bool may_repeat(Method method) { return method != Method::kPost && method != Method::kPatch; }

/// Whether trying again later can help.
bool passes(const Error& error) {
  if (const auto* answer = dynamic_cast<const HttpError*>(&error))
    return answer->status() == 503 || answer->status() == 429;
  return error.code() == ErrorCode::kPeerLost || error.code() == ErrorCode::kTimeout;
}

std::uint64_t size_of(const UniqueFd& file) {
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) throw system_error("looking at a file to send", errno);
  return static_cast<std::uint64_t>(status.st_size);
}

std::string host_of(const Endpoint& endpoint) {
  if (endpoint.kind == Endpoint::Kind::kUnix) return "localhost";
  const std::string text = to_string(endpoint);
  return text.substr(text.find(':') + 1);
}

void pause(std::chrono::milliseconds duration, const std::function<void()>& meanwhile) {
  for (const Deadline end = Deadline::after(duration); !end.passed();) {
    meanwhile();
    ::poll(nullptr, 0, end.poll_timeout_ms(100));
  }
}

/// Until when a lost stream is tried for again, and how long to wait before the next time.
class Patience {
 public:
  explicit Patience(const ClientOptions& options) : options_(options) {}

  void heard_something() {
    deadline_.reset();
    unnoticed_.reset();
    pause_ = kShortestPause;
  }
  /// Throws `failure` when there is no point in going on.
  void wait_after(const Error& failure, std::optional<std::chrono::milliseconds> asked = std::nullopt) {
    if (!deadline_) {
      deadline_ = Deadline::after(options_.reconnect);
      unnoticed_ = Deadline::after(kUnnoticed);
    }
    if (deadline_->passed()) {
      throw Error(failure.code(), fmt::format("the stream from {} was lost and does not come back: {}",
                                              to_string(options_.endpoint), failure.what()));
    }
    if (unnoticed_ && unnoticed_->passed()) {
      unnoticed_.reset();
      options_.lost(failure);
    }
    pause(asked.value_or(pause_), options_.meanwhile);
    pause_ = std::min(pause_ * 2, kLongestPause);
  }

 private:
  const ClientOptions& options_;
  std::optional<Deadline> deadline_;
  std::optional<Deadline> unnoticed_;  // Until the loss is to be said.
  std::chrono::milliseconds pause_ = kShortestPause;
};

class OpenTunnel final : public ClientTunnel {
 public:
  OpenTunnel(ClientConnection connection, std::string come, std::chrono::milliseconds silence)
      : connection_(std::move(connection)), come_(std::move(come)), silence_(silence) {}

  int fd() const override { return connection_.fd(); }
  bool has_more() const override { return !come_.empty() || connection_.has_more(); }
  bool read(std::string& buffer) override {
    if (come_.empty()) return connection_.read(buffer, Deadline::never());
    buffer += std::exchange(come_, {});
    return true;
  }
  void write(std::string_view bytes) override { connection_.write(bytes, Deadline::after(silence_)); }

 private:
  ClientConnection connection_;
  std::string come_;  // With the head.
  const std::chrono::milliseconds silence_;
};

}  // namespace

class Client::Impl {
 public:
  explicit Impl(ClientOptions options) : options_(std::move(options)) {}

  /// Into the answer's body without a sink.
  ClientResponse exchange(const ClientRequest& request, const Sink* sink) {
    if (connection_ && !connection_->usable()) connection_.reset();
    const bool kept = connection_.has_value();
    try {
      heard_something_ = false;
      return exchange_once(request, sink);
    } catch (const Error& error) {
      connection_.reset();
      const bool stale = kept && !heard_something_ && error.code() == ErrorCode::kPeerLost;
      if (!stale || !may_repeat(request.method)) throw;
    } catch (...) {
      connection_.reset();
      throw;
    }
    try {
      return exchange_once(request, sink);
    } catch (...) {
      connection_.reset();
      throw;
    }
  }

  std::unique_ptr<ClientTunnel> tunnel(const ClientRequest& request) {
    constexpr std::string_view kSwitching = "HTTP/1.1 101 ";
    constexpr std::string_view kHeadEnd = "\r\n\r\n";
    connection_.emplace(options_);
    write(request);
    std::string buffer;
    const auto may_switch = [&] { return buffer.starts_with(kSwitching.substr(0, buffer.size())); };
    while (may_switch() && buffer.find(kHeadEnd) == std::string::npos) {
      if (buffer.size() > ResponseParser::kMostHeaderBytes) throw Error(ErrorCode::kProtocol, "the head is too long");
      if (!connection_->read(buffer, Deadline::after(options_.silence))) {
        throw Error(ErrorCode::kPeerLost, "the server closed the connection");
      }
    }
    if (!may_switch()) {
      read_response(request, nullptr, std::move(buffer));
      throw Error(ErrorCode::kProtocol, "the server does not open such a connection");
    }
    buffer.erase(0, buffer.find(kHeadEnd) + kHeadEnd.size());
    auto tunnel = std::make_unique<OpenTunnel>(std::move(*connection_), std::move(buffer), options_.silence);
    connection_.reset();
    return tunnel;
  }

  const ClientOptions& options() const { return options_; }

 private:
  ClientResponse exchange_once(const ClientRequest& request, const Sink* sink) {
    if (!connection_) connection_.emplace(options_);
    std::optional<Error> unsent;
    try {
      write(request);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kPeerLost) throw;
      unsent.emplace(error.code(), error.what());  // The server may have said why it reads no further.
    }
    try {
      return read_response(request, sink);
    } catch (const Error& error) {
      if (unsent && error.code() == ErrorCode::kPeerLost) throw Error(*unsent);
      throw;
    }
  }

  void write(const ClientRequest& request) {
    const std::uint64_t body_bytes = request.body_file ? size_of(*request.body_file) : request.body.size();
    std::string head = fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\n", method_name(request.method),
                                   to_string(request.target), host_of(options_.endpoint));
    if (!options_.token.empty()) {
      Headers checked;
      checked.add("Authorization", "Bearer " + options_.token);
      head += fmt::format("Authorization: {}\r\n", *checked.find("Authorization"));
    }
    for (const auto& [name, value] : request.headers) head += fmt::format("{}: {}\r\n", name, value);
    if (body_bytes > 0 || request.method == Method::kPut || request.method == Method::kPost) {
      head += fmt::format("Content-Length: {}\r\n", body_bytes);
    }
    head += "\r\n";
    connection_->write(head, Deadline::after(options_.silence));
    if (request.body_file) {
      write_file(*request.body_file, body_bytes);
    } else {
      connection_->write(request.body, Deadline::after(options_.silence));
    }
  }

  void write_file(const UniqueFd& file, std::uint64_t bytes) {
    std::string piece;
    for (std::uint64_t sent = 0; sent < bytes; sent += piece.size()) {
      piece.resize(std::min<std::uint64_t>(kSentAtOnce, bytes - sent));
      const ssize_t count = ::pread(file.get(), piece.data(), piece.size(), static_cast<off_t>(sent));
      if (count < 0) throw system_error("reading a file to send", errno);
      if (count == 0) throw Error(ErrorCode::kIo, "a file became shorter while it was sent");
      piece.resize(static_cast<std::size_t>(count));
      connection_->write(piece, Deadline::after(options_.silence));
    }
  }

  /// `buffer`: what has come of it already.
  ClientResponse read_response(const ClientRequest& request, const Sink* sink, std::string buffer = {}) {
    auto parser = std::make_unique<ResponseParser>(request.method == Method::kHead);
    ClientResponse response;
    bool has_head = false;
    for (;;) {
      const std::size_t consumed = buffer.empty() ? 0 : parser->put(buffer);
      buffer.erase(0, consumed);
      if (parser->head_done() && parser->status() / 100 == 1) {  // 100 Continue: the response is still to come.
        parser = std::make_unique<ResponseParser>(request.method == Method::kHead);
        continue;
      }
      if (parser->head_done() && !std::exchange(has_head, true)) {
        response.status = parser->status();
        response.headers = std::move(parser->headers());
      }
      if (has_head) take_body(parser->take_body(), response, sink);
      if (parser->done()) break;
      if (consumed > 0) continue;
      if (!buffer.empty() && buffer.size() > 2 * ResponseParser::kMostHeaderBytes) {
        throw Error(ErrorCode::kProtocol, "the server's response cannot be read: a chunk's header is too long");
      }
      // A stream is silent while there is nothing to say; a broken connection is noticed all the same.
      const bool streams = has_head && sink != nullptr && response.status < 400;
      if (connection_->read(buffer, streams ? Deadline::never() : Deadline::after(options_.silence))) {
        heard_something_ = true;
      } else {
        parser->put_end();
      }
    }
    if (!parser->keep_alive() || !buffer.empty()) connection_.reset();
    throw_error_of(response);
    return response;
  }

  void take_body(const std::string& bytes, ClientResponse& response, const Sink* sink) const {
    if (bytes.empty()) return;
    if (sink != nullptr && response.status < 400) return (*sink)(bytes);
    const std::uint64_t most = response.status < 400 ? options_.most_body_bytes : kMostErrorBytes;
    if (response.body.size() + bytes.size() > most) {
      throw Error(ErrorCode::kResourceExhausted, fmt::format("the server's response is larger than {} bytes", most));
    }
    response.body += bytes;
  }

  static void throw_error_of(const ClientResponse& response) {
    if (response.status < 400) return;
    HttpError error = parse_error_body(response.status, response.body);
    for (const auto& [name, value] : response.headers) error.headers.add(name, value);
    throw error;
  }

  ClientOptions options_;
  std::optional<ClientConnection> connection_;
  bool heard_something_ = false;
};

Client::Client(ClientOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Client::~Client() = default;
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;

ClientResponse Client::send(const ClientRequest& request) { return impl_->exchange(request, nullptr); }
ClientResponse Client::stream(const ClientRequest& request, const Sink& sink) {
  return impl_->exchange(request, &sink);
}

std::unique_ptr<ClientTunnel> Client::tunnel(const ClientRequest& request) { return impl_->tunnel(request); }

std::uint64_t Client::follow(const Target& file, std::uint64_t offset, const Sink& sink) {
  Patience patience(impl_->options());
  std::string unfinished;  // The beginning of a character.
  const Sink pass_on = [&](std::string_view bytes) {
    patience.heard_something();
    offset += bytes.size();
    unfinished += bytes;
    const std::size_t whole = whole_characters(unfinished);
    if (whole == 0) return;
    sink(std::string_view(unfinished).substr(0, whole));
    unfinished.erase(0, whole);
  };
  for (;;) {
    ClientRequest request{.target = file};
    request.target.query.emplace_back("follow", "true");
    request.target.query.emplace_back("offset", fmt::format("{}", offset));
    std::optional<Error> lost;
    try {
      impl_->exchange(request, &pass_on);
    } catch (const Error& error) {
      if (!passes(error)) throw;
      lost.emplace(error.code(), error.what());
    }
    if (!lost) break;
    patience.wait_after(*lost);
  }
  if (!unfinished.empty()) sink(unfinished);
  return offset;
}

void Client::events(const Target& target, std::string last_id, const std::function<bool(const ServerEvent&)>& sink) {
  Patience patience(impl_->options());
  std::optional<std::chrono::milliseconds> retry;
  for (;;) {
    EventParser parser;
    const Sink pass_on = [&](std::string_view bytes) {
      patience.heard_something();
      parser.append(bytes);
      while (const auto event = parser.next()) {
        if (!event->id.empty()) last_id = event->id;
        if (!sink(*event)) throw StreamEnough();
      }
    };
    ClientRequest request{.target = target, .headers = {{"Accept", "text/event-stream"}}};
    if (!last_id.empty()) request.headers.set("Last-Event-ID", last_id);
    std::optional<Error> lost;
    try {
      impl_->exchange(request, &pass_on);
      return;
    } catch (const StreamEnough&) {
      return;
    } catch (const Error& error) {
      if (!passes(error)) throw;
      lost.emplace(error.code(), error.what());
    }
    if (parser.retry()) retry = parser.retry();
    patience.wait_after(*lost, retry);
  }
}

}  // namespace gyre::net::http
