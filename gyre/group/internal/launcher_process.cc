#include "gyre/group/internal/launcher_process.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/process_stat.h"

namespace gyre::group {
namespace {

/// More than any chain of shells and wrappers.
constexpr int kMostAncestors = 256;

bool belongs_to_the_rank(pid_t process, const std::vector<std::string>& entries) {
  try {
    const Bytes environment = read_file(fmt::format("/proc/{}/environ", process), kLargestEnvironmentBytes);
    return std::ranges::all_of(entries, [&](const auto& entry) { return holds_entry(as_text(environment), entry); });
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::string launcher_process(pid_t process, const std::vector<std::string>& entries) {
  std::optional<ProcessStat> stat = read_process_stat(process);
  for (int generation = 0; stat && stat->parent > 0 && generation < kMostAncestors; ++generation) {
    const pid_t parent = stat->parent;
    stat = read_process_stat(parent);
    if (!stat) break;
    if (!belongs_to_the_rank(parent, entries)) return fmt::format("process {} of {}", parent, stat->started);
  }
  return {};
}

}  // namespace gyre::group
