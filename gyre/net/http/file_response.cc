#include "gyre/net/http/file_response.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/base/random.h"
#include "gyre/net/http/error.h"
#include "gyre/net/http/internal/file_bytes.h"
#include "gyre/net/http/range.h"

namespace gyre::net::http {
namespace {

using internal::read_at;
using internal::status_of;

/// Ranges of a file, each with what stands before it, and what stands after the last one.
class FileRanges : public BodySource {
 public:
  struct Part {
    std::string before;
    ByteRange range;
  };

  FileRanges(UniqueFd file, std::vector<Part> parts, std::string after)
      : file_(std::move(file)), parts_(std::move(parts)), after_(std::move(after)) {}

  std::uint64_t bytes() const {
    std::uint64_t sum = after_.size();
    for (const Part& part : parts_) sum += part.before.size() + part.range.bytes();
    return sum;
  }

  Piece read(std::size_t most_bytes) override {
    Piece piece;
    while (piece.bytes.size() < most_bytes && part_ < parts_.size()) {
      const Part& part = parts_[part_];
      if (!std::exchange(separated_, true)) piece.bytes += part.before;
      if (piece.bytes.size() >= most_bytes) break;  // A separator is short: a piece may be longer by one.
      const std::uint64_t left = part.range.bytes() - sent_;
      const std::string bytes =
          read_at(file_, part.range.first + sent_, std::min<std::uint64_t>(left, most_bytes - piece.bytes.size()));
      if (bytes.empty()) throw Error(ErrorCode::kIo, "the file became shorter while it was sent");
      piece.bytes += bytes;
      sent_ += bytes.size();
      if (sent_ == part.range.bytes()) {
        ++part_;
        sent_ = 0;
        separated_ = false;
      }
    }
    piece.end = part_ == parts_.size();
    if (piece.end) piece.bytes += after_;
    return piece;
  }

 private:
  UniqueFd file_;
  std::vector<Part> parts_;
  std::string after_;
  std::size_t part_ = 0;
  bool separated_ = false;  // What stands before the current part is sent.
  std::uint64_t sent_ = 0;  // Of the current part's range.
};

std::string entity_tag(const struct stat& status) {
  return fmt::format("\"{:x}-{:x}-{:x}.{:x}\"", status.st_ino, status.st_size, status.st_mtim.tv_sec,
                     status.st_mtim.tv_nsec);
}

bool names(const std::string& header, const std::string& tag) {
  return header == "*" || header.find(tag) != std::string::npos;
}

std::string make_boundary() {
  std::array<std::byte, 16> random;
  fill_with_secure_random(random);
  std::string boundary = "gyre";
  for (const std::byte byte : random) boundary += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return boundary;
}

std::string content_range(const ByteRange& range, std::uint64_t size) {
  return fmt::format("bytes {}-{}/{}", range.first, range.last, size);
}

void send(Response& response, UniqueFd file, std::vector<FileRanges::Part> parts, std::string after = {}) {
  auto source = std::make_shared<FileRanges>(std::move(file), std::move(parts), std::move(after));
  response.source_bytes = source->bytes();
  response.source = std::move(source);
}

void send_several(Response& response, UniqueFd file, const std::vector<ByteRange>& ranges, std::uint64_t size,
                  std::string_view content_type) {
  const std::string boundary = make_boundary();
  std::vector<FileRanges::Part> parts;
  for (const ByteRange& range : ranges) {
    parts.push_back({fmt::format("{}--{}\r\nContent-Type: {}\r\nContent-Range: {}\r\n\r\n", parts.empty() ? "" : "\r\n",
                                 boundary, content_type, content_range(range, size)),
                     range});
  }
  response.headers.set("Content-Type", fmt::format("multipart/byteranges; boundary={}", boundary));
  send(response, std::move(file), std::move(parts), fmt::format("\r\n--{}--\r\n", boundary));
}

}  // namespace

Response file_response(const Request& request, UniqueFd file, std::string_view content_type) {
  const struct stat status = status_of(file);
  if (!S_ISREG(status.st_mode)) throw HttpError(404, "NotAFile", "this is not a regular file");
  const auto size = static_cast<std::uint64_t>(status.st_size);
  const std::string tag = entity_tag(status);
  Response response;
  response.headers = {{"Content-Type", std::string(content_type)}, {"Accept-Ranges", "bytes"}, {"ETag", tag}};
  if (const std::string* known = request.headers.find("If-None-Match"); known != nullptr && names(*known, tag)) {
    response.status = 304;
    return response;
  }
  std::vector<ByteRange> ranges;
  const std::string* only_if = request.headers.find("If-Range");
  if (const std::string* header = request.headers.find("Range"); header && (!only_if || *only_if == tag)) {
    ranges = parse_ranges(*header, size);
  }
  if (ranges.empty()) {
    std::vector<FileRanges::Part> whole;
    if (size > 0) whole.push_back({"", {0, size - 1}});
    send(response, std::move(file), std::move(whole));
    return response;
  }
  response.status = 206;
  if (ranges.size() > 1) {
    send_several(response, std::move(file), ranges, size, content_type);
    return response;
  }
  response.headers.set("Content-Range", content_range(ranges.front(), size));
  send(response, std::move(file), {{"", ranges.front()}});
  return response;
}

}  // namespace gyre::net::http
