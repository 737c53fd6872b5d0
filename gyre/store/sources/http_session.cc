#include "gyre/store/sources/http_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <set>

#include "gyre/base/error.h"
#include "gyre/base/parse.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/store/sources/backoff.h"
#include "gyre/store/sources/curl_library.h"
#include "gyre/store/sources/text.h"

namespace gyre::store {

namespace {

constexpr long kConnectTimeoutMs = 20'000;
constexpr std::size_t kMostHeaders = 200;
constexpr std::size_t kMostErrorBytes = 64 * 1024;
constexpr std::size_t kMostDateBytes = 40;
constexpr std::chrono::milliseconds kMostWait{120'000};
/// A server that has never answered may be a typing error, for which nobody waits as long as for one that restarts.
constexpr std::chrono::milliseconds kFirstContact{5'000};

/// Where distributions keep the certificates; libcurl knows the place of the one that it was built on.
std::optional<std::string> certificates() {
  if (auto chosen = environment_variable("SSL_CERT_FILE")) return chosen;
  for (const char* place :
       {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"}) {
    std::error_code failure;
    if (std::filesystem::exists(place, failure)) return place;
  }
  return std::nullopt;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

/// The servers that have answered this process.
class KnownServers {
 public:
  void add(const std::string& authority) GYRE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    known_.insert(authority);
  }
  bool has(const std::string& authority) const GYRE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return known_.contains(authority);
  }

 private:
  mutable Mutex mutex_;
  std::set<std::string> known_ GYRE_GUARDED_BY(mutex_);
};

KnownServers& known_servers() {
  static KnownServers servers;
  return servers;
}

std::string authority_of(const std::string& url) {
  const auto parts = split_url(url);
  return parts ? parts->authority : url;
}

/// Failures that are not the network's, and stay.
std::optional<ErrorCode> lasting(curl::Ending ending) {
  switch (ending) {
    case curl::Ending::kBadUrl: return ErrorCode::kInvalidArgument;
    case curl::Ending::kNotTrusted: return ErrorCode::kAuthentication;
    case curl::Ending::kNoTls: return ErrorCode::kProtocol;
    case curl::Ending::kNoMemory: return ErrorCode::kResourceExhausted;
    default: return std::nullopt;
  }
}

}  // namespace

std::string_view HttpReply::header(std::string_view name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

std::optional<std::uint64_t> HttpReply::length() const { return number(header("content-length")); }

struct HttpSession::Handle {
  Handle() : library(curl_library()), session(library.open()) {
    if (session == nullptr) throw Error(ErrorCode::kResourceExhausted, "libcurl has no memory");
  }
  ~Handle() { library.close(session); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  const curl::Interface& library;
  void* session;
};

/// One request's state, while libcurl calls back. Exceptions must not cross its C code.
struct HttpSession::Transfer {
  const ReadLimits* limits;
  const Body* body;
  Result result{};
  std::exception_ptr failure{};

  static void on_header(void* self, const char* data, std::size_t size) {
    auto& transfer = *static_cast<Transfer*>(self);
    const std::string_view line = trimmed({data, size});
    auto& headers = transfer.result.reply.headers;
    if (line.starts_with("HTTP/")) headers.clear();  // Of a 100 Continue before it.
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || headers.size() >= kMostHeaders) return;
    std::string name(line.substr(0, colon));
    std::ranges::transform(name, name.begin(), [](char letter) {
      return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter + 32) : letter;
    });
    headers[name] = trimmed(line.substr(colon + 1));
  }

  static std::size_t on_body(void* self, int status, const void* data, std::size_t bytes) {
    auto& transfer = *static_cast<Transfer*>(self);
    try {
      if (transfer.limits->rate != nullptr) transfer.limits->rate->pass(bytes, transfer.limits->stop);
      transfer.result.reply.status = status;
      const std::span piece(static_cast<const std::byte*>(data), bytes);
      const std::size_t taken = (*transfer.body)(transfer.result.reply, piece);
      transfer.result.cut = taken < bytes;
      return taken;
    } catch (...) {
      transfer.failure = std::current_exception();
      return 0;
    }
  }

  static bool stopped(void* self) { return static_cast<Transfer*>(self)->limits->stop.stop_requested(); }
};

HttpSession::HttpSession(std::string source, const ReadLimits& limits)
    : source_(std::move(source)), limits_(limits), handle_(std::make_unique<Handle>()) {}

HttpSession::~HttpSession() = default;

HttpSession::Result HttpSession::perform(const HttpRequest& request, const Body& body) {
  Transfer transfer{.limits = &limits_, .body = &body};
  std::vector<const char*> headers;
  for (const std::string& header : request.headers) headers.push_back(header.c_str());
  // libcurl would say that a body is a form, and would wait for leave to send it.
  if (request.body) headers.insert(headers.end(), {"Content-Type:", "Expect:"});
  const auto authorities = certificates();
  const auto stall = std::chrono::ceil<std::chrono::seconds>(limits_.stall);
  const curl::Request asked{
      .method = request.method.c_str(),
      .url = request.url.c_str(),
      .headers = headers.data(),
      .header_count = headers.size(),
      .body = request.body && !request.body->empty() ? static_cast<const void*>(request.body->data())
              : request.body                         ? ""
                                                     : nullptr,
      .body_bytes = request.body ? request.body->size() : 0,
      .user_agent = "gyre/" GYRE_VERSION,
      .certificates = authorities ? authorities->c_str() : nullptr,
      .connect_timeout_ms = kConnectTimeoutMs,
      .stall_seconds = static_cast<long>(std::max<std::int64_t>(stall.count(), 1)),
      .self = &transfer,
      .on_header = &Transfer::on_header,
      .on_body = &Transfer::on_body,
      .stopped = &Transfer::stopped,
  };
  curl::Outcome outcome{};
  handle_->library.perform(handle_->session, &asked, &outcome);
  if (transfer.failure) std::rethrow_exception(transfer.failure);
  if (limits_.stop.stop_requested()) throw Error(ErrorCode::kAborted, fmt::format("reading {} was stopped", source_));
  transfer.result.reply.status = outcome.status;
  if (outcome.status != 0) known_servers().add(authority_of(request.url));
  if (outcome.ending == curl::Ending::kComplete || transfer.result.cut) return std::move(transfer.result);
  if (const auto error = lasting(outcome.ending)) {
    const bool no_tls = outcome.ending == curl::Ending::kNoTls;
    throw Error(*error, fmt::format("cannot read {}: {}{}", source_, outcome.message,
                                    no_tls ? "; what listens there does not speak TLS: is it http://?" : ""));
  }
  transfer.result.setback =
      Setback{.reason = outcome.message, .unreachable = outcome.ending == curl::Ending::kUnreachable};
  return std::move(transfer.result);
}

Setback setback_of(const HttpReply& reply, const std::string& what, const std::string& detail) {
  const std::string said = fmt::format("{}{}", reply.status, detail.empty() ? "" : " " + detail);
  switch (reply.status) {
    case 408:
    case 429:
    case 500:
    case 502:
    case 503:
    case 504: {
      const auto seconds = number(reply.header("retry-after"));
      const auto wait =
          seconds ? std::min(std::chrono::milliseconds(std::min<std::uint64_t>(*seconds, 1'000) * 1'000), kMostWait)
                  : std::chrono::milliseconds(0);
      return {.reason = "the server answers " + said,
              .overloaded = reply.status == 429 || reply.status == 503,
              .wait = wait};
    }
    case 401:
    case 403: throw Error(ErrorCode::kAuthentication, fmt::format("{}: the server refuses it ({})", what, said));
    case 404:
    case 410: throw Error(ErrorCode::kNotFound, fmt::format("{}: the server does not have it ({})", what, said));
    case 301:
    case 302:
    case 307:
    case 308:
      throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: the server says that it is elsewhere: {}", what,
                                                           shown_url(reply.header("location"))));
    case 405:
    case 501:
      throw Error(ErrorCode::kUnsupported, fmt::format("{}: the server does not know such requests ({})", what, said));
    case 412: throw Error(ErrorCode::kCorruptData, fmt::format("{}: it has changed since it was listed", what));
    default: throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: the server answers {}", what, said));
  }
}

WholeReply fetch_whole(HttpSession& session, const std::function<HttpRequest()>& request, const std::string& what,
                       const std::function<std::string(const WholeReply&)>& detail, std::uint64_t limit_bytes,
                       const ReadLimits& limits, std::chrono::milliseconds patience) {
  Backoff backoff(patience);
  Backoff first_contact(std::min(patience, kFirstContact));
  for (;;) {
    WholeReply whole;
    const HttpRequest asked = request();
    const auto result = session.perform(asked, [&](const HttpReply&, std::span<const std::byte> piece) {
      if (whole.body.size() + piece.size() > limit_bytes) return std::size_t{0};
      whole.body.insert(whole.body.end(), piece.begin(), piece.end());
      return piece.size();
    });
    whole.reply = result.reply;
    if (result.cut) {
      throw Error(ErrorCode::kResourceExhausted,
                  fmt::format("{}: the server's answer is longer than {}", what, format_bytes(limit_bytes)));
    }
    if (!result.setback && whole.reply.status >= 200 && whole.reply.status < 300) return whole;
    const Setback setback = result.setback ? *result.setback : setback_of(whole.reply, what, detail(whole));
    const bool is_new = setback.unreachable && !known_servers().has(authority_of(asked.url));
    const auto long_wait = [&] {
      if (limits.notice != nullptr) limits.notice->waits(fmt::format("{}: {}; trying again", what, setback.reason));
    };
    if ((is_new ? first_contact : backoff).wait(setback, limits.stop, long_wait)) continue;
    if (limits.stop.stop_requested()) throw Error(ErrorCode::kAborted, what + " was stopped");
    if (!is_new)
      throw Error(ErrorCode::kIo, fmt::format("{}: {} (for {} s)", what, setback.reason, patience.count() / 1'000));
    throw Error(ErrorCode::kIo, fmt::format("{}: {}; nothing has ever answered there. Are the server's name and its "
                                            "port right, and does it run?",
                                            what, setback.reason));
  }
}

namespace {

/// "bytes 0-99/1234" as (first, last, total).
std::optional<std::array<std::uint64_t, 3>> content_range(std::string_view text) {
  if (!text.starts_with("bytes ")) return std::nullopt;
  text.remove_prefix(6);
  const std::size_t dash = text.find('-');
  const std::size_t slash = text.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || slash < dash) return std::nullopt;
  const auto first = number(text.substr(0, dash));
  const auto last = number(text.substr(dash + 1, slash - dash - 1));
  const auto total = number(text.substr(slash + 1));
  if (!first || !last || !total) return std::nullopt;
  return std::array{*first, *last, *total};
}

/// Which byte of the object the body begins with. Error(kCorruptData) where it is another object than the listed one.
std::uint64_t begin_of_body(const HttpReply& reply, const std::string& what, const Object& object,
                            std::uint64_t offset_bytes) {
  const auto changed = [&](const std::string& how) {
    return Error(ErrorCode::kCorruptData, fmt::format("{}: it has changed since it was listed: {}", what, how));
  };
  const bool dated = is_http_date(object.version);
  const std::string_view version = reply.header(dated ? "last-modified" : "etag");
  if (!object.version.empty() && !version.empty() && version != object.version)
    throw changed(dated ? fmt::format("on {}", version.substr(0, kMostDateBytes)) : "its ETag is another one");
  if (reply.status == 206) {
    const auto range = content_range(reply.header("content-range"));
    if (!range || (*range)[0] != offset_bytes) {
      throw Error(ErrorCode::kProtocol, fmt::format("{}: the server sends another range than the one asked for", what));
    }
    if ((*range)[2] != object.size_bytes) throw changed(fmt::format("it has {} bytes", (*range)[2]));
    return offset_bytes;
  }
  // The server gave us the whole object: it does not know ranges.
  const auto length = reply.length();
  if (length && *length != object.size_bytes) throw changed(fmt::format("it has {} bytes", *length));
  return 0;
}

}  // namespace

ReadOutcome read_range(HttpSession& session, HttpRequest request, const std::string& what, const Object& object,
                       std::uint64_t offset_bytes, std::span<std::byte> into,
                       const std::function<std::string(const WholeReply&)>& detail) {
  ReadOutcome outcome;
  if (into.empty()) return outcome;
  if (into.size() < object.size_bytes) {
    request.headers.push_back(fmt::format("Range: bytes={}-{}", offset_bytes, offset_bytes + into.size() - 1));
  }
  WholeReply refusal;
  std::optional<std::uint64_t> at;  // Of the object, where the next piece begins.
  const auto result = session.perform(request, [&](const HttpReply& reply, std::span<const std::byte> piece) {
    if (reply.status != 200 && reply.status != 206) {
      const std::size_t room = kMostErrorBytes - refusal.body.size();
      refusal.body.insert(refusal.body.end(), piece.begin(),
                          piece.begin() + static_cast<std::ptrdiff_t>(std::min(room, piece.size())));
      return piece.size();
    }
    if (!at) at = begin_of_body(reply, what, object, offset_bytes);
    const std::size_t arrived = piece.size();
    const std::uint64_t skipped = std::min<std::uint64_t>(*at < offset_bytes ? offset_bytes - *at : 0, piece.size());
    piece = piece.subspan(skipped);
    const std::size_t taken = std::min(piece.size(), into.size() - outcome.bytes);
    if (taken > 0) std::memcpy(into.data() + outcome.bytes, piece.data(), taken);
    outcome.bytes += taken;
    *at += arrived;
    return skipped + taken;
  });
  refusal.reply = result.reply;
  if (outcome.bytes == into.size() && !(result.cut && into.size() == object.size_bytes)) return outcome;
  if (result.cut && outcome.bytes == into.size()) {
    throw Error(ErrorCode::kCorruptData, fmt::format("{}: it has changed since it was listed: it is longer", what));
  }
  if (result.setback) {
    outcome.setback = result.setback;
  } else if (result.reply.status != 200 && result.reply.status != 206) {
    outcome.setback = setback_of(result.reply, what, detail(refusal));
  } else {
    outcome.setback = Setback{.reason = fmt::format("the server sent {} of {} bytes", outcome.bytes, into.size())};
  }
  return outcome;
}

}  // namespace gyre::store
