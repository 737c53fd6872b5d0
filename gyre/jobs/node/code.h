#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace gyre::jobs::node {

/// Of what is unpacked.
struct CodeLimits {
  std::uint64_t bytes = std::uint64_t{8} << 30;
  std::uint64_t entries = 200'000;
};

/// Unpacks the tar archive (ustar, pax, GNU's long names), which anybody may have made, into `folder`, which is made.
/// `archive`: an open descriptor of it. When it throws, the folder does not exist.
///
/// Nothing is written outside: names are relative and without "..", no link is followed, and links lead to places
/// inside; files and folders, and such links, are all that there is. Error(kCorruptData) names the entry, also where
/// the archive does not have that `sha256`; Error(kResourceExhausted) beyond the limits; Error(kIo).
void unpack_code(int archive, const std::string& sha256, const std::filesystem::path& folder,
                 const CodeLimits& limits = {});

/// Whether unpack_code() can unpack it: by its entries alone, without writing anything. Errors as those of
/// unpack_code().
void check_code(int archive, const CodeLimits& limits = {});

/// Of those entries of the archive that are `paths`, or lie below one; missing, or where links lead elsewhere: of all.
/// Two archives have the same if their entries there do. Error(kIo, kCorruptData).
std::string digest_of_code(int archive, std::optional<std::vector<std::string>> paths);

/// The files and links of an archive that was unpacked, to compare with what a job has made of them.
class CodeContent {
 public:
  struct Entry {
    std::string link;                    ///< Where a link leads; empty: it is a file.
    std::span<const std::byte> content;  ///< Of a file, in memory while the CodeContent lives.
  };

  /// `archive`: a file that is open. Error(kIo, kCorruptData).
  explicit CodeContent(int archive);

  /// `path`: relative to the folder of the code. Null where the archive has no file or link there.
  const Entry* find(const std::string& path) const;
  /// The file to which the path leads, perhaps through links. Null: to none of the archive.
  const Entry* file(std::string path) const;

 private:
  std::shared_ptr<const void> archive_;
  std::unordered_map<std::string, Entry> entries_;
};

}  // namespace gyre::jobs::node
