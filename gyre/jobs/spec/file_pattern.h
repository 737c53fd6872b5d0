#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::jobs::spec {

/// Which files of a folder are meant, as a line of .gitignore says it: `*`, `?`, `[a-z]`, `[!a-z]`, and `\` in front of
/// a character that means itself. A pattern without a slash is for names at any depth ("*.pt"); one with a slash, or
/// with "./" in front, is for paths from the folder on, in which `**` stands for any number of folders
/// ("out/**/*.csv"). A folder stands for all files below it ("out"), "." for all of them; a slash at the end means
/// folders alone.
class FilePattern {
 public:
  static constexpr std::size_t kLongest = 1024;

  /// Error(kInvalidArgument) as refusal_of().
  explicit FilePattern(const std::string& text);

  /// "'/x' is absolute; …", where the text cannot be a pattern; else empty.
  static std::string refusal_of(std::string_view text);

  const std::string& text() const { return text_; }
  /// `path`: of a file, relative to the folder, with "/". Takes at most as many steps as the product of both lengths
  /// and the depth.
  bool matches(std::string_view path) const;

 private:
  std::string text_;
  std::vector<std::string> segments_;  ///< Empty: all files.
  bool folders_only_ = false;
  bool anchored_ = false;  ///< Else it has one segment, for the names alone.
};

}  // namespace gyre::jobs::spec
