#include "gyre/net/http/range.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "gyre/net/http/error.h"

namespace gyre::net::http {
namespace {

HttpError refusal(std::string_view why, std::uint64_t size) {
  HttpError error(416, "InvalidRange", fmt::format("the requested range cannot be served: {}", why), "Range");
  error.headers.set("Content-Range", fmt::format("bytes */{}", size));
  return error;
}

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// Decimal digits only.
std::optional<std::uint64_t> parse_position(std::string_view text) {
  std::uint64_t value = 0;
  if (text.empty() || text.front() == '+' || text.front() == '-') return std::nullopt;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Empty when nothing of the range exists.
std::optional<ByteRange> parse_range(std::string_view text, std::uint64_t size) {
  const std::size_t dash = text.find('-');
  if (dash == std::string_view::npos) throw refusal("a range has no '-'", size);
  const std::string_view first_text = text.substr(0, dash);
  const std::string_view last_text = text.substr(dash + 1);
  const auto last = parse_position(last_text);
  if (!last && !last_text.empty()) throw refusal("a position is not a number", size);
  if (first_text.empty()) {
    if (!last) throw refusal("a range has no position", size);
    if (*last == 0 || size == 0) return std::nullopt;
    return ByteRange{size - std::min(*last, size), size - 1};
  }
  const auto first = parse_position(first_text);
  if (!first) throw refusal("a position is not a number", size);
  if (last && *last < *first) throw refusal("a range ends before it begins", size);
  if (*first >= size) return std::nullopt;
  return ByteRange{*first, last ? std::min(*last, size - 1) : size - 1};
}

bool overlap(std::vector<ByteRange> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const ByteRange& a, const ByteRange& b) { return a.first < b.first; });
  return std::adjacent_find(ranges.begin(), ranges.end(),
                            [](const ByteRange& a, const ByteRange& b) { return b.first <= a.last; }) != ranges.end();
}

}  // namespace

std::vector<ByteRange> parse_ranges(std::string_view header, std::uint64_t size) {
  const std::size_t equals = header.find('=');
  if (equals == std::string_view::npos || !equal_without_case(trim(header.substr(0, equals)), "bytes")) return {};
  std::vector<ByteRange> ranges;
  std::size_t asked = 0;
  for (std::string_view rest = header.substr(equals + 1);;) {
    const std::size_t comma = rest.find(',');
    if (++asked > kMostRanges) throw refusal(fmt::format("there are more than {} ranges", kMostRanges), size);
    if (const auto range = parse_range(trim(rest.substr(0, comma)), size)) ranges.push_back(*range);
    if (comma == std::string_view::npos) break;
    rest = rest.substr(comma + 1);
  }
  if (ranges.empty()) throw refusal(fmt::format("there are {} bytes", size), size);
  if (overlap(ranges)) throw refusal("ranges overlap", size);
  return ranges;
}

}  // namespace gyre::net::http
