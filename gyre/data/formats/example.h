#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/data/formats/number_list.h"
#include "gyre/data/formats/pixels.h"
#include "gyre/data/internal/protobuf_writer.h"

namespace gyre::data {

/// What a feature of a tf.train.Example holds.
enum class FeatureKind { kEmpty, kBytes, kFloats, kInts };

std::string_view feature_kind_name(FeatureKind kind);

/// How the values of raw pixels lie, a byte each.
struct PixelLayout {
  ImageSize size;
  std::uint32_t channels = 3;  ///< 1: gray.
  bool planes = false;         ///< All values of a channel together, else those of a pixel.
};

/// One feature, as views into the Example's bytes. Errors are kCorruptData.
class Feature {
 public:
  /// Features of other formats than Example, as views: one byte string, which may be raw pixels; one integer.
  static Feature of_bytes(std::span<const std::byte> value);
  static Feature of_pixels(std::span<const std::byte> value, const PixelLayout& layout);
  static Feature of_int(std::int64_t value);
  /// Several byte strings, and numbers, which are kFloats or kInts.
  static Feature of_strings(std::vector<std::span<const std::byte>> values);
  static Feature of_numbers(NumberList numbers);

  FeatureKind kind() const { return kind_; }
  /// Null where the bytes are not raw pixels.
  const PixelLayout* pixel_layout() const { return layout_ ? &*layout_ : nullptr; }
  /// Null where there is no type but that of the kind.
  const NumberList* numbers() const { return numbers_ ? &*numbers_ : nullptr; }

  /// The values of a kBytes feature.
  std::vector<std::span<const std::byte>> bytes() const;
  /// Copies the values of a kFloats feature to `values`; false, and nothing is promised of `values`, when there are
  /// more or fewer. Lists may be packed or not, as protobuf says.
  bool copy_floats(std::span<float> values) const;
  /// The same for kInts.
  bool copy_ints(std::span<std::int64_t> values) const;
  /// How many values a kFloats or kInts feature holds.
  std::size_t count() const;

 private:
  friend class Example;

  FeatureKind kind_ = FeatureKind::kEmpty;
  std::vector<std::span<const std::byte>> lists_;    // Parts of one BytesList, FloatList or Int64List.
  std::optional<std::span<const std::byte>> value_;  // Instead, of other formats.
  std::optional<std::int64_t> number_;               // Likewise.
  std::optional<std::vector<std::span<const std::byte>>> strings_;
  std::optional<NumberList> numbers_;
  std::optional<PixelLayout> layout_;
};

/// A tf.train.Example, parsed without copying a value. `message` must stay. Source:
/// tensorflow/core/example/example.proto and feature.proto; where a name comes twice the last one counts, and what is
/// unknown is passed over, as protobuf does.
class Example {
 public:
  /// No features yet; add() gives it those of a sample in another format, whose names and values must stay.
  Example() = default;
  void add(std::string_view name, Feature feature) { features_.push_back({name, std::move(feature)}); }

  /// Error(kCorruptData) where `message` is no such message.
  explicit Example(std::span<const std::byte> message);

  /// Null when there is none of that name.
  const Feature* find(std::string_view name) const;
  std::vector<std::string_view> names() const;

 private:
  struct Entry {
    std::string_view name;
    Feature feature;
  };

  void add_features(std::span<const std::byte> message);
  static Feature parse_feature(std::span<const std::byte> message);

  std::vector<Entry> features_;
};

/// Makes the bytes of an Example.
class ExampleWriter {
 public:
  void add_bytes(std::string_view name, std::span<const std::byte> value);
  void add_floats(std::string_view name, std::span<const float> values);
  void add_ints(std::string_view name, std::span<const std::int64_t> values);
  Bytes take();

 private:
  void add(std::string_view name, FeatureKind kind, Bytes list);

  ProtobufWriter features_;
};

}  // namespace gyre::data
