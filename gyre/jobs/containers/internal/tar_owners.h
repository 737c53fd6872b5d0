#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace gyre::jobs::containers::internal {

/// Gives the entries of a tar archive (ustar, with or without PAX headers: POSIX.1-2008, pax) to other owners while it
/// passes through. Nothing else of it changes, not even its length. Not thread-safe.
class TarOwners {
 public:
  using Map = std::function<std::uint32_t(std::uint64_t)>;

  /// `user_of`, `group_of`: the new number of an old one.
  TarOwners(Map user_of, Map group_of);

  /// The next bytes of the archive; returns those that can go on. Error(kCorruptData).
  std::string take(std::string_view bytes);
  /// Whether the end of the archive has passed through.
  bool is_whole() const { return ended_; }

 private:
  static constexpr std::size_t kBlock = 512;

  void take_block();
  void take_header();
  void take_extension();

  const Map user_of_;
  const Map group_of_;
  std::string block_;       ///< What has come of it.
  std::string extension_;   ///< The content of a PAX header.
  std::uint64_t left_ = 0;  ///< Blocks of content that follow.
  std::uint64_t extension_size_ = 0;
  bool is_extension_ = false;        ///< The content is a PAX header's.
  std::string user_, group_, size_;  ///< Of the PAX header before an entry; empty: it has none.
  bool ended_ = false;
  std::string out_;
};

}  // namespace gyre::jobs::containers::internal
