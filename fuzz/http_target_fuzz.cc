// Targets, ranges and events come from clients: whatever they say, there is one reading of it, or one refusal.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

#include "gyre/base/error.h"
#include "gyre/net/http/error.h"
#include "gyre/net/http/event_stream.h"
#include "gyre/net/http/range.h"
#include "gyre/net/http/target.h"
#include "gyre/net/http/utf8.h"

namespace {

using namespace gyre::net::http;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_target(std::string_view text) {
  try {
    const Target target = parse_target(text);
    for (const std::string& segment : target.segments) {
      require(is_utf8(segment) && !segment.empty() && segment != "." && segment != "..");
      require(segment.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos);
    }
    const std::string again = to_string(target);
    if (again.size() <= kMostTargetBytes) require(parse_target(again) == target);
  } catch (const HttpError& error) {
    require(error.status() == 400 || error.status() == 414);
  }
}

void check_ranges(std::string_view text, std::uint64_t size) {
  try {
    const auto ranges = parse_ranges(text, size);
    require(ranges.size() <= kMostRanges);
    std::uint64_t sum = 0;
    for (const ByteRange& range : ranges) {
      require(range.first <= range.last && range.last < size);
      sum += range.bytes();
    }
    require(sum <= size);
  } catch (const HttpError& error) {
    require(error.status() == 416);
  }
}

void check_events(std::string_view text, std::size_t cut) {
  EventParser whole;
  EventParser parts;
  whole.append(text);
  parts.append(text.substr(0, cut));
  parts.append(text.substr(cut));
  for (;;) {
    const auto event = whole.next();
    require(event == parts.next());
    if (!event) break;
  }
  require(whole.last_id() == parts.last_id());
}

void check_characters(std::string_view text) {
  const std::size_t whole = whole_characters(text);
  require(whole <= text.size() && text.size() - whole <= 3);
  if (is_utf8(text)) require(whole == text.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 2), size - 2);
  check_target(text);
  check_ranges(text, data[0] * 256U + data[1]);
  check_events(text, data[0] % (text.size() + 1));
  check_characters(text);
  return 0;
}
