#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gyre::store {

struct AwsKeys {
  std::string access_key;
  std::string secret_key;
  std::string session_token{};  ///< Of temporary keys; else empty.
};

/// What a request is signed with. Headers and query are what the server gets.
struct AwsRequest {
  std::string method;
  std::string path;                                          ///< Encoded, with its first '/'.
  std::vector<std::pair<std::string, std::string>> query{};  ///< Decoded.
  /// In small letters; "host" must be among them, "x-amz-date" and "x-amz-content-sha256" are added.
  std::vector<std::pair<std::string, std::string>> headers{};
  std::span<const std::byte> body{};
};

/// The headers to send besides those of `request`: x-amz-date, x-amz-content-sha256, x-amz-security-token where there
/// is one, and Authorization. `service`: "s3". Source: "Create a signed AWS API request" (Signature Version 4), AWS IAM
/// User Guide.
std::vector<std::pair<std::string, std::string>> sign_aws_request(const AwsKeys& keys, const std::string& region,
                                                                  const std::string& service, const AwsRequest& request,
                                                                  std::chrono::sys_seconds now);

}  // namespace gyre::store
