#include "gyre/jobs/client/log_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "gyre/net/http/utf8.h"

namespace gyre::jobs::client {

namespace {

constexpr std::array<std::string_view, 2> kStreams{"stdout", "stderr"};
constexpr std::string_view kEnding = ".txt";

}  // namespace

bool is_log(std::string_view name) {
  if (!name.ends_with(kEnding)) return false;
  return name.starts_with(kStreams[0]) || name.starts_with(kStreams[1]);
}

std::string_view last_lines(std::string_view text, std::size_t most) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  std::size_t end = text.size();  // Of the lines before those that are wanted.
  for (; most > 0; --most) {
    end = end == 0 ? std::string_view::npos : text.rfind('\n', end - 1);
    if (end == std::string_view::npos) return text;
  }
  return text.substr(std::min(end + 1, text.size()));
}

std::string_view last_line(std::string_view tail, std::optional<int> rank) {
  const std::string mark = rank ? fmt::format("[{}]", *rank) : "";
  while (!tail.empty()) {
    const std::size_t begin = tail.rfind('\n', tail.size() - 1) + 1;  // 0 behind npos.
    std::string_view line = tail.substr(begin);
    tail.remove_suffix(tail.size() - (begin == 0 ? 0 : begin - 1));
    if (!line.starts_with(mark)) continue;
    line.remove_prefix(mark.size());
    if (!mark.empty()) line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    while (line.ends_with('\r')) line.remove_suffix(1);
    line.remove_prefix(line.rfind('\r') + 1);  // The last state of a progress bar.
    if (line.find_first_not_of(" \t") != std::string_view::npos) return line;
  }
  return {};
}

/// "job_prep" of "stdout-job_prep.txt"; empty of "stdout.txt".
std::string_view LogLines::label_of(std::string_view file) const {
  if (!labelled_ || !is_log(file)) return "";
  file.remove_prefix(kStreams[0].size());
  file.remove_suffix(kEnding.size());
  if (file.starts_with('-')) file.remove_prefix(1);
  return file;
}

LogStream LogLines::stream_of(std::string_view file) const {
  return labelled_ && file.starts_with(kStreams[1]) ? LogStream::kError : LogStream::kOut;
}

void LogLines::add(const std::string& file, std::string_view bytes) {
  std::string& text = unfinished_[file];
  text += bytes;
  const std::string_view label = label_of(file);
  if (label.empty()) {
    const std::size_t whole = net::http::whole_characters(text);
    if (whole > 0) sink_(stream_of(file), std::string_view(text).substr(0, whole));
    text.erase(0, whole);
    return;
  }
  std::string lines;
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    lines += fmt::format("[{}] {}\n", label, std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
  }
  text.erase(0, begin);
  if (!lines.empty()) sink_(stream_of(file), lines);
}

void LogLines::finish(const std::string& file) {
  const std::string text = std::exchange(unfinished_[file], "");
  if (text.empty()) return;
  const std::string_view label = label_of(file);
  sink_(stream_of(file), label.empty() ? text : fmt::format("[{}] {}\n", label, text));
}

void LogLines::finish() {
  for (const auto& [file, text] : unfinished_) finish(file);
}

}  // namespace gyre::jobs::client
