#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/data/readable_file.h"

namespace gyre::data::testing {

/// A file that is no file.
class MemoryFile : public ReadableFile {
 public:
  MemoryFile(std::string name, std::string contents) : name_(std::move(name)), contents_(std::move(contents)) {}

  const std::string& name() const override { return name_; }
  std::uint64_t size_bytes() const override { return contents_.size(); }
  void read_at(std::uint64_t offset_bytes, std::span<std::byte> into) const override {
    const auto from = as_bytes(contents_).subspan(static_cast<std::size_t>(offset_bytes), into.size());
    if (!into.empty()) std::memcpy(into.data(), from.data(), into.size());
  }

 private:
  std::string name_;
  std::string contents_;
};

/// Sets the checksum of a header that was changed.
inline void finish_header(std::string& header) {
  header.replace(148, 8, 8, ' ');
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(header[i]);
  header.replace(148, 8, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
}

inline std::string tar_header(const std::string& name, std::uint64_t size, char type) {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  header.replace(100, 7, "0000644");
  header.replace(124, 11, fmt::format("{:011o}", size));
  header[156] = type;
  header.replace(257, 8, std::string("ustar\00000", 8));
  finish_header(header);
  return header;
}

inline std::string padded(std::string text) {
  text.resize((text.size() + 511) / 512 * 512, '\0');
  return text;
}

inline std::string tar_entry(const std::string& name, const std::string& contents, char type = '0') {
  return padded(tar_header(name, contents.size(), type) + contents);
}

}  // namespace gyre::data::testing
