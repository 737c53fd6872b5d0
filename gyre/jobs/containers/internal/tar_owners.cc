#include "gyre/jobs/containers/internal/tar_owners.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "gyre/base/error.h"

namespace gyre::jobs::containers::internal {

namespace {

struct Field {
  std::size_t at;
  std::size_t length;
};
constexpr Field kUser{108, 8};
constexpr Field kGroup{116, 8};
constexpr Field kSize{124, 12};
constexpr Field kSum{148, 8};
constexpr std::size_t kType = 156;
constexpr std::uint64_t kLongestExtension = 1 << 20;

[[noreturn]] void refuse(const char* what) {
  throw Error(ErrorCode::kCorruptData, std::string("the archive of the image cannot be read: ") + what);
}

/// Octal digits; or, where the first bit is set, a number in base 256.
std::uint64_t number_in(const std::string& block, Field field) {
  const std::string_view text(block.data() + field.at, field.length);
  std::uint64_t number = 0;
  if ((static_cast<unsigned char>(text.front()) & 0x80U) != 0) {
    for (const char c : text.substr(1)) number = number << 8U | static_cast<unsigned char>(c);
    return number;
  }
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos || text[first] == '\0') return 0;
  const auto [end, failure] = std::from_chars(text.data() + first, text.data() + text.size(), number, 8);
  if (failure != std::errc()) refuse("a header has a number that is none");
  return number;
}

void put_octal(std::string& block, Field field, std::uint64_t number) {
  for (std::size_t i = field.length - 1; i-- > 0; number >>= 3U) {
    block[field.at + i] = static_cast<char>('0' + (number & 7U));
  }
  block[field.at + field.length - 1] = '\0';
}

void put_number(std::string& block, Field field, std::uint64_t number) {
  if (number < (std::uint64_t{1} << (3 * (field.length - 1)))) return put_octal(block, field, number);
  for (std::size_t i = field.length; i-- > 1; number >>= 8U) {
    block[field.at + i] = static_cast<char>(number & 0xFFU);
  }
  block[field.at] = static_cast<char>(0x80);
}

void put_sum(std::string& block) {
  std::fill_n(block.begin() + kSum.at, kSum.length, ' ');
  std::uint64_t sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  put_octal(block, {kSum.at, kSum.length - 1}, sum);
}

std::uint64_t decimal(const std::string& text) {
  std::uint64_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || end != text.data() + text.size()) refuse("a PAX header has a number that is none");
  return number;
}

}  // namespace

TarOwners::TarOwners(Map user_of, Map group_of) : user_of_(std::move(user_of)), group_of_(std::move(group_of)) {}

std::string TarOwners::take(std::string_view bytes) {
  while (!bytes.empty()) {
    const bool whole_content = !is_extension_ && left_ > 0 && block_.empty() && bytes.size() >= kBlock;
    if (whole_content) {
      const std::uint64_t count = std::min<std::uint64_t>(left_, bytes.size() / kBlock);
      out_.append(bytes.substr(0, count * kBlock));
      bytes.remove_prefix(count * kBlock);
      left_ -= count;
      continue;
    }
    const std::size_t count = std::min(kBlock - block_.size(), bytes.size());
    block_.append(bytes.substr(0, count));
    bytes.remove_prefix(count);
    if (block_.size() < kBlock) break;
    take_block();
    block_.clear();
  }
  return std::exchange(out_, {});
}

void TarOwners::take_block() {
  if (left_ == 0) {
    take_header();
  } else if (is_extension_) {
    extension_ += block_;
    if (--left_ == 0) take_extension();
    return;
  } else {
    --left_;
  }
  out_ += block_;
}

void TarOwners::take_header() {
  if (block_.find_first_not_of('\0') == std::string::npos) {
    ended_ = true;
    return;
  }
  if (ended_) refuse("something follows its end");
  const char type = block_[kType];
  const std::uint64_t size = size_.empty() ? number_in(block_, kSize) : decimal(size_);
  is_extension_ = type == 'x';
  left_ = (size + kBlock - 1) / kBlock;
  if (is_extension_) {
    if (size > kLongestExtension) refuse("a PAX header is too long");
    extension_size_ = size;
    return;
  }
  if (type == 'L' || type == 'K' || type == 'g') return;  // What follows belongs to the entry after it.
  put_number(block_, kUser, user_of_(user_.empty() ? number_in(block_, kUser) : decimal(user_)));
  put_number(block_, kGroup, group_of_(group_.empty() ? number_in(block_, kGroup) : decimal(group_)));
  put_sum(block_);
  user_.clear();
  group_.clear();
  size_.clear();
  // Links and devices have none, whatever their header says.
  if (type >= '1' && type <= '6') left_ = 0;
}

/// Records "LENGTH KEY=VALUE\n". What they say of owners becomes a key that nobody reads: its place is the header.
void TarOwners::take_extension() {
  for (std::size_t at = 0; at < extension_size_;) {
    std::size_t length = 0;
    const char* const begin = extension_.data() + at;
    const auto [end, failure] = std::from_chars(begin, extension_.data() + extension_size_, length);
    const std::size_t key = static_cast<std::size_t>(end - begin) + 1;
    if (failure != std::errc() || length <= key || at + length > extension_size_) refuse("a PAX header is broken");
    const std::string_view record(begin + key, length - key - 1);
    const std::size_t equals = record.find('=');
    if (equals == std::string_view::npos) refuse("a PAX header is broken");
    const std::string_view name = record.substr(0, equals);
    const std::string value(record.substr(equals + 1));
    if (name == "size") size_ = value;
    if (name == "uid") user_ = value;
    if (name == "gid") group_ = value;
    if (name == "uid" || name == "gid") extension_[at + key] = 'x';
    at += length;
  }
  out_ += extension_;
  extension_.clear();
}

}  // namespace gyre::jobs::containers::internal
