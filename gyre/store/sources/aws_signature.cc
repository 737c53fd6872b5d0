#include "gyre/store/sources/aws_signature.h"

#include <fmt/format.h>

#include <algorithm>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/store/sources/text.h"

namespace gyre::store {

namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

/// "20150830" and "20150830T123600Z".
std::pair<std::string, std::string> stamps(std::chrono::sys_seconds now) {
  const auto day = std::chrono::floor<std::chrono::days>(now);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(now - day);
  std::string short_stamp = fmt::format("{:04}{:02}{:02}", static_cast<int>(date.year()),
                                        static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()));
  std::string stamp = fmt::format("{}T{:02}{:02}{:02}Z", short_stamp, clock.hours().count(), clock.minutes().count(),
                                  clock.seconds().count());
  return {std::move(short_stamp), std::move(stamp)};
}

Sha256 keyed(std::span<const std::byte> key, const std::string& text) { return hmac_sha256(key, as_bytes(text)); }

/// Sorted by its encoded names.
std::string canonical_query(const Pairs& query) {
  Pairs encoded;
  for (const auto& [name, value] : query) encoded.emplace_back(encode_component(name), encode_component(value));
  std::ranges::sort(encoded);
  std::string text;
  for (const auto& [name, value] : encoded) text += fmt::format("{}{}={}", text.empty() ? "" : "&", name, value);
  return text;
}

}  // namespace

Pairs sign_aws_request(const AwsKeys& keys, const std::string& region, const std::string& service,
                       const AwsRequest& request, std::chrono::sys_seconds now) {
  const auto [day, stamp] = stamps(now);
  const std::string body = hex(sha256(request.body));
  Pairs added = {{"x-amz-content-sha256", body}, {"x-amz-date", stamp}};
  if (!keys.session_token.empty()) added.emplace_back("x-amz-security-token", keys.session_token);
  Pairs headers = request.headers;
  headers.insert(headers.end(), added.begin(), added.end());
  std::ranges::sort(headers);
  std::string names;
  std::string lines;
  for (const auto& [name, value] : headers) {
    names += (names.empty() ? "" : ";") + name;
    lines += fmt::format("{}:{}\n", name, value);
  }
  const std::string canonical = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", request.method, request.path,
                                            canonical_query(request.query), lines, names, body);
  const std::string scope = fmt::format("{}/{}/{}/aws4_request", day, region, service);
  const std::string text = fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", stamp, scope, hex(sha256(as_bytes(canonical))));
  Sha256 key = keyed(as_bytes("AWS4" + keys.secret_key), day);
  for (const std::string& step : {region, service, std::string("aws4_request")}) key = keyed(key, step);
  added.emplace_back("Authorization", fmt::format("AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, Signature={}",
                                                  keys.access_key, scope, names, hex(keyed(key, text))));
  return added;
}

}  // namespace gyre::store
