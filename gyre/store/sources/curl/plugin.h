#pragma once

#include <cstddef>
#include <cstdint>

// What stands between libgyre_curl.so, the only library that is linked with libcurl and all that it brings along, and
// the rest, which loads it for its first request (docs/adr/0118): structures of C, so that no exception and no
// allocation crosses.
namespace gyre::store::curl {

inline constexpr std::uint32_t kInterfaceVersion = 2;
inline constexpr const char* kEntry = "gyre_curl_interface";
inline constexpr std::size_t kMessageBytes = 256;

/// One request. All texts end with zero.
struct Request {
  const char* method;  ///< "GET", "HEAD", "PUT", "POST", "DELETE".
  const char* url;
  const char* const* headers;  ///< "name: value".
  std::size_t header_count;
  const void* body;  ///< Of PUT and POST; null for the others.
  std::size_t body_bytes;
  const char* user_agent;
  const char* certificates;  ///< A file; null: where libcurl looks for them.
  long connect_timeout_ms;
  long stall_seconds;  ///< Without a byte for as long the connection fails.
  void* self;          ///< Of the callbacks, which do not throw.
  /// One line of the reply's head.
  void (*on_header)(void* self, const char* line, std::size_t size);
  /// A piece of the reply's body, after its head; fewer bytes taken than `size` end the transfer.
  std::size_t (*on_body)(void* self, int status, const void* piece, std::size_t size);
  /// True ends the transfer.
  bool (*stopped)(void* self);
};

enum class Ending : std::int32_t {
  kComplete,     ///< The reply is whole.
  kSetback,      ///< The network's failure, which may pass.
  kUnreachable,  ///< Another such: no connection came about.
  kBadUrl,       ///< This and the next ones stay.
  kNotTrusted,   ///< The server's certificate, or ours.
  kNoTls,        ///< What listens there speaks no TLS, or none that we know.
  kNoMemory,
};

struct Outcome {
  Ending ending;
  int status;  ///< 0 where no reply came.
  char message[kMessageBytes];
};

struct Interface {
  std::uint32_t version;
  /// A session, whose connections stay open between requests. Null: no memory. One thread at a time.
  void* (*open)();
  void (*close)(void* session);
  void (*perform)(void* session, const Request* request, Outcome* outcome);
};

using Entry = const Interface* (*)();

}  // namespace gyre::store::curl
