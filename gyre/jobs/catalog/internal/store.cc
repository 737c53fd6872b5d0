#include "gyre/jobs/catalog/internal/store.h"

#include <array>
#include <cstddef>
#include <limits>

#include "gyre/base/random.h"

namespace gyre::jobs::catalog {

void record(Store& store, const Event& event) {
  store.database.run(
      "INSERT INTO events (time_us, subject, name, workspace_id, cluster_id, job_id, attempt, node_id, from_state, "
      "to_state, "
      "reason, message) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
      store.now(), event.subject, event.name, event.workspace, event.cluster, event.job, event.attempt, event.node,
      event.from, event.to, event.reason, event.message);
}

Error not_found(std::string_view what, std::string_view name) {
  return {ErrorCode::kNotFound, fmt::format("there is no {} '{}'", what, name)};
}

Error not_found(std::string_view what, Id id) {
  return {ErrorCode::kNotFound, fmt::format("there is no {} with number {}", what, id)};
}

Error illegal_change(std::string_view what, std::string_view name, std::string_view from, std::string_view to) {
  return {ErrorCode::kInvalidArgument, fmt::format("{} '{}' cannot change from {} to {}", what, name, from, to)};
}

std::string new_uuid() {
  std::array<std::byte, 16> bytes;
  fill_with_secure_random(bytes);
  bytes[6] = (bytes[6] & std::byte{0x0f}) | std::byte{0x40};
  bytes[8] = (bytes[8] & std::byte{0x3f}) | std::byte{0x80};
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", std::to_integer<unsigned>(bytes[i]));
  }
  return text;
}

std::string paged(std::string_view select, const PageRequest& request, std::string_view key) {
  return fmt::format("{} AND {} {} ?1 ORDER BY {}{} LIMIT ?2", select, key, request.newest_first ? "<" : ">", key,
                     request.newest_first ? " DESC" : "");
}

Id page_start(const PageRequest& request) {
  return request.newest_first && request.after == 0 ? std::numeric_limits<Id>::max() : request.after;
}

int page_rows(const PageRequest& request) {
  if (request.limit < 1 || request.limit > kLongestPage) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("a page of {} is asked for; 1 to {} are possible", request.limit, kLongestPage));
  }
  return request.limit + 1;
}

}  // namespace gyre::jobs::catalog
