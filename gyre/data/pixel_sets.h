#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gyre/data/formats/cifar10_images.h"
#include "gyre/data/formats/idx.h"
#include "gyre/data/formats/pixels.h"
#include "gyre/data/readable_file.h"
#include "gyre/data/sample_set.h"
#include "gyre/data/scratch_buffer.h"

namespace gyre::data {

/// IDX files (MNIST's), compressed with gzip or not: one with images ([n, height, width] or [n, height, width, 3]) and,
/// where there is one, another with as many labels ([n]). Samples have the features "image" (raw pixels) and "label".
class IdxSet : public SampleSet {
 public:
  /// Reads labels, and what is compressed, into memory. Errors are those of parse_idx(); kInvalidArgument where the
  /// files do not belong together.
  IdxSet(const std::vector<std::string>& names, const FileOpener& open);

  std::uint64_t count() const override { return images_.header.shape[0]; }
  SampleBlocks blocks() const override { return {}; }  // Images are small, or in memory.
  std::uint64_t contents_checksum() const override;
  std::string name_of(std::uint64_t sample) const override;
  void will_read(std::span<const std::uint64_t> samples) const override;
  std::unique_ptr<SampleReader> make_reader(std::shared_ptr<MemoryBudget> budget) const override;

 private:
  class Reader;

  /// One file: its contents in memory where it was compressed.
  struct Array {
    IdxHeader header;
    std::unique_ptr<const ReadableFile> file;
    std::shared_ptr<ScratchBuffer> memory;
    std::optional<std::span<const std::byte>> contents;

    void read_at(std::uint64_t offset_bytes, std::span<std::byte> into) const;
  };
  static Array open_array(const std::string& name, const FileOpener& open);

  Array images_;
  PixelLayout layout_;
  std::vector<std::byte> labels_;
};

/// CIFAR-10's files, in either layout (formats/cifar10.h): "image" (raw pixels, in planes) and "label".
class Cifar10Set : public SampleSet {
 public:
  Cifar10Set(const std::vector<std::string>& names, const FileOpener& open);

  std::uint64_t count() const override { return images_.count(); }
  SampleBlocks blocks() const override { return {}; }  // Images are small, or in memory.
  std::string name_of(std::uint64_t sample) const override;
  void will_read(std::span<const std::uint64_t> samples) const override { images_.will_read(samples); }
  std::unique_ptr<SampleReader> make_reader(std::shared_ptr<MemoryBudget> budget) const override;

 private:
  class Reader;

  std::string name_;  // For messages.
  Cifar10Images images_;
};

}  // namespace gyre::data
