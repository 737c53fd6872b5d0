#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/data/readable_file.h"

namespace gyre::data {

/// Height and width 32, three planes (red, green, blue), one byte per value: a CIFAR-10 image.
inline constexpr std::size_t kCifar10Side = 32;
inline constexpr std::size_t kCifar10Channels = 3;
inline constexpr std::size_t kCifar10ImageBytes = kCifar10Channels * kCifar10Side * kCifar10Side;
inline constexpr std::uint8_t kCifar10Classes = 10;

/// A run of images in one place: `count` records of kCifar10ImageBytes, `stride_bytes` apart from `offset_bytes` on.
struct Cifar10Records {
  std::filesystem::path path;                  ///< For messages, and the file read from when `memory` is empty.
  std::unique_ptr<const ReadableFile> file{};  ///< Where the images are read from the file when they are asked for.
  Bytes memory;                                ///< Else the images themselves, one after the other.
  std::uint64_t offset_bytes = 0;              ///< Of the first image in the file.
  std::uint64_t stride_bytes = 0;              ///< From one image to the next.
  std::uint64_t count = 0;                     ///< Number of images.
  std::vector<std::uint8_t> labels;  ///< One per image; empty when each label stands in the byte before its image.
};

/// CIFAR-10's images with their labels, numbered 0 to count()-1 through all its records in their order. An image is
/// read when it is asked for, so a rank reads only its own share of a file. Immutable and thread-safe.
class Cifar10Images {
 public:
  explicit Cifar10Images(std::vector<Cifar10Records> records);

  std::uint64_t count() const { return count_; }

  /// Copies image `index` to `pixels` (kCifar10ImageBytes) and returns its label, 0 to 9. Error(kCorruptData) names the
  /// file and the record when the label is out of range or the file has become shorter.
  std::uint8_t read(std::uint64_t index, std::span<std::byte> pixels) const;

  /// These images will be read soon.
  void will_read(std::span<const std::uint64_t> images) const;

  /// "data_batch_1.bin:17": its file, and its number there.
  std::string name_of(std::uint64_t index) const;

 private:
  /// The records that hold image `index`, which then counts from their first one.
  const Cifar10Records& records_of(std::uint64_t& index) const;

  std::vector<Cifar10Records> records_;
  std::uint64_t count_ = 0;
};

}  // namespace gyre::data
