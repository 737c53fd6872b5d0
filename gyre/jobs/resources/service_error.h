#pragma once

#include <string>
#include <utility>

#include "gyre/base/error.h"

namespace gyre::jobs::resources {

/// A JobService's answer that it cannot do what was asked.
///
///   kind          status  when
///   kInvalid      400     the request contradicts itself or the cluster: a larger nodeCount than it can ever have
///   kForbidden    403     the user may see this, but not do that
///   kNotFound     404     it does not exist
///   kConflict     409     it exists in another form, or its state does not allow this
///   kQuota        429     a limit of the workspace is used up; Retry-After is 60
///   kUnavailable  503     try again: the service starts, stops, or cannot write; Retry-After is 1
///   kNoRoom       507     it would take more of the server's disk than there is for it; waiting alone does not help
class ServiceError : public Error {
 public:
  enum class Kind { kInvalid, kForbidden, kNotFound, kConflict, kQuota, kUnavailable, kNoRoom };

  /// `name`: the `code` in the answer, stable: "JobNotFound". `target`: what it is about.
  ServiceError(Kind kind, std::string name, std::string message, std::string target = {})
      : Error(code_of(kind), std::move(message)), kind_(kind), name_(std::move(name)), target_(std::move(target)) {}

  Kind kind() const { return kind_; }
  const std::string& name() const { return name_; }
  const std::string& target() const { return target_; }

 private:
  static ErrorCode code_of(Kind kind) {
    switch (kind) {
      case Kind::kNotFound: return ErrorCode::kNotFound;
      case Kind::kForbidden: return ErrorCode::kAuthentication;
      case Kind::kNoRoom:
      case Kind::kQuota: return ErrorCode::kResourceExhausted;
      case Kind::kUnavailable: return ErrorCode::kShutDown;
      default: return ErrorCode::kInvalidArgument;
    }
  }

  Kind kind_;
  std::string name_;
  std::string target_;
};

}  // namespace gyre::jobs::resources
