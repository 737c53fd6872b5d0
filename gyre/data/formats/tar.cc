#include "gyre/data/formats/tar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/data/formats/inflate.h"

namespace gyre::data {
namespace {

using Block = std::array<std::byte, kTarBlockBytes>;

constexpr std::uint64_t kMostExtensionBytes = std::uint64_t{1} << 20;  // Of a pax header or a long name.
constexpr std::size_t kChecksumAt = 148;
constexpr std::size_t kHeaderChecksumBytes = 8;
constexpr std::size_t kTypeAt = 156;

/// What an extension says of the entry behind it.
struct Extension {
  std::optional<std::string> name;
  std::optional<std::uint64_t> size_bytes;
  bool sparse = false;
};

/// Up to the first zero.
std::string_view text_at(const Block& block, std::size_t offset, std::size_t size) {
  const std::string_view text = as_text(std::span(block).subspan(offset, size));
  return text.substr(0, text.find('\0'));
}

std::optional<std::uint64_t> parse_number(std::string_view text, int base) {
  const auto is_space = [](char c) { return c == ' ' || c == '\0'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  std::uint64_t value = 0;
  if (text.empty()) return value;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Octal digits, or GNU's binary form for what these cannot say.
std::optional<std::uint64_t> number_at(const Block& block, std::size_t offset, std::size_t size) {
  const auto first = std::to_integer<std::uint8_t>(block[offset]);
  if ((first & 0x80) == 0) return parse_number(as_text(std::span(block).subspan(offset, size)), 8);
  std::uint64_t value = first & 0x7f;
  for (std::size_t i = 1; i < size; ++i) {
    if (value >> 55 != 0) return std::nullopt;
    value = value << 8 | std::to_integer<std::uint8_t>(block[offset + i]);
  }
  return value;
}

bool is_zero(const Block& block) {
  return std::ranges::all_of(block, [](std::byte byte) { return byte == std::byte{0}; });
}

/// Old programs summed signed bytes.
bool checksum_is_right(const Block& block) {
  std::uint64_t sum = 0;
  std::int64_t signed_sum = 0;
  for (std::size_t i = 0; i < block.size(); ++i) {
    const bool within = i >= kChecksumAt && i < kChecksumAt + kHeaderChecksumBytes;
    const auto value = within ? std::uint8_t{' '} : std::to_integer<std::uint8_t>(block[i]);
    sum += value;
    signed_sum += static_cast<std::int8_t>(value);
  }
  const auto stored = number_at(block, kChecksumAt, kHeaderChecksumBytes);
  return stored && (*stored == sum || static_cast<std::int64_t>(*stored) == signed_sum);
}

class TarIndexer {
 public:
  explicit TarIndexer(const ReadableFile& file) : file_(file) {}

  std::vector<TarMember> run();

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw Error(ErrorCode::kCorruptData, fmt::format("{}: the entry at byte {} {}", file_.name(), entry_at_, what));
  }
  [[noreturn]] void fail_at_start(const Block& block) const;
  bool read_header(Block& block);
  void take_entry(const Block& block);
  void read_pax(std::uint64_t size_bytes);
  std::string read_text(std::uint64_t size_bytes) const;
  std::string name_of(const Block& block);

  const ReadableFile& file_;
  std::uint64_t entry_at_ = 0;
  std::uint64_t entries_ = 0;
  std::uint64_t next_ = 0;  // Behind the header, then behind the contents.
  Extension extension_;
  std::vector<TarMember> members_;
};

void TarIndexer::fail_at_start(const Block& block) const {
  const Compression compression = sniff_compression(block);
  if (compression == Compression::kGzip || as_text(block).starts_with("\x28\xb5\x2f\xfd") ||
      as_text(block).starts_with("BZh") ||
      as_text(block).starts_with("\xfd"
                                 "7zXZ")) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("{} is a compressed archive, in which no sample can be found without unpacking all in front "
                    "of it; decompress it (images do not become smaller by it)",
                    file_.name()));
  }
  throw Error(ErrorCode::kCorruptData, fmt::format("{} is damaged, or not a tar archive: its first entry has a wrong "
                                                   "checksum",
                                                   file_.name()));
}

/// False at the end of the file.
bool TarIndexer::read_header(Block& block) {
  bool ended = false;  // Behind a block of zeros; there may be more of them, and another archive.
  do {
    entry_at_ = next_;
    const std::uint64_t left = file_.size_bytes() - entry_at_;
    if (left == 0 && (ended || entry_at_ == 0)) return false;
    if (left == 0) {
      throw Error(
          ErrorCode::kCorruptData,
          fmt::format("{} ends at byte {} behind entry {} without the block of zeros that ends an archive: it was "
                      "cut off",
                      file_.name(), entry_at_, entries_));
    }
    if (left < kTarBlockBytes) {
      if (entry_at_ == 0) {
        throw Error(ErrorCode::kCorruptData,
                    fmt::format("{} has {} bytes: it is not a tar archive", file_.name(), left));
      }
      fail("is cut off");
    }
    file_.read_at(entry_at_, block);
    ended = is_zero(block);
    next_ += kTarBlockBytes;
  } while (ended);
  if (!checksum_is_right(block)) {
    if (entry_at_ == 0) fail_at_start(block);
    fail("has a wrong checksum");
  }
  ++entries_;
  return true;
}

std::string TarIndexer::read_text(std::uint64_t size_bytes) const {
  if (size_bytes > kMostExtensionBytes) fail(fmt::format("is a header of {} bytes", size_bytes));
  std::string text(static_cast<std::size_t>(size_bytes), '\0');
  file_.read_at(next_, std::as_writable_bytes(std::span(text)));
  return text;
}

/// "LENGTH KEY=VALUE\n" again and again; LENGTH counts all of it.
void TarIndexer::read_pax(std::uint64_t size_bytes) {
  const std::string text = read_text(size_bytes);
  std::string_view left = text;
  while (!left.empty() && left.front() != '\0') {
    const std::size_t space = left.find(' ');
    const auto length = space == std::string_view::npos ? std::nullopt : parse_number(left.substr(0, space), 10);
    if (!length || *length <= space + 1 || *length > left.size() || left[*length - 1] != '\n') {
      fail("is a pax header that cannot be read");
    }
    const std::string_view record = left.substr(space + 1, static_cast<std::size_t>(*length) - space - 2);
    left.remove_prefix(static_cast<std::size_t>(*length));
    const std::size_t equals = record.find('=');
    if (equals == std::string_view::npos) fail("is a pax header that cannot be read");
    const std::string_view key = record.substr(0, equals);
    const std::string_view value = record.substr(equals + 1);
    if (key == "path") extension_.name = std::string(value);
    if (key == "size") {
      extension_.size_bytes = parse_number(value, 10);
      if (!extension_.size_bytes) fail("is a pax header with a size that is not a number");
    }
    if (key.starts_with("GNU.sparse.")) extension_.sparse = true;
  }
}

std::string TarIndexer::name_of(const Block& block) {
  if (extension_.name) return *std::exchange(extension_.name, std::nullopt);
  const std::string_view name = text_at(block, 0, 100);
  const bool ustar = as_text(block).substr(257, 6) == std::string_view("ustar\0", 6);
  const std::string_view prefix = ustar ? text_at(block, 345, 155) : std::string_view{};
  return prefix.empty() ? std::string(name) : fmt::format("{}/{}", prefix, name);
}

void TarIndexer::take_entry(const Block& block) {
  const char type = static_cast<char>(block[kTypeAt]);
  auto size = number_at(block, 124, 12);
  if (!size) fail("has a size that is not a number");
  const bool is_extension = type == 'x' || type == 'g' || type == 'L' || type == 'K';
  if (!is_extension && extension_.size_bytes) size = extension_.size_bytes;
  const bool has_contents = type != '1' && type != '2' && type != '3' && type != '4' && type != '5' && type != '6';
  if (!has_contents) size = 0;
  if (*size > file_.size_bytes() - next_) {
    fail(fmt::format("has {} bytes of which the file holds {}: it was cut off", *size, file_.size_bytes() - next_));
  }
  if (type == 'x') {
    read_pax(*size);
  } else if (type == 'L') {
    const std::string name = read_text(*size);
    extension_.name = name.substr(0, name.find('\0'));
  } else if (!is_extension) {
    if (type == 'S' || extension_.sparse) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("{}: the entry at byte {} is a sparse file; pack it anew without "
                              "--sparse",
                              file_.name(), entry_at_));
    }
    if (type == '0' || type == '\0' || type == '7') members_.push_back({name_of(block), next_, *size});
    extension_ = {};
  }
  const std::uint64_t padded = (*size + kTarBlockBytes - 1) / kTarBlockBytes * kTarBlockBytes;
  next_ += std::min(padded, file_.size_bytes() - next_);
}

std::vector<TarMember> TarIndexer::run() {
  for (Block block; read_header(block);) take_entry(block);
  return std::move(members_);
}

}  // namespace

std::vector<TarMember> index_tar(const ReadableFile& file) { return TarIndexer(file).run(); }

bool is_tar_header(std::span<const std::byte> first) {
  if (first.size() < kTarBlockBytes) return false;
  Block block;
  std::ranges::copy(first.first(kTarBlockBytes), block.begin());
  return !is_zero(block) && checksum_is_right(block);
}

}  // namespace gyre::data
