#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gyre/data/readable_file.h"

namespace gyre::data {

/// A file within an archive.
struct TarMember {
  std::string name;
  std::uint64_t offset_bytes = 0;  ///< Of its contents.
  std::uint64_t size_bytes = 0;
};

/// The regular files of a tar archive that is not compressed, in its order: v7, ustar, pax and GNU's long names.
/// Folders, links and devices are passed over. Archives that were appended to one another ("cat a.tar b.tar") are read
/// like one. An archive ends with a block of zeros: without it, it was cut off. Error(kCorruptData) names the archive,
/// the entry's place, and what is wrong there; kUnsupported: compressed or sparse. Source of the formats: POSIX.1-2017,
/// pax; GNU tar's manual, "Basic Tar Format".
std::vector<TarMember> index_tar(const ReadableFile& file);

/// Whether `first`, the first 512 bytes of a file, are an entry of an archive.
bool is_tar_header(std::span<const std::byte> first);

inline constexpr std::uint64_t kTarBlockBytes = 512;

}  // namespace gyre::data
