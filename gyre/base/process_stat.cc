#include "gyre/base/process_stat.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "gyre/base/boot.h"
#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/parse.h"

namespace gyre {

namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 16;

/// As proc(5) numbers the fields. The first after the program's name is the third.
constexpr std::size_t kFirstField = 3;
constexpr std::size_t kParent = 4;
constexpr std::size_t kFlags = 9;
constexpr std::size_t kStarted = 22;
constexpr std::size_t kMemoryBytes = 23;
constexpr std::size_t kCodeStart = 26;
constexpr std::size_t kArgumentsStart = 48;
constexpr std::size_t kArgumentsEnd = 49;
constexpr std::size_t kEnvironmentStart = 50;
constexpr std::size_t kEnvironmentEnd = 51;

}  // namespace

bool proc_has_our_numbers() {
  std::array<char, 32> own{};
  const ssize_t length = ::readlink("/proc/self", own.data(), own.size());
  return length > 0 && std::string_view(own.data(), static_cast<std::size_t>(length)) == std::to_string(::getpid());
}

std::optional<ProcessStat> read_process_stat(pid_t pid) {
  if (!proc_has_our_numbers()) return std::nullopt;
  Bytes bytes;
  try {
    bytes = read_file(fmt::format("/proc/{}/stat", pid), kMostBytes);
  } catch (const Error&) {
    return std::nullopt;
  }
  const std::string_view stat = as_text(bytes);
  const std::size_t name_end = stat.rfind(')');  // The name may itself hold spaces and brackets.
  if (name_end == std::string_view::npos || name_end + 2 > stat.size()) return std::nullopt;
  const std::vector<std::string> fields = split(stat.substr(name_end + 2), ' ');
  const auto number = [&fields](std::size_t field) {
    std::uint64_t value = 0;
    if (field - kFirstField >= fields.size()) return value;
    const std::string& text = fields[field - kFirstField];
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  };
  return ProcessStat{.state = fields.front().empty() ? '\0' : fields.front().front(),
                     .parent = static_cast<pid_t>(number(kParent)),
                     .started = number(kStarted),
                     .flags = number(kFlags),
                     .memory_bytes = number(kMemoryBytes),
                     .code_start = number(kCodeStart),
                     .arguments_start = number(kArgumentsStart),
                     .arguments_end = number(kArgumentsEnd),
                     .environment_start = number(kEnvironmentStart),
                     .environment_end = number(kEnvironmentEnd)};
}

std::string view_of_processes() {
  if (!proc_has_our_numbers()) return "";
  std::error_code failure;
  const std::filesystem::path space = std::filesystem::read_symlink("/proc/self/ns/pid", failure);
  if (failure) throw system_error("cannot read /proc/self/ns/pid", failure.value());
  return fmt::format("{} {}", boot_id(), space.string());
}

bool holds_entry(std::string_view entries, std::string_view entry) {
  for (std::size_t at = entries.find(entry); at != std::string_view::npos; at = entries.find(entry, at + 1)) {
    const std::size_t end = at + entry.size();
    const bool starts = at == 0 || entries[at - 1] == '\0';
    if (starts && (end == entries.size() || entries[end] == '\0')) return true;
  }
  return false;
}

}  // namespace gyre
