#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gyre::jobs::node {

/// Replaces secrets in a stream of bytes by "***", also where a secret comes in pieces. What can be the beginning of a
/// secret is held back until more comes, or the stream ends. The same stream gives the same result, however it is cut.
class Redactor {
 public:
  /// Empty secrets are ignored.
  explicit Redactor(std::vector<std::string> secrets);

  std::string pass(std::string_view bytes);
  /// At the end of the stream: what was held back.
  std::string finish();

 private:
  /// Cuts what is certain from the front of `held_`.
  std::string take(bool at_end);

  std::vector<std::string> secrets_;  // The longest first: one may begin with another.
  std::string held_;
};

}  // namespace gyre::jobs::node
