#include "gyre/data/pixel_sets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/data/formats/cifar10.h"
#include "gyre/data/formats/inflate.h"

namespace gyre::data {
namespace {

constexpr std::uint64_t kMostContentsBytes = std::uint64_t{16} << 30;  // Of a compressed IDX file.
constexpr PixelLayout kCifarLayout{.size = {kCifar10Side, kCifar10Side}, .channels = kCifar10Channels, .planes = true};

Example sample_of(std::span<const std::byte> pixels, const PixelLayout& layout, std::optional<std::int64_t> label) {
  Example sample;
  sample.add("image", Feature::of_pixels(pixels, layout));
  if (label) sample.add("label", Feature::of_int(*label));
  return sample;
}

PixelLayout layout_of(const IdxHeader& header, const std::string& name) {
  const auto& shape = header.shape;
  const bool colored = shape.size() == 4 && shape[3] == kPixelBytes;
  if ((shape.size() != 3 && !colored) || header.item_bytes() == 0) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("{} holds an array of the shape [{}]; images are [n, height, width] or [n, height, width, 3]", name,
                    fmt::join(shape, ", ")));
  }
  return {.size = {shape[2], shape[1]}, .channels = colored ? std::uint32_t{kPixelBytes} : 1};
}

}  // namespace

class IdxSet::Reader : public SampleReader {
 public:
  Reader(const IdxSet& set, std::shared_ptr<MemoryBudget> budget) : set_(set), pixels_(std::move(budget)) {}

  Example read_sample(std::uint64_t index, StageTimes& times) override {
    StageClock clock(times);
    index_ = index;
    const Array& images = set_.images_;
    const auto pixels = pixels_.take(static_cast<std::size_t>(images.header.item_bytes()));
    images.read_at(images.header.size_bytes + index * images.header.item_bytes(), pixels);
    clock.finish(Stage::kSource);
    const auto& labels = set_.labels_;
    return sample_of(pixels, set_.layout_,
                     labels.empty()
                         ? std::nullopt
                         : std::optional(std::to_integer<std::int64_t>(labels[static_cast<std::size_t>(index)])));
  }

  std::string position() const override { return fmt::format("{}, image {}", set_.images_.file->name(), index_); }
  std::size_t scratch_bytes() const override { return pixels_.capacity_bytes(); }

 private:
  const IdxSet& set_;
  ScratchBuffer pixels_;
  std::uint64_t index_ = 0;
};

void IdxSet::Array::read_at(std::uint64_t offset_bytes, std::span<std::byte> into) const {
  if (!contents) return file->read_at(offset_bytes, into);
  const auto from = contents->subspan(static_cast<std::size_t>(offset_bytes), into.size());
  std::memcpy(into.data(), from.data(), from.size());
}

IdxSet::Array IdxSet::open_array(const std::string& name, const FileOpener& open) {
  Array array;
  array.file = open(name);
  std::array<std::byte, kMostIdxHeaderBytes> first{};
  auto header = std::span(first).first(std::min<std::uint64_t>(first.size(), array.file->size_bytes()));
  array.file->read_at(0, header);
  std::uint64_t size = array.file->size_bytes();
  if (!is_idx(header) && sniff_compression(header) == Compression::kGzip) {
    Bytes stored(static_cast<std::size_t>(size));
    array.file->read_at(0, stored);
    array.memory = std::make_shared<ScratchBuffer>();
    array.contents = Inflater().inflate(Compression::kGzip, stored, kMostContentsBytes, name, *array.memory);
    size = array.contents->size();
    header = std::span(first).first(std::min<std::uint64_t>(first.size(), size));
    std::ranges::copy(array.contents->first(header.size()), header.begin());
  }
  array.header = parse_idx(header, size, name);
  return array;
}

IdxSet::IdxSet(const std::vector<std::string>& names, const FileOpener& open) {
  std::optional<Array> images;
  std::optional<Array> labels;
  for (const std::string& name : names) {
    Array array = open_array(name, open);
    std::optional<Array>& place = array.header.shape.size() == 1 ? labels : images;
    if (place) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} and {} are both {}; one file of images and one of labels is a set",
                              place->file->name(), name, array.header.shape.size() == 1 ? "labels" : "images"));
    }
    place = std::move(array);
  }
  if (!images) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("none of the IDX files ({}) holds images", fmt::join(names, ", ")));
  }
  const std::uint64_t count = images->header.shape[0];
  if (count == 0) throw Error(ErrorCode::kInvalidArgument, fmt::format("{} holds no image", images->file->name()));
  layout_ = layout_of(images->header, images->file->name());
  if (labels && labels->header.shape[0] != count) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} holds {} images and {} {} labels: they do not belong together", images->file->name(),
                            count, labels->file->name(), labels->header.shape[0]));
  }
  if (labels) {
    labels_.resize(static_cast<std::size_t>(count));
    labels->read_at(labels->header.size_bytes, labels_);
  }
  images_ = std::move(*images);
}

std::uint64_t IdxSet::contents_checksum() const { return xxh3_64(labels_); }

std::string IdxSet::name_of(std::uint64_t sample) const { return fmt::format("{}:{}", images_.file->name(), sample); }

void IdxSet::will_read(std::span<const std::uint64_t> samples) const {
  if (images_.contents) return;
  const std::uint64_t bytes = images_.header.item_bytes();
  for (const std::uint64_t sample : samples) {
    const FileRange range{.offset_bytes = images_.header.size_bytes + sample * bytes, .size_bytes = bytes};
    images_.file->will_read({&range, 1});
  }
}

std::unique_ptr<SampleReader> IdxSet::make_reader(std::shared_ptr<MemoryBudget> budget) const {
  return std::make_unique<Reader>(*this, std::move(budget));
}

class Cifar10Set::Reader : public SampleReader {
 public:
  explicit Reader(const Cifar10Set& set) : set_(set) {}

  Example read_sample(std::uint64_t index, StageTimes& times) override {
    StageClock clock(times);
    index_ = index;
    const std::uint8_t label = set_.images_.read(index, pixels_);
    clock.finish(Stage::kSource);
    return sample_of(pixels_, kCifarLayout, label);
  }

  std::string position() const override { return fmt::format("{}, image {}", set_.name_, index_); }
  std::size_t scratch_bytes() const override { return 0; }

 private:
  const Cifar10Set& set_;
  std::array<std::byte, kCifar10ImageBytes> pixels_{};
  std::uint64_t index_ = 0;
};

Cifar10Set::Cifar10Set(const std::vector<std::string>& names, const FileOpener& open)
    : name_(fmt::format("{}", fmt::join(names, ", "))), images_(open_cifar10_files(names, open)) {}

std::string Cifar10Set::name_of(std::uint64_t sample) const { return images_.name_of(sample); }

std::unique_ptr<SampleReader> Cifar10Set::make_reader(std::shared_ptr<MemoryBudget> /*budget*/) const {
  return std::make_unique<Reader>(*this);
}

}  // namespace gyre::data
