#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace gyre {

/// What kind of thing went wrong. Names and numbers are stable: they travel on the wire and into
/// scripts (`-o json`), so entries are only ever added at the end.
enum class ErrorCode : int {
  kInternal = 1,            ///< A state that should be impossible; a bug of ours.
  kInvalidArgument = 2,     ///< The caller's input is wrong (shape, flag, path, value).
  kMismatch = 3,            ///< Ranks disagree about an operation.
  kTimeout = 4,             ///< A deadline passed.
  kPeerLost = 5,            ///< A rank died or its connection broke.
  kPeerLeft = 6,            ///< A rank shut down while others still needed it.
  kAborted = 7,             ///< The group was aborted by a rank, with its reason.
  kProtocol = 8,            ///< A peer sent something the protocol does not allow.
  kAuthentication = 9,      ///< A peer could not prove that it knows the job's key.
  kCorruptData = 10,        ///< Stored or received bytes fail their checksum or format.
  kNotFound = 11,           ///< A file, command or name does not exist.
  kIo = 12,                 ///< The operating system refused a read, write or call.
  kResourceExhausted = 13,  ///< A named limit, memory or disk space is used up.
  kUnsupported = 14,        ///< Valid, but not available here.
  kShutDown = 15,           ///< The runtime was shut down.
};

/// "MISMATCH", "PEER_LOST", …: what messages and JSON show.
std::string_view error_code_name(ErrorCode code);
/// Of a number from another process; kInternal if it is none of ours: a newer Gyre may know more codes than this one.
ErrorCode error_code_from_number(int number);

/// Base of all failures Gyre reports. The message says what failed and where; code that catches it on
/// the way up may add context, which is printed in front: "context: message".
/// Copyable, so that one failure can be handed to many waiting handles.
class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string message);

  ErrorCode code() const noexcept { return code_; }
  /// The whole message with its context; the code is not part of it.
  const char* what() const noexcept override { return message_.c_str(); }

  /// Puts "context: " in front of the message.
  Error& add_context(std::string_view context);

 private:
  ErrorCode code_;
  std::string message_;
};

/// kIo (or kNotFound, kResourceExhausted where errno says so) with "what: strerror(errno_value)".
Error system_error(std::string_view what, int errno_value);

/// `exception` itself where it is an Error; out of memory is kResourceExhausted, anything else kInternal. For handing a
/// failure to other threads by value: an exception object shared between threads is counted inside the C++ library.
Error as_error(const std::exception& exception);

/// The message of any exception, for logs and for handing on.
std::string describe(const std::exception_ptr& failure);

}  // namespace gyre
