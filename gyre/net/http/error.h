#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/net/http/message.h"

namespace gyre::net::http {

/// A failure that is the answer to a request. Its body is
///   {"error": {"code": …, "message": …, "target": …, "details": [{"code": …, "message": …, "target": …}]}}
/// where `target` names the field, parameter or resource that it is about (null: none).
class HttpError : public Error {
 public:
  struct Detail {
    std::string code;
    std::string message;
    std::string target;
  };

  HttpError(int status, std::string name, std::string message, std::string target = {},
            std::vector<Detail> details = {});

  int status() const { return status_; }
  /// "JobNotFound": stable, for programs. code() is the kind of failure that the status stands for.
  const std::string& name() const { return name_; }
  const std::string& target() const { return target_; }
  const std::vector<Detail>& details() const { return details_; }

  /// Sent with the answer: Allow, Retry-After, WWW-Authenticate.
  Headers headers;

 private:
  int status_;
  std::string name_;
  std::string target_;
  std::vector<Detail> details_;
};

/// The answer that `error` is.
Response error_response(const HttpError& error);

/// What a handler's exception becomes. HttpError is itself. Of other Errors, the client's own (kInvalidArgument,
/// kNotFound, kUnsupported) and what passes (kTimeout, kResourceExhausted, kShutDown) keep their message; everything
/// else is 500 with a message that gives nothing away: what() is for the log.
HttpError as_http_error(const std::exception& exception);

/// The error in a response's body; where it is none of ours, one that quotes the body's beginning.
HttpError parse_error_body(int status, std::string_view body);

}  // namespace gyre::net::http
