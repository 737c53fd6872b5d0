#include "apps/gyre/log_follower.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>
#include <vector>

#include "gyre/base/file.h"

namespace gyre::app {

namespace {

/// "job_prep" of "stdout-job_prep.txt"; empty of "stdout.txt". False for files that are not logs of processes.
bool is_log(std::string_view name, std::string& prefix) {
  for (const std::string_view stream : {"stdout", "stderr"}) {
    if (!name.starts_with(stream) || !name.ends_with(".txt")) continue;
    name = name.substr(stream.size(), name.size() - stream.size() - 4);
    if (name.starts_with('-')) name.remove_prefix(1);
    prefix = name;
    return true;
  }
  return false;
}

}  // namespace

void LogFollower::show_new() {
  std::error_code missing;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, missing)) files.push_back(entry.path());
  std::ranges::sort(files);
  for (const std::filesystem::path& file : files) show(file);
}

void LogFollower::show(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  std::string prefix;
  if (!is_log(name, prefix)) return;
  const UniqueFd opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!opened) return;
  Log& log = logs_[name];
  std::FILE* to = name.starts_with("stdout") ? stdout : stderr;
  std::array<char, 1 << 16> block;
  while (true) {
    const ssize_t count = ::pread(opened.get(), block.data(), block.size(), static_cast<off_t>(log.shown));
    if (count <= 0) return;
    log.shown += static_cast<std::uint64_t>(count);
    const std::string_view text(block.data(), static_cast<std::size_t>(count));
    if (prefix.empty()) {
      sink_(to, text);
      continue;
    }
    log.line += text;
    std::string lines;
    for (std::size_t end = log.line.find('\n'); end != std::string::npos; end = log.line.find('\n')) {
      lines += fmt::format("[{}] {}\n", prefix, log.line.substr(0, end));
      log.line.erase(0, end + 1);
    }
    sink_(to, lines);
  }
}

void LogFollower::finish() {
  show_new();
  for (auto& [name, log] : logs_) {
    std::string prefix;
    if (log.line.empty() || !is_log(name, prefix)) continue;
    sink_(name.starts_with("stdout") ? stdout : stderr, fmt::format("[{}] {}\n", prefix, log.line));
    log.line.clear();
  }
}

}  // namespace gyre::app
