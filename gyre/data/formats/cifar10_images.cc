#include "gyre/data/formats/cifar10_images.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <utility>

#include "gyre/base/check.h"
#include "gyre/base/error.h"

namespace gyre::data {
namespace {

std::uint8_t read_record(const Cifar10Records& records, std::uint64_t index, std::span<std::byte> pixels) {
  const std::uint64_t offset = records.offset_bytes + index * records.stride_bytes;
  if (!records.memory.empty()) {
    std::memcpy(pixels.data(), records.memory.data() + offset, kCifar10ImageBytes);
    return records.labels[index];
  }
  if (!records.labels.empty()) {
    records.file->read_at(offset, pixels);
    return records.labels[index];
  }
  std::array<std::byte, 1 + kCifar10ImageBytes> record;  // The label stands in front of its image: one read for both.
  records.file->read_at(offset - 1, record);
  std::memcpy(pixels.data(), record.data() + 1, kCifar10ImageBytes);
  return static_cast<std::uint8_t>(record[0]);
}

}  // namespace

Cifar10Images::Cifar10Images(std::vector<Cifar10Records> records) : records_(std::move(records)) {
  for (const Cifar10Records& run : records_) {
    GYRE_CHECK((run.labels.empty() || run.labels.size() == run.count));
    count_ += run.count;
  }
}

const Cifar10Records& Cifar10Images::records_of(std::uint64_t& index) const {
  auto run = records_.begin();
  while (index >= run->count) index -= (run++)->count;
  return *run;
}

void Cifar10Images::will_read(std::span<const std::uint64_t> images) const {
  for (std::uint64_t index : images) {
    const Cifar10Records& run = records_of(index);
    if (!run.memory.empty()) continue;
    const std::uint64_t label_bytes = run.labels.empty() ? 1 : 0;  // In front of the image.
    const FileRange range{.offset_bytes = run.offset_bytes + index * run.stride_bytes - label_bytes,
                          .size_bytes = kCifar10ImageBytes + label_bytes};
    run.file->will_read({&range, 1});
  }
}

std::uint8_t Cifar10Images::read(std::uint64_t index, std::span<std::byte> pixels) const {
  GYRE_CHECK(index < count_);
  GYRE_CHECK(pixels.size() == kCifar10ImageBytes);
  const Cifar10Records& run = records_of(index);
  const std::uint8_t label = read_record(run, index, pixels);
  if (label >= kCifar10Classes) {
    throw Error(
        ErrorCode::kCorruptData,
        fmt::format("{}: image {} has the label {}; labels go from 0 to {}. The file is damaged or not CIFAR-10",
                    run.path.string(), index, label, kCifar10Classes - 1));
  }
  return label;
}

std::string Cifar10Images::name_of(std::uint64_t index) const {
  GYRE_CHECK(index < count_);
  const Cifar10Records& run = records_of(index);
  return fmt::format("{}:{}", run.path.string(), index);
}

}  // namespace gyre::data
