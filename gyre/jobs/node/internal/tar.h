#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace gyre::jobs::node::internal {

struct TarEntry {
  enum class Kind { kFile, kFolder, kLink };
  Kind kind = Kind::kFile;
  std::string path;  ///< Not empty; relative, without "..", as is what `link` leads to.
  std::string link;
  bool executable = false;
  std::int64_t modified_s = 0;
  std::span<const std::byte> content;
};

/// The entries of a tar archive in memory, in their order. Error(kCorruptData) names the entry.
///
/// Not gyre/data/formats/tar: `jobs` does not include `data` (ARCHITECTURE.md), and the two want the opposite of each
/// other. That one finds samples in files of any program, passes over what is no file, and needs no more than names and
/// places; this one is given what anybody may have uploaded, and refuses all that it does not unpack.
class TarReader {
 public:
  explicit TarReader(std::span<const std::byte> archive) : rest_(archive) {}

  std::optional<TarEntry> next();

 private:
  /// What extended headers said of the entry behind them.
  struct Extended {
    std::optional<std::string> path;
    std::optional<std::string> link;
  };
  std::span<const std::byte> take(std::uint64_t bytes);
  static void read_pax(std::span<const std::byte> content, Extended& extended);

  std::span<const std::byte> rest_;
};

}  // namespace gyre::jobs::node::internal
