#include "gyre/launch/internal/rank_output.h"

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"

namespace gyre::launch {

LineSplitter::Sink RankOutput::sink_for(Stream stream, Output& output) {
  return [this, stream, &output](std::string_view text, LineEnd end) {
    if (is_shown(stream)) output.rank_text(rank_, stream, text, end);
    if (end != LineEnd::kCarriageReturn) tail_.add(text);
    if (!log_) return;
    log_pending_ += text;
    if (end == LineEnd::kNewline) log_pending_ += '\n';
    if (end == LineEnd::kCarriageReturn) log_pending_ += '\r';
  };
}

void RankOutput::add(Stream stream, std::string_view bytes, Output& output) {
  LineSplitter& lines = lines_[static_cast<std::size_t>(stream)];
  const auto sink = sink_for(stream, output);
  if (bytes.empty()) {
    lines.finish(sink);
  } else {
    lines.add(bytes, sink);
    if (rank_ == 0 && is_shown(stream)) output.progress(stream, lines.progress());
  }
  write_log(std::exchange(log_pending_, {}));
}

void RankOutput::write_log(std::string_view text) {
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
