#include "gyre/store/sources/source.h"

#include <fmt/format.h>

#include <algorithm>

#include "gyre/base/error.h"
#include "gyre/base/parse.h"
#include "gyre/store/sources/object_putter.h"

namespace gyre::store {

namespace {

constexpr std::size_t kMostNameBytes = 4'000;
constexpr std::size_t kMostPartBytes = 255;

bool is_control(char character) { return static_cast<unsigned char>(character) < 0x20 || character == 0x7f; }

/// What is wrong with one part of a name; empty where nothing is.
std::string_view trouble(const std::string& part) {
  if (part.empty()) return "a part of it is empty";
  if (part == "." || part == "..") return "it could lead out of the folder that it is written to";
  if (part.size() > kMostPartBytes) return "a part of it is longer than 255 bytes";
  return {};
}

}  // namespace

std::unique_ptr<ObjectPutter> Source::putter(const ReadLimits&, std::chrono::milliseconds) const {
  throw Error(ErrorCode::kUnsupported,
              fmt::format("{} cannot be written to; containers of Azure Blob Storage and buckets of S3 can", name()));
}

void check_object_name(const std::string& name, const std::string& source) {
  std::string_view wrong;
  if (name.size() > kMostNameBytes) wrong = "it is longer than 4,000 bytes";
  if (std::ranges::any_of(name, is_control)) wrong = "it holds a control character";
  for (const std::string& part : split(name, '/')) {
    if (wrong.empty()) wrong = trouble(part);
  }
  if (wrong.empty()) return;
  std::string shown = name.substr(0, 200);
  std::ranges::replace_if(shown, is_control, '?');
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} holds an object that no file can be named after, '{}': {}", source, shown, wrong));
}

}  // namespace gyre::store
