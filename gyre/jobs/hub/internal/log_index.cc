#include "gyre/jobs/hub/internal/log_index.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/jobs/orders/json_fields.h"

namespace gyre::jobs::hub::internal {

namespace {

using Json = nlohmann::json;
using orders::JsonFields;

constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20;
constexpr std::size_t kLongestLine = 4096;
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

std::uint64_t count_in(const JsonFields& fields, const char* name) {
  return static_cast<std::uint64_t>(fields.integer(name, 0, kMost));
}

/// "stdout.attempt-1.txt"
std::string with_part(const std::string& file, const std::string& part) {
  const std::size_t dot = file.rfind('.');
  const std::size_t at = dot == std::string::npos || dot == 0 ? file.size() : dot;
  return fmt::format("{}.{}{}", file.substr(0, at), part, file.substr(at));
}

}  // namespace

LogIndex::LogIndex(std::filesystem::path file) : file_(std::move(file)) {
  std::error_code ignored;
  if (!std::filesystem::exists(file_, ignored)) return;
  const Bytes bytes = read_file(file_, kMostBytes);
  std::string_view text = as_text(bytes);
  ends_whole_ = text.empty() || text.ends_with('\n');
  for (std::size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) {
    try {
      learn(orders::parse_json(text.substr(0, end), kLongestLine, file_.string()));
    } catch (const Error&) {
      continue;  // The machine lost power while it was written.
    }
  }
}

void LogIndex::learn(const Json& line) {
  const JsonFields fields(line, "a line about a job's logs");
  if (fields.has("full")) {
    full_ = true;
  } else if (fields.has("number")) {
    homes_[fields.text("attempt")] = {.number = static_cast<int>(fields.integer("number", 1, 1 << 20)),
                                      .folder = fields.text("folder"),
                                      .most_bytes = count_in(fields, "most_bytes")};
  } else {
    const LogStream stream{fields.text("attempt"), fields.text("node"), fields.text("file")};
    const LogSegment segment{
        .name = fields.text("name"), .base = count_in(fields, "base"), .start = count_in(fields, "start")};
    const auto before = owners_.find(segment.name);
    if (before != owners_.end() && before->second != stream) {
      const LogSegment& ended = segments_.at(before->second);
      pushed_out_[before->second] = ended.start + segment.base - std::min(segment.base, ended.base);
    }
    pushed_out_.erase(stream);
    segments_[stream] = segment;
    owners_[segment.name] = stream;
  }
}

void LogIndex::append(const Json& line) {
  const UniqueFd file(::open(file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!file) throw system_error(fmt::format("cannot write {}", file_.string()), errno);
  const std::string text = (std::exchange(ends_whole_, true) ? "" : "\n") + line.dump() + "\n";
  try {
    write_all(file.get(), as_bytes(text), file_.string());
  } catch (const Error&) {
    ends_whole_ = false;
    throw;
  }
  learn(line);
}

int LogIndex::number_of(const std::string& attempt) const {
  const LogHome* known = home(attempt);
  return known == nullptr ? 0 : known->number;
}

const LogHome* LogIndex::home(const std::string& attempt) const {
  const auto found = homes_.find(attempt);
  return found == homes_.end() ? nullptr : &found->second;
}

std::optional<LogSegment> LogIndex::current(const LogStream& stream) const {
  const auto found = segments_.find(stream);
  if (found == segments_.end() || owners_.at(found->second.name) != stream) return std::nullopt;
  return found->second;
}

std::uint64_t LogIndex::pushed_out_at(const LogStream& stream) const {
  const auto found = pushed_out_.find(stream);
  return found == pushed_out_.end() ? 0 : found->second;
}

std::string LogIndex::free_name(const LogStream& stream) const {
  const auto owner = owners_.find(stream.file);
  if (owner == owners_.end() || number_of(owner->second.attempt) < number_of(stream.attempt)) return stream.file;
  const std::string late = fmt::format("attempt-{}", number_of(stream.attempt));
  const bool of_same = owner->second.attempt == stream.attempt;
  const std::string name = with_part(stream.file, of_same ? stream.node : late);
  if (!owners_.contains(name)) return name;
  for (int i = 2;; ++i) {
    const std::string next = with_part(name, std::to_string(i));
    if (!owners_.contains(next)) return next;
  }
}

void LogIndex::add(const std::string& attempt, const LogHome& home) {
  append({{"attempt", attempt}, {"number", home.number}, {"folder", home.folder}, {"most_bytes", home.most_bytes}});
}

void LogIndex::put(const LogStream& stream, const LogSegment& segment) {
  append({{"attempt", stream.attempt},
          {"node", stream.node},
          {"file", stream.file},
          {"name", segment.name},
          {"base", segment.base},
          {"start", segment.start}});
}

void LogIndex::set_full() {
  full_ = true;  // Also where it cannot be written down.
  append({{"full", true}});
}

}  // namespace gyre::jobs::hub::internal
