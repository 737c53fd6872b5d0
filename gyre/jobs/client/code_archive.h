#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::jobs::client {

/// What a folder's .gyreignore (else its .gitignore) leaves out: a line each, as git reads them (`#`, `!`, `/` in front
/// and at the end, `*`, `?`, `[…]`, a leading or a trailing `**`); the last line that matches decides.
class IgnoreRules {
 public:
  explicit IgnoreRules(std::string_view text);

  /// `path`: relative, with `/`.
  bool leaves_out(const std::string& path, bool is_folder) const;

 private:
  struct Rule {
    std::string pattern;
    bool keeps = false;
    bool folders_only = false;
    bool anchored = false;  ///< Else the pattern is one of the name alone.
    bool anywhere = false;  ///< It began with "**/".
  };
  static bool matches(const Rule& rule, const std::string& path);
  std::vector<Rule> rules_;
};

inline constexpr std::uint64_t kMostCodeBytes = std::uint64_t{256} << 20;
inline constexpr std::size_t kMostCodeFiles = 20'000;

struct CodeArchive {
  std::string bytes;  ///< A tar archive (pax).
  std::string sha256;
  std::size_t files = 0;
};

/// The files, folders and links of `folder`, but for what its rules leave out and for .git; the same bytes for the same
/// files. Error(kInvalidArgument) names a link that leads out of it, what is neither file, folder nor link, a file that
/// holds a token or a key of Gyre's, and a folder beyond the limits, with the largest of its parts; Error(kIo).
CodeArchive archive_code(const std::filesystem::path& folder);

}  // namespace gyre::jobs::client
