#include "gyre/launch/internal/traceback.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "gyre/launch/internal/tail_buffer.h"

namespace gyre::launch {

namespace {

constexpr std::string_view kHeading = "Traceback (most recent call last):";
/// How torch passes on what was raised in a worker of a DataLoader, below its own error.
constexpr std::string_view kWorkersHeading = "Original Traceback (most recent call last):";
constexpr std::size_t kMostFrames = 2000;  // Python's own limit of depth is 1000.
constexpr std::size_t kLongestSourceBytes = 500;
/// A message of ours about several ranks ends with what to do.
constexpr std::size_t kLongestErrorBytes = TailBuffer::kLongestLineBytes;

enum class Owner { kUser, kPackage, kEngine, kPython };

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

Owner owner_of(std::string_view path) {
  // A checkout's package stands in python/gyre.
  constexpr std::array<std::string_view, 5> kEngines = {"/site-packages/torch/", "/dist-packages/torch/",
                                                        "/site-packages/gyre/", "/dist-packages/gyre/",
                                                        "/python/gyre/"};
  if (std::any_of(kEngines.begin(), kEngines.end(), [&](auto part) { return contains(path, part); })) {
    return Owner::kEngine;
  }
  // What TensorFlow has made of the program's functions: nobody knows these lines.
  if (contains(path, "/__autograph_generated_file")) return Owner::kPackage;
  if (contains(path, "/site-packages/") || contains(path, "/dist-packages/")) return Owner::kPackage;
  const bool library = contains(path, "/lib/python3") || contains(path, "/lib64/python3");
  return library || path.starts_with("<frozen ") ? Owner::kPython : Owner::kUser;
}

std::string shortened(std::string_view text, std::size_t longest) {
  return text.size() <= longest ? std::string(text) : fmt::format("{} …", text.substr(0, longest));
}

std::string_view without_indent(std::string_view line) {
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  return line;
}

/// torch.distributed puts "[rank3]: " in front of each line of a traceback.
std::string_view without_torchs_rank(std::string_view line) {
  constexpr std::string_view kBegin = "[rank";
  constexpr std::string_view kEnd = "]: ";
  if (!line.starts_with(kBegin)) return line;
  const std::size_t end = line.find_first_not_of("0123456789", kBegin.size());
  return line.substr(std::min(end, line.size())).starts_with(kEnd) ? line.substr(end + kEnd.size()) : line;
}

/// ~~~^^^, which Python 3.11 and later draw below the line.
bool is_marks(std::string_view text) { return text.find_first_not_of("~^ ") == std::string_view::npos; }

}  // namespace

void TracebackReader::add(std::string_view line) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  line = without_torchs_rank(line);
  if (line == kHeading || line == kWorkersHeading) {
    frames_.clear();
    inside_ = true;
    marks_may_follow_ = false;
    chained_ = chained_ || line == kWorkersHeading;
    lines_since_ = 0;
    return;
  }
  if (inside_) return add_inside(line);
  ++lines_since_;
  if (line.starts_with("During handling of the above exception") ||
      line.starts_with("The above exception was the direct cause")) {
    chained_ = true;
  }
}

void TracebackReader::add_inside(std::string_view line) {
  constexpr std::string_view kFile = "  File \"";
  constexpr std::string_view kLine = "\", line ";
  constexpr std::string_view kFunction = ", in ";
  if (line.starts_with(kFile)) {
    const std::size_t path_end = line.find(kLine);
    if (path_end == std::string_view::npos || frames_.size() == kMostFrames) return;
    const std::string_view place = line.substr(path_end + kLine.size());
    const std::size_t number_end = std::min(place.find(kFunction), place.size());
    const std::string_view function =
        number_end == place.size() ? std::string_view() : place.substr(number_end + kFunction.size());
    frames_.push_back({std::string(line.substr(kFile.size(), path_end - kFile.size())),
                       std::string(place.substr(0, number_end)),
                       std::string(function),
                       {}});
    marks_may_follow_ = false;
  } else if (line.starts_with(' ')) {
    const bool indented = line.starts_with("    ") && !is_marks(line);
    if (indented && !frames_.empty() && frames_.back().source.empty()) {
      frames_.back().source = shortened(without_indent(line), kLongestSourceBytes);
    }
    marks_may_follow_ = indented;
  } else if (line.empty() && std::exchange(marks_may_follow_, false)) {
    // Python 3.11 draws no mark at all below the first line of a function that Ctrl-C has met there.
  } else {
    inside_ = false;
    if (line.empty()) return;
    child_failed_to_import_ = child_failed_to_import_ || std::ranges::any_of(frames_, imports_script_again);
    PythonError error{.place = {}, .source = {}, .error = shortened(line, kLongestErrorBytes)};
    if (const Frame* frame = users_frame()) {
      error.place = fmt::format("{}:{}", frame->path, frame->line);
      if (!frame->function.empty() && frame->function != "<module>") error.place += ", in " + frame->function;
      error.source = frame->source;
    } else if (chained_ && latest_) {
      error.place = std::move(latest_->place);
      error.source = std::move(latest_->source);
    }
    chained_ = false;
    latest_ = std::move(error);
  }
}

bool TracebackReader::imports_script_again(const Frame& frame) {
  return frame.function.starts_with("_fixup_main_from_") && contains(frame.path, "multiprocessing");
}

const TracebackReader::Frame* TracebackReader::users_frame() const {
  for (const Owner owner : {Owner::kUser, Owner::kPackage}) {
    const auto found = std::find_if(frames_.rbegin(), frames_.rend(),
                                    [&](const Frame& frame) { return owner_of(frame.path) == owner; });
    if (found != frames_.rend()) return &*found;
  }
  return nullptr;
}

}  // namespace gyre::launch
