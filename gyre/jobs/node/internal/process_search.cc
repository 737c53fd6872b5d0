#include "gyre/jobs/node/internal/process_search.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/process.h"
#include "gyre/base/process_stat.h"

namespace gyre::jobs::node::internal {

namespace fs = std::filesystem;

std::optional<uid_t> account_of(pid_t pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string word; status >> word;) {
    uid_t real = 0;
    uid_t effective = 0;
    if (word == "Uid:") return status >> real >> effective ? std::optional(effective) : std::nullopt;
  }
  return std::nullopt;
}

std::string words_of(pid_t pid) {
  try {
    const Bytes bytes = read_file(fmt::format("/proc/{}/cmdline", pid), kLargestEnvironmentBytes);
    std::string words(as_text(bytes));
    std::ranges::replace(words, '\0', '\n');
    return "\n" + words + "\n";
  } catch (const Error&) {
    return "";
  }
}

bool has_word(const std::string& words, const std::string& word) {
  return words.find("\n" + word + "\n") != std::string::npos;
}

bool has_same_folder(pid_t pid, const fs::path& folder) {
  struct stat ours{};
  struct stat its{};
  if (::stat(folder.c_str(), &ours) != 0) return true;
  if (::stat(fmt::format("/proc/{}/root{}", pid, folder.string()).c_str(), &its) != 0) return true;
  return ours.st_dev == its.st_dev && ours.st_ino == its.st_ino;
}

std::vector<Found> processes_where(const std::function<bool(const Found&)>& fits) {
  std::vector<Found> found;
  if (!proc_has_our_numbers()) return found;
  std::error_code failure;
  for (fs::directory_iterator entry("/proc", failure), end; !failure && entry != end; entry.increment(failure)) {
    const std::string name = entry->path().filename();
    pid_t pid = 0;
    const auto [rest, status] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (status != std::errc() || rest != name.data() + name.size()) continue;
    Found each{.pid = pid, .pidfd = open_pidfd(pid)};
    const auto stat = each.pidfd ? read_process_stat(pid) : std::nullopt;
    // One without memory has ended, and waits for its parent alone.
    if (!stat || stat->memory_bytes == 0) continue;
    each.parent = stat->parent;
    if (fits(each)) found.push_back(std::move(each));
  }
  return found;
}

std::string attempt_in(const fs::path& file) {
  std::ifstream stream(file);
  const auto json = nlohmann::json::parse(stream, nullptr, false);
  return json.is_object() ? json.value(nlohmann::json::json_pointer("/order/attempt"), "") : "";
}

}  // namespace gyre::jobs::node::internal
