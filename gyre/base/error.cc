#include "gyre/base/error.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

namespace gyre {

std::string_view error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInternal: return "INTERNAL";
    case ErrorCode::kInvalidArgument: return "INVALID_ARGUMENT";
    case ErrorCode::kMismatch: return "MISMATCH";
    case ErrorCode::kTimeout: return "TIMEOUT";
    case ErrorCode::kPeerLost: return "PEER_LOST";
    case ErrorCode::kPeerLeft: return "PEER_LEFT";
    case ErrorCode::kAborted: return "ABORTED";
    case ErrorCode::kProtocol: return "PROTOCOL";
    case ErrorCode::kAuthentication: return "AUTHENTICATION";
    case ErrorCode::kCorruptData: return "CORRUPT_DATA";
    case ErrorCode::kNotFound: return "NOT_FOUND";
    case ErrorCode::kIo: return "IO";
    case ErrorCode::kResourceExhausted: return "RESOURCE_EXHAUSTED";
    case ErrorCode::kUnsupported: return "UNSUPPORTED";
    case ErrorCode::kShutDown: return "SHUT_DOWN";
  }
  return "UNKNOWN";
}

ErrorCode error_code_from_number(int number) {
  const auto code = static_cast<ErrorCode>(number);
  return error_code_name(code) == "UNKNOWN" ? ErrorCode::kInternal : code;
}

Error::Error(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}

Error& Error::add_context(std::string_view context) {
  message_ = fmt::format("{}: {}", context, message_);
  return *this;
}

Error system_error(std::string_view what, int errno_value) {
  ErrorCode code = ErrorCode::kIo;
  if (errno_value == ENOENT || errno_value == ENOTDIR) code = ErrorCode::kNotFound;
  if (errno_value == ENOSPC || errno_value == EDQUOT || errno_value == ENOMEM || errno_value == EMFILE ||
      errno_value == ENFILE) {
    code = ErrorCode::kResourceExhausted;
  }
  return {code, fmt::format("{}: {}", what, std::generic_category().message(errno_value))};
}

Error as_error(const std::exception& exception) {
  if (const auto* error = dynamic_cast<const Error*>(&exception)) return *error;
  if (dynamic_cast<const std::bad_alloc*>(&exception) != nullptr)
    return {ErrorCode::kResourceExhausted, "out of memory"};
  return {ErrorCode::kInternal, exception.what()};
}

std::string describe(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

}  // namespace gyre
