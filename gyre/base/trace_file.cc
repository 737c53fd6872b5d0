#include "gyre/base/trace_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"

namespace gyre {

namespace {

constexpr std::string_view kOpening = "[\n";
/// Longer than any line that is written at once.
constexpr std::int64_t kTailBytes = 1 << 20;

bool write_at(int fd, std::string_view text, std::int64_t offset) {
  const ssize_t count = ::pwrite(fd, text.data(), text.size(), offset);
  if (count >= 0 && count < static_cast<ssize_t>(text.size())) errno = ENOSPC;
  return count == static_cast<ssize_t>(text.size());
}

std::string read_at(int fd, std::int64_t offset, std::int64_t count) {
  std::string text(static_cast<std::size_t>(count), '\0');
  const ssize_t got = ::pread(fd, text.data(), text.size(), offset);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return text;
}

}  // namespace

TraceFile::TraceFile(const std::filesystem::path& path, std::string_view first_event)
    : path_(path.string()), file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  const std::string what = fmt::format("cannot write the trace {}", path_);
  if (!file_) throw system_error(what, errno);
  const std::string text = fmt::format("{}{}{}", kOpening, first_event, kTraceClosing);
  write_all(file_.get(), as_bytes(text), what);
  closing_offset_ = static_cast<std::int64_t>(text.size() - kTraceClosing.size());
}

void TraceFile::append(std::string_view events) {
  if (write_at(file_.get(), fmt::format("{}{}", events, kTraceClosing), closing_offset_)) {
    closing_offset_ += static_cast<std::int64_t>(events.size());
    return;
  }
  const Error failure = system_error(fmt::format("cannot write the trace {}", path_), errno);
  const bool restored =
      ::ftruncate(file_.get(), closing_offset_) == 0 && write_at(file_.get(), kTraceClosing, closing_offset_);
  if (!restored) throw Error(failure.code(), fmt::format("{}; it lacks its closing bracket", failure.what()));
  throw failure;
}

bool complete_trace_file(const std::filesystem::path& path) {
  const UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  const std::int64_t size = file ? ::lseek(file.get(), 0, SEEK_END) : 0;
  if (size < static_cast<std::int64_t>(kOpening.size()) ||
      read_at(file.get(), 0, static_cast<std::int64_t>(kOpening.size())) != kOpening) {
    return false;
  }
  const std::int64_t start = std::max<std::int64_t>(0, size - kTailBytes);
  const std::string tail = read_at(file.get(), start, size - start);
  if (std::string_view(tail).ends_with(kTraceClosing)) return true;
  // The last line that is whole ends in "}," and a newline, or in "}" and the torn start of the closing.
  const std::size_t separator = tail.rfind("},\n");
  const std::size_t end = separator == std::string::npos ? tail.rfind('}') : separator;
  if (end == std::string::npos) return false;
  const auto closing = start + static_cast<std::int64_t>(end) + 1;
  return ::ftruncate(file.get(), closing) == 0 && write_at(file.get(), kTraceClosing, closing);
}

}  // namespace gyre
