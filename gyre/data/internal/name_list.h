#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::data::internal {

/// Names by number, in one string: a million strings would take twice as much.
class NameList {
 public:
  void add(std::string_view name) {
    text_ += name;
    ends_.push_back(text_.size());
  }
  std::uint64_t size() const { return ends_.size(); }
  std::string_view at(std::uint64_t number) const {
    const auto index = static_cast<std::size_t>(number);
    const auto begin = static_cast<std::size_t>(index == 0 ? 0 : ends_.at(index - 1));
    return std::string_view(text_).substr(begin, static_cast<std::size_t>(ends_.at(index)) - begin);
  }
  /// All names, one after the other.
  std::string_view text() const { return text_; }

 private:
  std::string text_;
  std::vector<std::uint64_t> ends_;
};

}  // namespace gyre::data::internal
