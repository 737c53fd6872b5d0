#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace gyre::store {

/// A shared access signature of Azure Storage: what a URL's query must hold so that the server lets us in. Passed
/// through as it is; its fields are read only to say early what the server would say late.
/// Source: "Create an account SAS", "Create a service SAS", Azure Storage REST documentation.
class Sas {
 public:
  /// As people paste it: a leading '?', or a whole URL, is cut off. Error(kInvalidArgument) names what it lacks, never
  /// its signature.
  static Sas parse(std::string_view text);

  /// For the query of a URL, without '?'.
  const std::string& query() const { return query_; }

  /// Whether it may list a container; a signature for one blob may not.
  bool may_list() const;
  /// When it ends; nothing where a stored access policy says so.
  std::optional<std::chrono::sys_seconds> expiry() const { return expiry_; }

  /// Error(kAuthentication) that says why it does not serve to read now: expired or not valid yet (with the time of
  /// both), without the permission to read (or to list, where `list`), only for https. Nothing is said of what a stored
  /// access policy decides.
  void check_reading(std::chrono::sys_seconds now, bool list, bool encrypted) const;
  /// Likewise for putting objects.
  void check_writing(std::chrono::sys_seconds now, bool encrypted) const;

 private:
  void check_use(std::chrono::sys_seconds now, bool encrypted) const;

  std::string query_;
  std::string permissions_;
  std::string services_;
  std::string resource_types_;  ///< Of an account SAS.
  std::string resource_;        ///< Of a service SAS: "c", "b", …
  std::string protocols_;
  bool policy_ = false;
  std::optional<std::chrono::sys_seconds> start_;
  std::optional<std::chrono::sys_seconds> expiry_;
};

/// "2026-11-20T12:00Z", "2026-11-20", "2026-11-20T12:00:30Z", "…30.1234567Z"; nothing for another text.
std::optional<std::chrono::sys_seconds> parse_utc(std::string_view text);
/// "2026-11-20 12:00:30 UTC".
std::string format_utc(std::chrono::sys_seconds time);

}  // namespace gyre::store
