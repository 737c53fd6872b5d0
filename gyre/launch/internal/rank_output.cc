#include "gyre/launch/internal/rank_output.h"

#include <fmt/format.h>

#include <algorithm>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/launch/internal/report.h"

namespace gyre::launch {

namespace {

constexpr std::size_t kMostHeldBytes = std::size_t{256} << 10;
constexpr std::chrono::seconds kLongestHold{2};
constexpr std::chrono::seconds kLongestHoldOfGyresErrors{15};

}  // namespace

LineSplitter::Sink RankOutput::sink_for(Stream stream, Output& output) {
  return [this, stream, &output](std::string_view text, LineEnd end) {
    show(stream, text, end, output);
    if (end != LineEnd::kCarriageReturn) tail_.add(text);
    if (!log_ && !keeps_log_) return;
    log_pending_ += text;
    if (end == LineEnd::kNewline) log_pending_ += '\n';
    if (end == LineEnd::kCarriageReturn) log_pending_ += '\r';
  };
}

void RankOutput::show(Stream stream, std::string_view text, LineEnd end, Output& output) {
  bool wait = false;
  if (stream == Stream::kStderr && end != LineEnd::kCarriageReturn) {
    const bool was_inside = traceback_.inside();
    traceback_.add(text);
    watchdog_.add(text);
    wait = holds_tracebacks_ && (was_inside || traceback_.inside() || !held_.empty());
  }
  if (!is_shown(stream)) return;
  if (!wait) return output.rank_text(rank_, stream, text, end);
  if (held_.empty()) held_since_ = SteadyClock::now();
  held_.push_back({std::string(text), end});
  held_bytes_ += text.size();
  if (held_bytes_ > kMostHeldBytes) release(output);
}

bool RankOutput::has_unfinished_line() const {
  return std::ranges::any_of(lines_, [](const LineSplitter& each) { return !each.unfinished().empty(); });
}

void RankOutput::show_prompt(Output& output) {
  for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
    LineSplitter& lines = lines_[static_cast<std::size_t>(stream)];
    if (output.is_terminal(stream)) {
      if (!is_shown(stream) || lines.unfinished().empty()) continue;
      output.progress(rank_, stream, lines.unfinished());
      prompt_shown_[static_cast<std::size_t>(stream)] = true;
    } else {
      lines.cut(sink_for(stream, output));
    }
  }
  write_log(std::exchange(log_pending_, {}));
}

void RankOutput::end_prompt(Output& output) {
  for (std::size_t stream = 0; stream < kStreams; ++stream) {
    if (!std::exchange(prompt_shown_[stream], false)) continue;
    lines_[stream].cut([this](std::string_view text, LineEnd) {
      tail_.add(text);
      log_pending_ += text;
    });
    output.keep_progress();
  }
  write_log(std::exchange(log_pending_, {}));
}

std::optional<SteadyClock::time_point> RankOutput::held_until() const {
  if (held_.empty()) return std::nullopt;
  const bool of_gyre = traceback_.latest() && traceback_.latest()->error.starts_with("gyre.errors.");
  return held_since_ + (of_gyre ? kLongestHoldOfGyresErrors : kLongestHold);
}

void RankOutput::release(Output& output) {
  for (const auto& [text, end] : std::exchange(held_, {})) output.rank_text(rank_, Stream::kStderr, text, end);
  held_bytes_ = 0;
}

void RankOutput::fold(Output& output, const std::string& folder) {
  if (held_.empty()) return;
  const auto& error = traceback_.latest();
  std::string text;
  if (error && !traceback_.inside()) {
    if (!error->place.empty()) text = place_seen_from(folder, error->place) + ": ";
    text += error->error + " ";
  }
  text += fmt::format("(a traceback of {} lines is folded; -v shows it)", held_.size());
  held_.clear();
  held_bytes_ = 0;
  output.rank_text(rank_, Stream::kStderr, text, LineEnd::kNewline);
}

void RankOutput::add(Stream stream, std::string_view bytes, Output& output) {
  LineSplitter& lines = lines_[static_cast<std::size_t>(stream)];
  prompt_shown_[static_cast<std::size_t>(stream)] = false;
  const auto sink = sink_for(stream, output);
  if (bytes.empty()) {
    lines.finish(sink);
  } else {
    lines.add(bytes, sink);
    if (rank_ == 0 && is_shown(stream)) output.progress(rank_, stream, lines.progress());
  }
  write_log(std::exchange(log_pending_, {}));
}

void RankOutput::write_log(std::string_view text) {
  if (keeps_log_) kept_log_ += text;
  if (!log_ || text.empty()) return;
  try {
    write_all(log_.get(), as_bytes(text), "cannot write");
  } catch (const Error& error) {
    // A full disk must not end a training that needs none of these lines; the console reports it, once.
    log_failure_ = error.what();
    log_.reset();
  }
}

}  // namespace gyre::launch
