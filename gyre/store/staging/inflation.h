#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "gyre/data/formats/inflate.h"

namespace gyre::store {

struct WrittenFile {
  std::uint64_t bytes = 0;
  std::uint32_t crc32c = 0;
};

/// Decompresses the file `stored` into the file `written`, with little memory, and checks what its format has to check.
/// `name` for messages. Error(kCorruptData), and those of the disk.
WrittenFile inflate_file(const std::filesystem::path& stored, data::Compression compression,
                         const std::filesystem::path& written, const std::string& name);

}  // namespace gyre::store
