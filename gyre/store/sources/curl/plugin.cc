#include "gyre/store/sources/curl/plugin.h"

#include <curl/curl.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>

namespace gyre::store::curl {

namespace {

constexpr long kBufferBytes = 256 * 1024;

struct Session {
  CURL* handle = nullptr;
  std::array<char, CURL_ERROR_SIZE> message{};
};

/// What libcurl's callbacks get.
struct Transfer {
  const Request* request;
  CURL* handle;

  int status() const {
    long status = 0;
    ::curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
    return static_cast<int>(status);
  }
};

std::size_t on_header(char* line, std::size_t size, std::size_t count, void* self) {
  const Request& request = *static_cast<Transfer*>(self)->request;
  request.on_header(request.self, line, size * count);
  return size * count;
}

std::size_t on_body(char* piece, std::size_t size, std::size_t count, void* self) {
  const Transfer& transfer = *static_cast<Transfer*>(self);
  return transfer.request->on_body(transfer.request->self, transfer.status(), piece, size * count);
}

int on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const Request& request = *static_cast<Transfer*>(self)->request;
  return request.stopped(request.self) ? 1 : 0;
}

void* open() {
  static std::once_flag once;
  static bool ready = false;
  std::call_once(once, [] { ready = ::curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK; });
  CURL* const handle = ready ? ::curl_easy_init() : nullptr;
  return handle == nullptr ? nullptr : std::make_unique<Session>(handle).release();
}

void close(void* session) {
  const std::unique_ptr<Session> owned(static_cast<Session*>(session));
  ::curl_easy_cleanup(owned->handle);
}

void set_options(CURL* handle, const Request& request, Transfer& transfer) {
  ::curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  ::curl_easy_setopt(handle, CURLOPT_USERAGENT, request.user_agent);
  ::curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  ::curl_easy_setopt(handle, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  ::curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, request.connect_timeout_ms);
  ::curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, 1L);
  ::curl_easy_setopt(handle, CURLOPT_LOW_SPEED_TIME, request.stall_seconds);
  ::curl_easy_setopt(handle, CURLOPT_BUFFERSIZE, kBufferBytes);
  ::curl_easy_setopt(handle, CURLOPT_TCP_KEEPALIVE, 1L);
  ::curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
  if (request.certificates != nullptr) ::curl_easy_setopt(handle, CURLOPT_CAINFO, request.certificates);
  ::curl_easy_setopt(handle, CURLOPT_URL, request.url);
  ::curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, &on_header);
  ::curl_easy_setopt(handle, CURLOPT_HEADERDATA, &transfer);
  ::curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, &on_body);
  ::curl_easy_setopt(handle, CURLOPT_WRITEDATA, &transfer);
  ::curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, &on_progress);
  ::curl_easy_setopt(handle, CURLOPT_XFERINFODATA, &transfer);
}

void set_method(CURL* handle, const Request& request) {
  const std::string_view method(request.method);
  if (method == "HEAD") {
    ::curl_easy_setopt(handle, CURLOPT_NOBODY, 1L);
  } else if (request.body != nullptr) {
    ::curl_easy_setopt(handle, CURLOPT_CUSTOMREQUEST, request.method);
    ::curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body_bytes));
    ::curl_easy_setopt(handle, CURLOPT_POSTFIELDS, request.body);  // Not copied.
  } else if (method != "GET") {
    ::curl_easy_setopt(handle, CURLOPT_CUSTOMREQUEST, request.method);
  }
}

/// Whether what TLS libraries say of a handshake is that the other side does not speak their protocol; servers that end
/// just then cut handshakes off, too.
bool says_no_tls(std::string_view message) {
  for (const std::string_view sign :
       {"wrong version number", "unexpected TLS packet", "unsupported protocol", "protocol version",
        "packet length too", "http request", "record layer failure"}) {
    if (message.find(sign) != std::string_view::npos) return true;
  }
  return false;
}

/// Failures that are not the network's stay.
Ending ending_of(CURLcode code, CURL* handle, std::string_view message) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT: return Ending::kUnreachable;
    case CURLE_OPERATION_TIMEDOUT: {
      curl_off_t connected_us = 0;
      ::curl_easy_getinfo(handle, CURLINFO_APPCONNECT_TIME_T, &connected_us);
      curl_off_t sent_us = 0;
      ::curl_easy_getinfo(handle, CURLINFO_PRETRANSFER_TIME_T, &sent_us);
      return connected_us == 0 && sent_us == 0 ? Ending::kUnreachable : Ending::kSetback;
    }
    case CURLE_SSL_CONNECT_ERROR: return says_no_tls(message) ? Ending::kNoTls : Ending::kUnreachable;
    case CURLE_OK: return Ending::kComplete;
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL: return Ending::kBadUrl;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_CACERT_BADFILE: return Ending::kNotTrusted;
    case CURLE_OUT_OF_MEMORY: return Ending::kNoMemory;
    default: return Ending::kSetback;
  }
}

void perform(void* opened, const Request* request, Outcome* outcome) {
  auto& session = *static_cast<Session*>(opened);
  CURL* const handle = session.handle;
  ::curl_easy_reset(handle);  // Its connections stay.
  session.message[0] = '\0';
  ::curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, session.message.data());
  Transfer transfer{.request = request, .handle = handle};
  set_options(handle, *request, transfer);
  set_method(handle, *request);
  curl_slist* list = nullptr;
  for (std::size_t i = 0; i < request->header_count; ++i) list = ::curl_slist_append(list, request->headers[i]);
  const std::unique_ptr<curl_slist, decltype(&::curl_slist_free_all)> headers(list, &::curl_slist_free_all);
  ::curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers.get());
  const CURLcode code = ::curl_easy_perform(handle);
  outcome->status = transfer.status();
  // libcurl's own text may name the host and the port, never what stands behind them.
  const char* const said = session.message[0] != '\0' ? session.message.data() : ::curl_easy_strerror(code);
  std::snprintf(outcome->message, sizeof outcome->message, "%s", said);
  outcome->ending = ending_of(code, handle, said);
  ::curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, nullptr);
}

constexpr Interface kInterface{.version = kInterfaceVersion, .open = &open, .close = &close, .perform = &perform};

}  // namespace

}  // namespace gyre::store::curl

// The one name that this library shows.
extern "C" __attribute__((visibility("default"))) const gyre::store::curl::Interface* gyre_curl_interface() {
  return &gyre::store::curl::kInterface;
}
