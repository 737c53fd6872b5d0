#include "gyre/jobs/client/log_tail.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "gyre/base/error.h"

namespace gyre::jobs::client {

namespace {

constexpr std::uint64_t kReadAtOnce = std::uint64_t{1} << 20;
constexpr std::chrono::milliseconds kShortestPause{250};  // Each round is a request or two, and followers are many.
constexpr std::chrono::milliseconds kLongestPause{1'000};

/// Empty where it is missing or null.
std::string text_of(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

LogTail::LogTail(Session& session, resources::JobName job, std::set<std::string> files, LogLines::Sink sink)
    : session_(session), job_(std::move(job)), files_(std::move(files)), lines_(std::move(sink), files_.empty()) {}

bool LogTail::job_has_ended() {
  const Json job = session_.get(path_of(job_));
  const std::string state = job.at("properties").value("executionState", "");
  return state == "succeeded" || state == "failed";
}

bool LogTail::read_new() {
  has_new_ = false;
  std::optional<bool> complete = read_listed();
  // What was written between that and the end is sure to be listed now.
  if (!complete && job_has_ended()) complete = read_listed().value_or(true);
  if (complete.value_or(false)) lines_.finish();
  return complete.value_or(false);
}

std::optional<bool> LogTail::read_listed() {
  const Path path = below(path_of(job_), "files");
  const Query query = {{"outputdirectoryid", "stdouterr"}};
  Json page;
  try {
    page = session_.get(path, query);
  } catch (const Error& error) {
    if (is_not_found(error)) return std::nullopt;
    throw;
  }
  const bool has_more = !text_of(page, "nextLink").empty();
  for (const Json& file : has_more ? Json(session_.list(path, query)) : page.at("value")) {
    const std::string name = text_of(file, "name");
    if (text_of(file, "fileType") != "file" || !(files_.empty() ? is_log(name) : files_.contains(name))) continue;
    const Json& properties = file.at("properties");
    read_file(name, text_of(properties, "fileId"), properties.value("contentLength", std::uint64_t{0}));
  }
  return page.value("complete", false);
}

void LogTail::read_file(const std::string& name, const std::string& identity, std::uint64_t size) {
  Shown& shown = shown_[name];
  if (shown.identity != identity || size < shown.bytes) {
    lines_.finish(name);
    shown = {identity, 0};
  }
  while (shown.bytes < size) {
    const std::string bytes = session_
                                  .read(below(path_of(job_), "files", "stdouterr", name), shown.bytes,
                                        std::min(kReadAtOnce, size - shown.bytes))
                                  .bytes;
    if (bytes.empty()) return;
    shown.bytes += bytes.size();
    has_new_ = true;
    lines_.add(name, bytes);
  }
}

bool LogTail::read_all() {
  const bool complete = read_new();
  lines_.finish();
  return complete;
}

void LogTail::follow() {
  for (std::chrono::milliseconds pause = kShortestPause; !read_new();) {
    pause = has_new_ ? kShortestPause : std::min(pause * 2, kLongestPause);
    session_.options().meanwhile();
    ::poll(nullptr, 0, static_cast<int>(pause.count()));
  }
}

}  // namespace gyre::jobs::client
